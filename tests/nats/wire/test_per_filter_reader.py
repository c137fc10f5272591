"""Readers of a range: every strategy gives the same messages in the same order."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nats.wire.samples import PATTERNS, TOKENS, sparse_stream

from turnout.nats.wire import Connection, PullReader, Range, create_stream, delete_stream
from turnout.nats.wire.per_filter_reader import SubjectFilter, reader_of
from turnout.nats.wire.pull import hole
from turnout.nats.wire.read_strategy import ONE_CONSUMER, WHOLE_STREAM, ReadStrategy
from turnout.subjects.pattern import matches

SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)


@pytest.fixture
def stream(connection: Connection) -> Iterator[str]:
    with sparse_stream(connection) as name:
        yield name


def read(connection: Connection, part: Range, way: ReadStrategy) -> list[dict[str, Any]]:
    """The rows; the holes that the reader tells are those of what it gives."""
    reader = reader_of(connection, part, way)
    batches, expected = [], part.start
    for batch in reader.batches():
        if way.kind != "wider_filter" and batch.num_rows:
            sequences = batch.column("offset").to_numpy()
            assert reader.hole == hole(sequences, expected)
            expected = reader.next
        batches.append(batch)
    assert connection.api(f"STREAM.INFO.{part.stream}")["state"]["consumer_count"] == 0
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.mark.jetstream
@pytest.mark.parametrize("bounds", [(1, 6002), (1, 2000), (2500, 2600), (5990, 6002), (40, 41)])
def test_each_way_gives_the_same(connection: Connection, stream: str, bounds: tuple[int, int]) -> None:
    """Same messages, same order, at every edge of pieces, with holes, to the end of the stream and before it."""
    whole = list(PullReader(connection, Range(stream, *bounds)).batches())
    rows = pa.Table.from_batches(whole).to_pylist() if whole else []
    for tokens in (["a.1", "b.*"], ["a.*", "*.2", "*.3", "*.4"], ["c.7", "none.*", "end"], ["never", "no.>"]):
        filters = tuple(f"{stream}.{token}" for token in tokens)
        expected = [row for row in rows if any(matches(filter_, row["topic"]) for filter_ in filters)]
        part = Range(stream, *bounds, filters)
        for way in (
            ONE_CONSUMER,
            WHOLE_STREAM,
            ReadStrategy("wider_filter", (f"{stream}.>",), 0, 6002),
            ReadStrategy("per_filter", (), 10_000, 6002),
            ReadStrategy("per_filter", (), 700, 6002),
        ):
            assert read(connection, part, way) == expected, (filters, way)


@pytest.mark.jetstream
def test_many_filters_in_the_order_of_the_stream(connection: Connection, stream: str) -> None:
    """There is one consumer per filter, one after the other, and no message of one in another."""
    filters = tuple(f"{stream}.{letter}.{n}" for letter in "abcd" for n in range(10))

    rows = read(connection, Range(stream, 1, 6001, filters), ReadStrategy("per_filter", (), 3000, 6002))

    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    assert len(rows) == 5400


@pytest.mark.jetstream
def test_large_messages_behind_the_range(connection: Connection) -> None:
    """Partly received messages beyond the end do not affect the next consumers."""
    name = f"WAYS{secrets.token_hex(4)}"
    create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
    try:
        for n in range(60):
            connection.request(f"{name}.{n % 3}", b"%d" % n * 150_000)
        filters = tuple(f"{name}.{n}" for n in range(3))

        server = connection.server
        rows = read(connection, Range(name, 1, 11, filters), ReadStrategy("per_filter", (), 4))

        assert [row["offset"] for row in rows] == list(range(1, 11))
        assert connection.server is server
    finally:
        delete_stream(connection, name)


@given(st.lists(PATTERNS, min_size=1, max_size=5), st.lists(SUBJECTS | st.just("a..b"), max_size=20))
def test_the_filter_matches_as_a_consumer_does(filters: list[str], subjects: list[str]) -> None:
    """Row by row as `turnout.subjects.pattern.matches`, wildcards and tokens that only begin with a star included."""
    batch = pa.RecordBatch.from_pydict({"topic": pa.array(subjects, pa.string())})

    left = SubjectFilter(filters).of(batch).column("topic").to_pylist()

    assert left == [subject for subject in subjects if any(matches(filter_, subject) for filter_ in filters)]
