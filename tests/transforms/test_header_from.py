"""Headers made from fields; what Kafka's class answers is in the vectors."""

from __future__ import annotations

from tests.transforms.chains import FOO, STRUCT, chain

from turnout.records import Failure, Record


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
