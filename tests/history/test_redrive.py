"""Dead letters: read, grouped, and redriven."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace

import pytest

from turnout.conditions import parse
from turnout.engine.messages import VALUE_DIGEST
from turnout.engine.reading import UNREAD
from turnout.errors import ConfigError, StreamError
from turnout.history import dead_letters
from turnout.history.dead_letters import REDRIVEN, TRIES, LetterBox
from turnout.history.redrive import redrive
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, stream_info
from turnout.routes import Route
from turnout.subscriptions import Subscription

LENIENT = ("n:int32", "n:string")
"""Change of the route that makes it accept a text."""


def test_letters_are_read_and_grouped(scene) -> None:
    """Each letter has its record, the stage and the reason; letters of another route are not included."""
    scene.publish({"n": 1}, {"n": "x"}, b"{", {"n": "x", "more": 1})
    assert scene.run()["dead_lettered"] == 3
    other = replace(scene.route, name="other")
    scene.run(other)

    letters = scene.letters()

    assert [(letter.record.topic, letter.record.stream, letter.record.offset) for letter in letters] == [
        (f"in-{scene.name}.a", f"IN_{scene.name}", offset) for offset in (2, 3, 4)
    ]
    assert [json.loads(letter.record.value) for letter in letters[::2]] == [{"n": "x"}, {"n": "x", "more": 1}]
    assert [letter.record.headers for letter in letters] == [()] * 3
    groups = dead_letters.grouped(letters)
    assert [(group.stage, group.count) for group in groups] == [("TRANSFORMATION", 2), ("VALUE_CONVERTER", 1)]
    assert [letter.record.offset for letter in scene.letters(stage="value_converter")] == [3]
    assert [letter.record.offset for letter in scene.letters(reason="number:", start=letters[1].sequence)] == [4]
    assert [letter.record.offset for letter in scene.letters(end=letters[1].sequence)] == [2]
    assert len(dead_letters.read(other)) == 3


def test_what_passes_is_delivered_once(scene) -> None:
    """Under the ids that a run would have given, and a second redrive has nothing left to do."""
    scene.publish({"n": 1}, {"n": "5"}, {"n": "x"}, b"{", headers=(("Kind", "web"),))
    scene.run()
    lenient = Route.parse(scene.text.replace(*LENIENT), {})
    with scene.store() as store:
        store.create(Subscription([f"out-{scene.name}.texts"], parse("n:x"), id="texts"))

    expected = redrive(lenient, scene.letters(), dry_run=True)
    report = redrive(lenient, scene.letters())

    assert expected.outcomes == report.outcomes == {"delivered": 1, "failed": 1}
    assert (expected.stored, report.stored, report.duplicates) == (0, 1, 0)
    rows = scene.rows("OUT")
    texts = next(row for row in rows if row["topic"].endswith("texts"))
    assert (texts["value"], texts["headers"]["Kind"]) == (b'{"n":"x"}', "web")
    assert set(texts["headers"]) == {"Kind", "Nats-Msg-Id"}
    scene.run(lenient)
    assert len(scene.rows("OUT")) == len(rows)
    assert [(letter.record.offset, letter.tries) for letter in scene.letters()] == [(4, 1)]
    assert [(letter.record.offset, letter.done) for letter in scene.letters(done=True)] == [(3, True), (4, False)]
    again = redrive(lenient, scene.letters(done=True))
    assert (again.stored, again.duplicates, again.outcomes) == (0, 1, {"delivered": 1, "failed": 1})


@pytest.mark.parametrize("with_identity", [False, True])
def test_letters_of_a_stream_that_was_made_anew(scene, with_identity: bool) -> None:
    """Their records are taken from the letters, not from the messages that have their sequences now."""
    scene.publish({"n": "old"})
    scene.run(with_identity=with_identity)
    name = f"IN_{scene.name}"
    with Connection.open(scene.url) as connection:
        config = stream_info(connection, name)["config"]
        delete_stream(connection, name)
        create_stream(connection, {"name": name, "subjects": config["subjects"]})
    scene.publish({"n": "new"})
    lenient = Route.parse(scene.text.replace(*LENIENT), {})
    with scene.store() as store:
        store.create(Subscription([f"out-{scene.name}.texts"], parse("n exists"), id="texts"))

    first, second = redrive(lenient, scene.letters()), redrive(lenient, scene.letters(done=True))

    assert (first.stored, second.stored, second.duplicates) == (1, 0, 1)
    assert [row["value"] for row in scene.rows("OUT")] == [b'{"n":"old"}']


def test_what_fails_again_keeps_its_first_reason(scene) -> None:
    """With --delete what is delivered is gone, and what failed is there once, with the number of its tries."""
    scene.publish({"n": "x"}, b"{", {"n": 7})
    scene.run()
    with scene.store() as store:
        store.create(Subscription([f"out-{scene.name}.texts"], parse("n:x"), id="texts"))
    before = {row["value"]: row["headers"] for row in scene.rows("DEAD")}
    lenient = Route.parse(scene.text.replace(*LENIENT), {})

    for _ in range(2):
        redrive(lenient, scene.letters(), delete=True)

    (row,) = scene.rows("DEAD")
    assert row["value"] == b"{"
    assert row["headers"].pop(TRIES) == "2"
    first = before[b"{"]
    assert row["headers"].pop("Nats-Msg-Id") == f"{first.pop('Nats-Msg-Id')}:{TRIES}:2:3"
    assert row["headers"] == first
    (letter,) = scene.letters()
    assert (letter.tries, letter.stage, letter.record.offset) == (2, "VALUE_CONVERTER", 2)
    assert letter.record.stream == f"IN_{scene.name}"


def test_what_a_source_could_not_read_is_no_record(scene) -> None:
    """A line of a file, in a letter of the stage of sources, is not delivered as a record's value."""
    scene.publish({"n": "x"})
    scene.run()
    letters = [replace(letter, stage=UNREAD) for letter in scene.letters()]

    report = redrive(Route.parse(scene.text.replace(*LENIENT), {}), letters)

    assert report.outcomes == {"failed": 1}
    assert "its source could not read it" in str(report.results[0].reason)
    assert scene.rows("OUT") == []


