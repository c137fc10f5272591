"""Headers that are inserted; what Kafka's class answers is in the vectors."""

from __future__ import annotations

from tests.transforms.chains import chain

from turnout.records import Record


def test_every_record_gets_the_header() -> None:
    """The literal is read once."""
    outcomes = chain("InsertHeader", header="h", value_literal="5").apply([Record("t", 1), Record("t", None)])

    assert [[header.value for header in outcome.headers] for outcome in outcomes] == [[5], [5]]  # type: ignore[union-attr]
