"""Keys and values as tests, `explain` and the sandbox write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnout.codecs import Format, notation_of
from turnout.engine import Program
from turnout.engine.explain import explain
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import ConfigError
from turnout.history import Suite
from turnout.history.suite.cases import run_cases
from turnout.routes import Route

ROUTE = """
name: counts
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: COUNTS}
key: {format: boolean}
value: {format: long}
transforms:
- {type: HoistField$Value, field: n, predicate: {when: {key: topic, equals: whole}}}
- {type: ExtractField$Value, field: n, predicate: {when: {key: topic, equals: whole}}}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
tests:
- name: a number of eight digits
  record: {topic: whole, key: true, value: 12345678}
  expect: {value: 12345678, key: true, valueBase64: AAAAAAC8YU4=}
- name: eight bytes
  record: {topic: a, valueBase64: AAAAAAAAAQA=}
  expect: {value: 256}
- name: no number
  record: {topic: a, value: many}
  expect: {outcome: dead_lettered, reason: "expected 8 bytes, found 4", value: many}
- name: other than expected
  record: {topic: a, value: 17}
  expect: {value: 18}
deadLetter: {topic: dead}
errors: {tolerance: all}
"""


@pytest.mark.parametrize(
    ("name", "plain", "content"),
    [
        ("short", 1, b"\0\1"),
        ("double", 1, b"\x3f\xf0\0\0\0\0\0\0"),
        ("boolean", True, b"\1"),
        ("string", "abc", b"abc"),
        ("json", {"n": [1, None]}, b'{"n": [1, null]}'),
        ("raw", "ö", "ö".encode()),
        ("long", None, None),
    ],
)
def test_a_value_is_written_and_read(name: str, plain: Any, content: bytes | None) -> None:
    """By what the format is, and back."""
    notation = notation_of(Format(name))

    assert notation.encode(plain) == content
    assert notation.decode(content) == plain


def test_bytes_that_are_no_value_are_shown_as_they_are() -> None:
    """A text as one; other bytes as bytes."""
    notation = notation_of(Format("short"))

    assert notation.decode(b"abc") == "abc"
    assert notation.decode(b"\xff\xff\xff") == b"\xff\xff\xff"


def test_cases_express_numbers() -> None:
    """Records and expectations are written as numbers, whatever the bytes; so are differences."""
    route = Route.parse(ROUTE)
    suite = Suite.parse(ROUTE, route, Path("counts.yaml"), ("tests",))
    assert suite is not None
    report = run_cases(route, suite.cases)

    assert {result.case.name for result in report.failed} == {"other than expected"}
    assert [(one.path, one.expected, one.actual) for one in report.failed[0].differences] == [("value", 18, 17)]


def test_an_explanation_shows_numbers() -> None:
    """Of the messages that go out; a key and a value that are no value of the format are mistakes of the record."""
    route = Route.parse(ROUTE)
    record = SampleRecord.of({"topic": "a", "value": 17}, route=route)

    (message,) = explain(Program.of(route), record_batch([record])).messages
    with pytest.raises(ConfigError) as refused:
        SampleRecord.of({"topic": "a", "key": 3, "value": 2**70}, route=route)

    assert message.value == "17"
    assert [mistake.path for mistake in refused.value.mistakes] == ["value", "key"]
