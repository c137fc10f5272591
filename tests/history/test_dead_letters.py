"""Forged headers on a real server: published into a route's source, or among its dead letters."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from turnout.base.clocks import Microseconds
from turnout.conditions import evaluate, parse
from turnout.engine import Program
from turnout.engine.dead_letters import DESTINATION, ORIGIN, SEAL, SUBSCRIPTION
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import ConditionError, ConfigError
from turnout.history import dead_letters
from turnout.history.dead_letters import CONNECTOR, REDRIVEN, TRIES, DeadLetter, LetterBox, meeting, of_messages
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


SEALED_BY = 'secret: "of the route, and of nobody else"'
TEXT = """
name: small
source: {format: kafka, servers: "127.0.0.1:1", topics: in}
value: {format: json}
transforms: [{name: number, type: Cast$Value, spec: "n:int32"}]
sink: {format: nats, servers: "nats://127.0.0.1:1", stream: DEAD}
deadLetter: {topic: dead}
errors: {tolerance: all}
"""
PLAIN = Route.parse(TEXT, {})
SEALING = Route.parse(TEXT.replace("dead}", f"dead, {SEALED_BY}}}"), {})
LENIENT = TEXT.replace("n:int32", "n:string")

NAMES = (
    *("Turnout-Redriven", "Turnout-Redrive-Tries", "Turnout-Source", "Turnout-Route", "Turnout-Replay"),
    *(f"__turnout.{name}" for name in ("origin", "subscription", "destination", "seal", "headers.left.out")),
    *("__turnout.value.left.out", "__turnout.value.sha256", "Kind", "Nats-Msg-Id", "Nats-Sequence"),
    *(f"__connect.errors.{name}" for name in ("connector.name", "topic", "partition", "offset", "stage", "task.id")),
    "__connect.errors.exception.message",
)
VALUES = ("", "1", "2", "small", "in", "in:0:1", "9" * 5000, "-1", "٣", "1:" + "0" * 64, "TRANSFORMATION")
NOTES: tuple[dict[str, object], ...] = (
    {"delivered": [1, 2, 3, 4, 5, 6], "failed": {}},
    {"delivered": [], "failed": {"1": 7, "2": 7}, "stream": "DEAD", "until": 9_000_000_000_000_000},
    {"n": "x"},
    {"n": 10**4000},
)
name = st.sampled_from(NAMES).flatmap(lambda text: st.sampled_from((text, text.lower(), text.upper())))
headers = st.lists(st.tuples(name, st.sampled_from(VALUES).map(str.encode)), max_size=8).map(tuple)
value = st.sampled_from(NOTES).map(lambda note: json.dumps({"n": "x", **note}).encode())
forged = st.lists(st.builds(SampleRecord, topic=st.just("in"), value=value, headers=headers), max_size=4)

GENUINE = [SampleRecord("in", json.dumps({"n": text}).encode(), headers=(("Kind", b"web"),)) for text in "abc"]


def rows_of(route: Route, records: list[SampleRecord]) -> list[dict[str, Any]]:
    """Set records aside, and return the messages as the stream of dead letters has them."""
    messages = Program.of(route).run(record_batch(records)).messages
    columns = (messages.ids, messages.column("value"), messages.column("headers"))
    return [
        {"key": id_.encode(), "value": body, "headers": pairs}
        for id_, body, pairs in zip(*(column.to_pylist() for column in columns), strict=True)
    ]


def read(route: Route, rows: list[dict[str, Any]]) -> list[DeadLetter]:
    """The letters among messages that lie in this order."""
    placed = [{**row, "offset": at, "timestamp": 1_000 * at} for at, row in enumerate(rows, start=1)]
    return of_messages(placed, route, LetterBox.of(route))


def offset_of(letter: DeadLetter) -> int:
    """The offset of the record that a letter says it holds."""
    assert letter.record.offset is not None
    return letter.record.offset


def told(letter: DeadLetter) -> tuple[Any, ...]:
    """Return the parts of a letter that are accepted as the route's."""
    return (replace(letter.record, timestamp=None), letter.tries, letter.done, letter.stage, letter.reason,
            letter.subscription, letter.destination, letter.verified, letter.whole)  # fmt: skip


@settings(deadline=None, max_examples=examples(150))
@given(forged, st.permutations(range(3)), st.booleans())
@pytest.mark.parametrize("route", [PLAIN, SEALING], ids=["by topic", "by seal"])
def test_records_change_nothing_of_other_letters(
    route: Route, records: list[SampleRecord], order: list[int], first: bool
) -> None:
    """Published into the source they hide, mark and change no letter; their own say which records they are."""
    genuine = [replace(GENUINE[at], offset=at) for at in order]
    strange = [replace(record, offset=100 + at) for at, record in enumerate(records)]
    alone = [told(letter) for letter in read(route, rows_of(route, genuine))]

    letters = read(route, rows_of(route, strange + genuine if first else genuine + strange))

    assert [told(letter) for letter in letters if offset_of(letter) < 100] == alone
    others = [letter for letter in letters if offset_of(letter) >= 100]
    assert [letter.record.offset for letter in others] == [record.offset for record in strange]
    for letter in others:
        assert (letter.record.topic, letter.record.partition, letter.tries, letter.done) == ("in", 0, 0, False)
        assert (letter.subscription, letter.destination, letter.verified, letter.whole) == (None, None, True, True)
        assert letter.stage in ("TRANSFORMATION", "VALUE_CONVERTER")


