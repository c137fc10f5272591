"""InsertHeader, DropHeaders and HeaderFrom."""

from __future__ import annotations

from tests.transforms.chains import FOO, STRUCT, chain

from turnout.records import Failure, Header, Record
from turnout.transforms import Chain


def test_every_record_gets_the_header() -> None:
    """The literal is read once."""
    outcomes = chain("InsertHeader", header="h", value_literal="5").apply([Record("t", 1), Record("t", None)])

    assert [[header.value for header in outcome.headers] for outcome in outcomes] == [[5], [5]]  # type: ignore[union-attr]


def test_headers_of_these_names_are_dropped() -> None:
    """All of a name; others keep their order."""
    chain = Chain.from_route([{"name": "d", "type": "DropHeaders", "headers": "a"}])
    headers = [Header("a", b"1"), Header("b", b"2"), Header("a", b"3"), Header("c", b"4")]
    record = chain.apply(Record("t", 1, headers=headers))

    assert record is not None
    assert [header.name for header in record.headers] == ["b", "c"]


def test_headers_under_a_predicate_go_to_the_right_records() -> None:
    """A copy leaves the values in their block."""
    records = [Record(topic, {"a": topic}) for topic in ("foo", "bar", "foo")]

    outcomes = chain("HeaderFrom$Value", fields="a", headers="h", operation="copy", predicate=FOO).apply(records)

    assert [[header.value for header in outcome.headers] for outcome in outcomes] == [["foo"], [], ["foo"]]  # type: ignore[union-attr]


def test_a_null_needs_an_optional_schema_in_a_header() -> None:
    """A null that was never stored cannot become a header."""
    records = [Record("t", {"a": "x", "n": n}, value_schema=STRUCT) for n in (1, None)]

    outcomes = chain("HeaderFrom$Value", fields="n", headers="h", operation="copy").apply(records)

    assert [isinstance(outcome, Failure) for outcome in outcomes] == [False, True]
