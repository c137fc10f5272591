"""Forged headers on a real server: published into a route's source, or among its dead letters."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from turnout.conditions import parse
from turnout.engine.dead_letters import DESTINATION, ORIGIN, SUBSCRIPTION
from turnout.engine.letter_seal import SEAL
from turnout.history import dead_letters
from turnout.history.letter_block import CONNECTOR, REDRIVEN, TRIES
from turnout.history.redrive import redrive
from turnout.nats.wire import Connection, Publisher
from turnout.routes import Route
from turnout.subscriptions import Subscription

SECRET = "of the route, and of nobody else"
EVERYTHING = {"delivered": list(range(1, 100)), "failed": {str(n): 9 for n in range(1, 100)}}


@pytest.fixture
def sealed(scene) -> Route:
    """The route of the scene, with a secret."""
    return Route.parse(secret_in(scene.text), {})


def secret_in(text: str) -> str:
    return text.replace('"}\nerrors', f'", secret: "{SECRET}"}}\nerrors')


def publish_letter(scene, body: Any, headers: list[tuple[str, Any]], message_id: str | None = None) -> None:
    with Connection.open(scene.url) as connection, Publisher(connection) as publisher:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        publisher.publish(f"dead-{scene.name}", raw, headers, message_id=message_id)


def want_texts(scene) -> Route:
    """Have texts delivered to a subscription, and return the route that takes them, with its secret."""
    with scene.store() as store:
        store.create(Subscription([f"out-{scene.name}.texts"], parse("n:*"), id="texts"))
    return Route.parse(secret_in(scene.text).replace("n:int32", "n:string"), {})


@pytest.mark.parametrize("name", [REDRIVEN, REDRIVEN.lower()])
def test_a_record_hides_no_dead_letter(scene, name) -> None:
    """A record with the header of a note, and a note's body, is a dead letter as others are."""
    scene.publish(b"{", {"n": "x"})
    scene.publish({"n": "x", **EVERYTHING}, headers=((name, "99"), (CONNECTOR, "redriven")))

    counts = scene.run()

    assert (counts["dead_lettered"], counts["reserved_headers"]) == (3, 1)
    assert [(letter.record.offset, letter.done, letter.tries) for letter in scene.letters()] == [
        (offset, False, 0) for offset in (1, 2, 3)
    ]


def test_an_earlier_version_has_written_such_a_letter(scene) -> None:
    """A letter with the header among its record's own, as it may still lie there, is no note either."""
    scene.publish(b"{")
    scene.run()
    (genuine,) = scene.letters()
    publish_letter(scene, EVERYTHING, [(REDRIVEN, "99"), (TRIES, "9" * 5000), *genuine.raw])

    assert [(letter.done, letter.tries) for letter in scene.letters()] == [(False, 0)] * 2


def test_a_number_of_thousands_of_digits_is_no_number(scene) -> None:
    """Positions and tries that do not fit are left out, and the letters are listed and redriven."""
    scene.publish({"n": "x"}, headers=((TRIES, "9" * 5000), ("__connect.errors.offset", "9" * 5000)))
    scene.run()
    huge = "9" * 5000
    block = [("__connect.errors.partition", str(1 << 40)), ("__connect.errors.offset", huge), (CONNECTOR, "redriven")]
    publish_letter(scene, {"n": "x"}, [*block, (TRIES, huge)])

    first, second = scene.letters()

    assert (first.record.offset, first.tries) == (1, 0)
    assert (second.record.partition, second.record.offset, second.tries) == (0, None, 0)
    assert scene.redrive(dry_run=True).outcomes == {"failed": 2}


def test_a_record_chooses_no_subscription(scene) -> None:
    """The record's own headers about subscription and destination are not taken for the route's."""
    scene.publish({"n": "x"}, headers=((SUBSCRIPTION, "small"), (DESTINATION, f"out-{scene.name}.small")))
    scene.run()

    (letter,) = scene.letters()

    assert (letter.subscription, letter.destination) == (None, None)
    assert letter.record.headers == ()