def test_a_delivery_goes_to_its_subscription_alone(scene) -> None:
    """The redrive uses the same destination if it is reachable, else the new ones; other subscriptions get nothing."""
    with scene.store() as store:
        store.create(Subscription([f"out-{scene.name}.audit", f"far-{scene.name}"], parse("n>0"), id="both"))
    scene.publish({"n": 1})
    assert scene.run()["undeliverable"] == 1
    (letter,) = scene.letters()
    assert (letter.subscription, letter.destination) == ("both", f"far-{scene.name}")

    assert scene.redrive().outcomes == {"failed": 1}
    opened = Route.parse(scene.text.replace('allow: ["', f'allow: ["far-{scene.name}", "'), {})
    expected, report = (redrive(opened, scene.letters(), dry_run=dry_run) for dry_run in (True, False))
    assert expected.outcomes == report.outcomes == {"failed": 1}
    assert "is stored by no stream" in (expected.results[0].reason or "")
    with Connection.open(scene.url) as connection:
        create_stream(connection, {"name": f"FAR_{scene.name}", "subjects": [f"far-{scene.name}"], "storage": "memory"})
    assert redrive(opened, scene.letters(), dry_run=True).outcomes == {"delivered": 1}
    report = redrive(opened, scene.letters())
    assert report.outcomes == {"delivered": 1}
    assert [row["value"] for row in scene.rows("FAR")] == [b'{"n":1}']
    assert len(scene.rows("OUT")) == 2
    with Connection.open(scene.url) as connection:
        delete_stream(connection, f"FAR_{scene.name}")

    with scene.store() as store:
        store.delete("both")
        store.create(Subscription([f"out-{scene.name}.instead"], parse("n>0"), id="both"))
    assert redrive(scene.route, [letter]).outcomes == {"delivered": 1}
    assert Counter(row["topic"].rpartition(".")[2] for row in scene.rows("OUT")) == {
        "small": 1,
        "audit": 1,
        "instead": 1,
    }
    with scene.store() as store:
        store.delete("both")
    assert redrive(scene.route, [letter]).outcomes == {"unmatched": 1}


def test_what_the_route_does_otherwise_now(scene) -> None:
    """A record that is now filtered or unmatched is not delivered, and its letter stays."""
    scene.publish({"n": "x"}, {"n": "y"}, headers=(("Old", "1"),))
    scene.publish({"n": "z"})
    eager = Route.parse(scene.text.replace("HasHeaderKey, name: Old", "HasHeaderKey, name: Older"), {})
    scene.run(eager)

    report = redrive(Route.parse(scene.text.replace(*LENIENT), {}), scene.letters())

    assert report.outcomes == {"filtered": 2, "unmatched": 1}
    assert len(scene.letters()) == 3


