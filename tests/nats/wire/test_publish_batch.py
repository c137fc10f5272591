"""Messages of a batch as lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from turnout.nats.wire._publish_batch import PublishedColumns, PublishedLists, PublishedMessages, small_enough
from turnout.nats.wire._window import TrackedChunk

_LINES = st.sampled_from([b"", b"Nats-Msg-Id: 1\r\n", b"A: b\r\n"])
_MESSAGES = st.lists(
    st.tuples(st.sampled_from(["a", "b.c", "Ä"]), st.binary(max_size=4), _LINES), min_size=1, max_size=4
)


@given(_MESSAGES, st.booleans(), st.integers(10, 60))
def test_messages_as_lists(messages: list[tuple[str, bytes, bytes]], headed: bool, limit: int) -> None:
    """Messages as lists are sent, refused and found as those with arrays are."""
    subjects, payloads, lines = map(list, zip(*messages, strict=True))

    def of(few: bool) -> tuple[PublishedMessages, list[int]]:
        refused: list[int] = []
        heads = lines if headed else None
        if few:
            return PublishedLists(subjects, payloads, heads, lambda row, _: refused.append(row)), refused
        columns = pa.array(subjects), pa.array(payloads, pa.binary()), pa.array(heads, pa.binary()) if headed else None
        rows = np.arange(len(messages))
        return PublishedColumns(*columns, lambda row, _: refused.append(row), rows), refused

    (few, few_refused), (many, many_refused) = of(True), of(False)
    assert few.have_ids() == many.have_ids()
    assert set(few.distinct_subjects()) == set(many.distinct_subjects())
    for first in (-1, 7):
        (one, edges), (other, other_edges) = few.frames(b"r", first), many.frames(b"r", first)
        assert (bytes(memoryview(one)), list(edges)) == (bytes(memoryview(other)), list(other_edges))
    rest, other_rest = small_enough(few, limit), small_enough(many, limit)
    assert few_refused == many_refused
    assert rest.subjects.to_pylist() == other_rest.subjects.to_pylist()
    chunk, other_chunk = (TrackedChunk(own, b"i.", 1) for own in (few, many))
    assert chunk.waiting_on("a") == other_chunk.waiting_on("a")
    assert chunk.waiting() == other_chunk.waiting()
