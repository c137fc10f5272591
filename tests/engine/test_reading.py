"""A record batch in parts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.engine.batches import batch, program, sent
from turnout.engine import Counts, pieces, reading

MIXED: list[dict[str, Any]] = [
    {"topic": "in.a.b", "value": {"n": 1, "city": "Oulu"}, "headers": [("Kind", "x")]},
    {"topic": "in.a.b", "value": b"{", "headers": [("Kind", "y"), ("More", "z")]},
    {"topic": "in.c.d", "value": {"n": 2, "city": "Turku"}, "headers": [("Old", "yes")]},
    {"topic": "in.c.d", "value": None},
    {"topic": "in.e.f", "value": {"n": 3, "city": "Pori"}, "headers": [("Kind", "w")]},
]


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_the_parts_of_a_batch_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Each record takes its own headers, place and bytes along, wherever the batch is cut."""
    monkeypatch.setattr(reading, "AT_ONCE", at_once)
    whole = batch(MIXED * 3)
    way = program()

    results = [way.run(piece) for piece in pieces(whole)]

    expected = way.run(whole)
    sizes = [result.counts.read for result in results]
    assert max(sizes) <= at_once
    assert max(sizes) - min(sizes) < len(sizes)
    assert sum((result.counts for result in results), Counts()) == expected.counts
    assert sorted(message for result in results for message in sent(result.messages)) == sorted(sent(expected.messages))


def test_records_that_the_source_could_not_read() -> None:
    """One with a problem fails with that as its reason; the others beside it pass."""
    records = batch(MIXED[:1] * 3)
    problems = pa.array([None, "a.avro: the block at byte 17: cut off", None], pa.string())

    result = program().run(records.append_column("problem", problems))

    assert (result.counts.read, result.counts.delivered, result.counts.dead_lettered) == (3, 2, 1)
    assert str(sent(result.messages)).count("exception.message', b'a.avro: the block at byte 17: cut off'") == 1