def test_a_record_that_is_gone_from_its_stream(scene) -> None:
    """The letter has what is needed; what it lacks makes it fail, and no message is sent without it."""
    scene.publish({"n": "x"}, {"n": "xx"})
    scene.run()
    with scene.store() as store:
        store.create(Subscription([f"out-{scene.name}.texts"], parse("n:x*"), id="texts"))
    lenient = Route.parse(scene.text.replace(*LENIENT), {})
    whole, cut = scene.letters()
    cut = replace(cut, whole=False, record=replace(cut.record, value=b""))
    with Connection.open(scene.url) as connection:
        connection.api(f"STREAM.MSG.DELETE.IN_{scene.name}", {"seq": 1, "no_erase": True})

    assert redrive(lenient, [whole, cut]).outcomes == {"delivered": 2}
    with Connection.open(scene.url) as connection:
        connection.api(f"STREAM.MSG.DELETE.IN_{scene.name}", {"seq": 2, "no_erase": True})
    report = redrive(lenient, [whole, cut])
    assert [result.outcome for result in report.results] == ["delivered", "failed"]
    assert "lacks a part" in (report.results[1].reason or "")
    assert (report.stored, report.duplicates) == (0, 1)


def test_a_record_whose_position_another_one_has(scene) -> None:
    """A server that was restored to older data gave its sequence to another message, which is not redriven for it."""
    scene.publish({"n": "x"}, {"n": "xx"})
    scene.run()
    with scene.store() as store:
        store.create(Subscription([f"out-{scene.name}.texts"], parse("n:x*"), id="texts"))
    lenient = Route.parse(scene.text.replace(*LENIENT), {})
    whole, cut = (
        replace(letter, record=replace(letter.record, offset=3 - (letter.record.offset or 0)))
        for letter in scene.letters()
    )
    assert (whole.record.value, cut.record.value) == (b'{"n": "x"}', b'{"n": "xx"}')
    digest = hashlib.sha256(cut.record.value).hexdigest().upper().encode()
    cut = replace(cut, whole=False, record=replace(cut.record, value=b""), raw=((VALUE_DIGEST, digest),))
    own = replace(cut, record=replace(cut.record, offset=2))

    report = redrive(lenient, [whole, cut])

    assert [result.outcome for result in report.results] == ["delivered", "failed"]
    assert "no longer has" in (report.results[1].reason or "")
    assert [row["value"] for row in scene.rows("OUT")] == [b'{"n":"x"}']
    assert redrive(lenient, [own], dry_run=True).outcomes == {"delivered": 1}


def test_what_others_publish_among_the_letters(scene) -> None:
    """An invalid note, and a letter without its position, are ignored: the others are redriven."""
    scene.publish(b"{")
    scene.run()
    name = ("__connect.errors.connector.name", "redriven")
    with Connection.open(scene.url) as connection, Publisher(connection) as publisher:
        for body in (b"{", b"[]", b'{"delivered": [1], "failed": 3}', b'{"delivered": ["x"], "failed": {}}'):
            publisher.publish(f"dead-{scene.name}", body, [(REDRIVEN, "1"), name])
        publisher.publish(f"dead-{scene.name}", b"{", [name, ("__connect.errors.offset", "first")])

    first, strange = scene.letters()

    assert (first.record.offset, first.done, first.tries) == (1, False, 0)
    assert strange.record.offset is None
    assert scene.redrive().outcomes == {"failed": 2}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('deadLetter: {topic: "dead-', 'x: {topic: "dead-'), None),
        (('"}\nerrors', '", contextHeaders: false}\nerrors'), "without these headers a letter's record"),
    ],
)
def test_letters_that_cannot_be_read(scene, change, problem) -> None:
    """The route has none, or they lack their headers: the error has the remedy."""
    if problem is None:
        lines = [line for line in scene.text.splitlines() if not line.startswith("deadLetter")]
        with pytest.raises(ConfigError, match="it sets nothing aside"):
            dead_letters.read(Route.parse("\n".join(lines), {}))
        return
    with pytest.raises(ConfigError, match=problem):
        dead_letters.read(Route.parse(scene.text.replace(*change), {}))


def test_no_stream_takes_the_letters(scene) -> None:
    """That is said with the topic."""
    lost = Route.parse(scene.text.replace(f'"dead-{scene.name}"', f'"nowhere-{scene.name}"'), {})

    with pytest.raises(StreamError, match=f"no stream takes the dead letters of redriven, on 'nowhere-{scene.name}'"):
        LetterBox.of(lost)