@settings(deadline=None, max_examples=examples(150))
@given(forged, st.booleans(), st.booleans())
def test_messages_on_the_topic_change_nothing_of_sealed_letters(
    records: list[SampleRecord], first: bool, copies: bool
) -> None:
    """Published among the letters they hide, mark and redrive nothing, also with a seal copied from a real letter."""
    real = rows_of(SEALING, GENUINE)
    strange = [
        {
            "key": b"in:0:1:AB",
            "value": record.value,
            "headers": [
                *({"key": key, "value": raw} for key, raw in record.headers),
                *(real[0]["headers"] if copies else ()),
            ],
        }
        for record in records
    ]
    alone = [told(letter) for letter in read(SEALING, real)]

    letters = read(SEALING, strange + real if first else real + strange)

    verified = [letter for letter in letters if letter.verified]
    assert [told(letter) for letter in verified] == alone
    lenient = Route.parse(LENIENT.replace("dead}", f"dead, {SEALED_BY}}}"), {})
    # Nothing is sent, and there is no server to ask what the route reads itself, or for records.
    with (
        patch("turnout.history.redrive.preflight", side_effect=lambda route: route),
        patch("turnout.runtime.kafka.adapter.KafkaAdapter.originals", side_effect=list),
    ):
        report = redrive(lenient, letters, dry_run=True)
    outcomes = {id(row.letter): row.outcome for row in report.results}
    assert {outcomes[id(letter)] for letter in letters if not letter.verified} <= {"unverified"}
    assert {outcomes[id(letter)] for letter in verified} == {"delivered"}


def test_a_letter_of_an_earlier_version_tells_what_it_told() -> None:
    """It has no origin and no seal: it is read by its block, unverified where the route has a secret by now."""
    (row,) = rows_of(PLAIN, [replace(GENUINE[0], offset=7)])
    row["headers"] = [pair for pair in row["headers"] if not pair["key"].startswith("__turnout.")]

    (by_topic,), (by_seal,) = read(PLAIN, [row]), read(SEALING, [row])

    assert (by_topic.record.offset, by_topic.record.headers, by_topic.verified) == (7, (("Kind", b"web"),), True)
    assert told(by_seal) == told(replace(by_topic, verified=False))


ROUTE = Route.parse(
    """
name: orders
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: ORDERS}
value: {format: json}
transforms:
  - {type: MaskField$Value, fields: card}
subscriptions: {store: "memory://", metadata: {city: value.city, card: value.card}}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
deadLetter: {topic: dead.orders}
""",
    {},
)


def letter(value: object, number: int = 1, topic: str = "orders.1", **headers: str) -> DeadLetter:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    record = SampleRecord(topic, raw, headers=tuple((name, text.encode()) for name, text in headers.items()))
    return DeadLetter("DEAD", number, "", Microseconds(0), record, True, "TRANSFORMATION", None, "no number")


OULU, TURKU, BROKEN = letter({"city": "Oulu"}), letter({"city": "Turku"}, 2, tag="a"), letter(b"\xff{", 3, tag="a")


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("city:Oulu", [OULU]),
        ("NOT city:Oulu", [TURKU, BROKEN]),
        ("tag:a", [TURKU, BROKEN]),
        ("value.city:Turku OR value.n>3", [TURKU]),
        ("topic:orders* AND tag:*", [TURKU, BROKEN]),
        ("city:*", [OULU, TURKU]),
        ("city:Kemi", []),
    ],
)
def test_letters_meet_a_condition(where: str, found: list[DeadLetter]) -> None:
    """By listed paths, topic and headers, in their order; what cannot be decoded has no paths."""
    assert meeting(ROUTE, [OULU, TURKU, BROKEN], where) == found


@given(st.lists(st.tuples(st.sampled_from(["Oulu", "Turku", None]), st.sampled_from(["a", "b"])), max_size=12))
def test_the_search_is_the_reference(drawn: list[tuple[str | None, str]]) -> None:
    """As the evaluator says of each record alone, whatever stands beside it."""
    letters = [
        letter(b"{" if city is None else {"city": city}, number, tag=tag) for number, (city, tag) in enumerate(drawn)
    ]
    condition = parse("city:Oulu OR NOT tag:a")
    seen = [{"tag": tag} | ({} if city is None else {"city": city}) for city, tag in drawn]
    expected = [one for one, texts in zip(letters, seen, strict=True) if evaluate(condition, texts)]

    assert meeting(ROUTE, letters, condition) == expected


def test_more_letters_than_a_batch_keep_their_order() -> None:
    """Of several thousand."""
    letters = [replace(OULU if number % 3 else TURKU, sequence=number) for number in range(2500)]

    found = meeting(ROUTE, letters, "city:Turku")

    assert [one.sequence for one in found] == list(range(0, 2500, 3))


def test_what_is_masked_is_not_searched() -> None:
    """A strict search refuses it, as it would tell what it is; what cannot be read is refused as well."""
    assert meeting(ROUTE, [letter({"card": "17"})], "card:17") != []
    with pytest.raises(ConfigError, match="where: card: the route masks"):
        meeting(ROUTE, [], "card:17", strict=True)
    with pytest.raises(ConfigError, match=r"where: value\.card: the route masks"):
        meeting(ROUTE, [], "value.city:Oulu AND value.card:1*", strict=True)
    assert meeting(ROUTE, [OULU], "value.city:Oulu", strict=True) == [OULU]
    with pytest.raises(ConditionError):
        meeting(ROUTE, [], "city:")
