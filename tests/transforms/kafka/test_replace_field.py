"""The transform ReplaceField."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_fields_are_left_out_and_renamed() -> None:
    """The order of the others stays."""
    chain = Chain.from_route([{"name": "r", "type": "ReplaceField$Value", "exclude": "b", "renames": "a:z"}])
    record = chain.apply(Record("t", {"a": 1, "b": 2, "c": 3}))

    assert record is not None
    assert record.value == {"z": 1, "c": 3}