def test_without_the_secret_nobody_writes_letters_or_notes(scene, sealed) -> None:
    """A forged note marks nothing; a forged letter is listed as unverified, and redriven only with --unverified."""
    scene.publish({"n": "x"}, {"n": "y"})
    scene.run(sealed)
    first, second = dead_letters.read(sealed)
    publish_letter(scene, EVERYTHING, [(REDRIVEN, "99"), (CONNECTOR, "redriven")])
    seal = next(value for name, value in scene_headers(scene, first.sequence) if name == SEAL)
    publish_letter(scene, EVERYTHING, [(REDRIVEN, "99"), (CONNECTOR, "redriven"), (SEAL, seal)])
    forged = [(name, value) for name, value in second.raw if name != ORIGIN]
    publish_letter(scene, {"n": "forged"}, [*forged, (SEAL, seal)], f"{second.message_id}:again")
    lenient = want_texts(scene)

    letters = dead_letters.read(lenient)
    assert [(letter.verified, letter.done, letter.tries) for letter in letters] == [
        (True, False, 0),
        (True, False, 0),
        (False, False, 0),
    ]
    assert redrive(lenient, letters).outcomes == {"delivered": 2, "unverified": 1}
    assert [row["value"] for row in scene.rows("OUT")] == [b'{"n":"x"}', b'{"n":"y"}']

    (left,) = dead_letters.read(lenient)
    assert redrive(lenient, [left], unverified=True).outcomes == {"delivered": 1}
    *_, last = scene.rows("OUT")
    assert last["value"] == b'{"n":"forged"}'
    assert last["headers"]["Nats-Msg-Id"].startswith(f"DEAD_{scene.name}:{left.sequence}:")
    assert dead_letters.read(lenient) == []
    assert [letter.done for letter in dead_letters.read(lenient, done=True)] == [True] * 3


def scene_headers(scene, sequence: int) -> list[tuple[str, str]]:
    return list(scene.rows("DEAD")[sequence - 1]["headers"].items())


def test_a_letter_stays_verified(scene, sealed) -> None:
    """One that failed again is sealed again, and one that was never verified is not."""
    scene.publish(b"{", headers=(("Kind", " web"),))
    scene.run(sealed)
    (genuine,) = dead_letters.read(sealed)
    publish_letter(scene, b"{", list(genuine.raw))

    for _ in range(2):
        redrive(sealed, dead_letters.read(sealed), delete=True, unverified=True)

    assert [(letter.tries, letter.verified) for letter in dead_letters.read(sealed)] == [(2, True), (2, False)]


def test_letters_from_before_the_secret(scene, sealed) -> None:
    """They are listed as unverified; without a secret the topic is believed."""
    scene.publish({"n": "x"})
    scene.run()

    assert [letter.verified for letter in dead_letters.read(sealed)] == [False]
    assert [letter.verified for letter in scene.letters()] == [True]


def test_a_copied_note_says_nothing_of_later_letters(scene, sealed) -> None:
    """A stream that is made again has the same sequences: a real note of the old one marks none of its letters."""
    scene.publish({"n": "x"})
    scene.run(sealed)
    lenient = want_texts(scene)
    redrive(lenient, dead_letters.read(lenient))
    *_, note = scene.rows("DEAD")
    with Connection.open(scene.url) as connection:
        connection.api(f"STREAM.PURGE.DEAD_{scene.name}", {})
    scene.run(replace(sealed, name="other"))
    scene.publish({"n": "z"})
    publish_letter(scene, note["value"], [pair for pair in note["headers"].items() if pair[0] != "Nats-Msg-Id"])
    scene.run(sealed)

    letters = dead_letters.read(sealed)
    marks = json.loads(note["value"])
    assert letters
    assert marks["until"] < min(letter.stored for letter in letters)
    assert not any(letter.done for letter in letters)


def test_a_rewritten_letter_takes_nobodys_id(scene) -> None:
    """A rewritten letter is stored, for any ids known to its stream; otherwise it would be lost."""
    scene.publish(b"{")
    scene.run()
    (letter,) = scene.letters()
    publish_letter(scene, b"strange", [], f"{letter.message_id}:{TRIES}:1")

    scene.redrive(delete=True)

    assert [(letter.record.offset, letter.tries) for letter in scene.letters()] == [(1, 1)]
