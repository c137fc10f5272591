"""Headers from outside among dead letters: whatever records bring, other records' letters stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.history.dead_letters import DeadLetter, of_messages
from turnout.history.letter_box import LetterBox
from turnout.history.redrive import redrive
from turnout.routes import Route

SECRET = 'secret: "of the route, and of nobody else"'
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
SEALING = Route.parse(TEXT.replace("dead}", f"dead, {SECRET}}}"), {})
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


@settings(deadline=None, max_examples=150)
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


@settings(deadline=None, max_examples=150)
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
    lenient = Route.parse(LENIENT.replace("dead}", f"dead, {SECRET}}}"), {})
    # Nothing is sent, and there is no server to ask what the route reads itself, or for records.
    with (
        patch("turnout.history.redrive.preflight", side_effect=lambda route: route),
        patch("turnout.runtime.endpoints.kafka.KafkaAdapter.originals", side_effect=list),
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
