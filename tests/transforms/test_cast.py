"""Cast's rules one by one; what Kafka's classes answer is in the vectors."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_a_bad_record_leaves_the_others_alone() -> None:
    """Each record of a batch is cast for itself."""
    chain = Chain.from_config(
        {"transforms": "t", "transforms.t.type": "org.apache.kafka.connect.transforms.Cast$Value",
         "transforms.t.spec": "a:int8"}
    )  # fmt: skip

    outcomes = chain.apply([Record("t", {"a": text}, offset=at) for at, text in enumerate(["1", "x", None, "3"])])

    assert [outcome.value if isinstance(outcome, Record) else None for outcome in outcomes] == [
        {"a": 1},
        None,
        {"a": None},
        {"a": 3},
    ]
