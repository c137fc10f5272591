"""A chain over batches in this process: what the route's stage does to values, without a route and without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from turnout.codecs import Codec, Format, codec_of
from turnout.engine.reading import contents
from turnout.engine.writing import Bodies
from turnout.records import ALIVE, FAILED, Batch, Block, Failure, Headers
from turnout.records.block import rows_of
from turnout.transforms import Chain
from turnout.transforms.chain import ChainRunner


class Outcome(NamedTuple):
    """What became of a record; what is not alive has no topic, no value and no headers."""

    outcome: str
    topic: str | None = None
    value: bytes | None = None
    headers: tuple[str, ...] = ()


class BatchChain:
    """Bytes to bytes through a chain, a batch at a time.

    Args:
        value: a route's ``value``, or a codec.
        transforms: a route's ``transforms``.
        writes: the codec that writes; None is the one that reads.
    """

    def __init__(
        self, value: Mapping[str, Any] | Codec, transforms: Sequence[Mapping[str, Any]], writes: Codec | None = None
    ) -> None:
        self._codec = codec_of(Format.from_config(value)) if isinstance(value, Mapping) else value
        self._writes = writes or self._codec
        self._runner = ChainRunner(Chain.from_route(transforms))

    def run(self, records: pa.RecordBatch) -> tuple[Batch, pa.Array]:
        """Decode, transform, and encode what is still there, as an array in the order of the records."""
        batch = self.transformed(records)
        return batch, self._encoded(batch)

    def transformed(self, records: pa.RecordBatch) -> Batch:
        """Decode and transform."""
        batch = self._decoded(records)
        self._runner.apply(batch)
        return batch

    def seconds(self, records: pa.RecordBatch) -> Iterator[tuple[str, float]]:
        """Do what `run` does, and yield the name of each step with the processor time that it took."""
        begun = time.process_time()
        batch = self._decoded(records)
        yield "decode", time.process_time() - begun
        for stage in self._runner.stages:
            begun = time.process_time()
            stage.apply(batch)
            yield stage.stage.name, time.process_time() - begun
        begun = time.process_time()
        self._encoded(batch)
        yield "encode", time.process_time() - begun

    def _encoded(self, batch: Batch) -> pa.Array:
        bodies = Bodies()
        for block in batch.value:
            bodies.add(block.rows, self._writes.encode(block))
        return bodies.array(batch.alive)

    def _decoded(self, records: pa.RecordBatch) -> Batch:
        rows = rows_of(len(records))
        blocks, errors = self._codec.decode(rows, contents(records, "value", self._codec))
        batch = Batch(
            records["topic"].to_pylist(),
            [0] * len(records),
            None,
            records["timestamp"].to_pylist(),
            [Block(rows, None)],
            blocks,
            Headers.of_arrow(records["headers"]),
        )
        batch.fail({row: Failure.of(error, "VALUE_CONVERTER", self._codec.format) for row, error in errors.items()})
        return batch

    def outcomes(self, records: pa.RecordBatch) -> Iterator[Outcome]:
        """What became of each record, in order."""
        batch, encoded = self.run(records)
        texts = dict(zip(batch.alive.tolist(), encoded.to_pylist(), strict=True))
        for row, outcome in enumerate(batch.outcomes.tolist()):
            if outcome == ALIVE:
                names = tuple(header.name for header in batch.headers.of(row))
                yield Outcome("alive", batch.topics[row], texts[row], names)
            else:
                yield Outcome("failed" if outcome == FAILED else "filtered")
