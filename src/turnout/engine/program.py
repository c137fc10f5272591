"""A route as a program: a batch of records in, messages, dead letters and counts out.

Every record takes the same way: decode, transforms, mapping, match, fan-out, encode. A record that fails on it leaves
with the stage, the reason and the bytes that it came as; nothing else of the batch is concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from turnout.codecs import Codec, EncodeErrors, codec_of
from turnout.engine.counts import Counts
from turnout.engine.dead_letters import dead_headers
from turnout.engine.failures import FailureLog, stop_at
from turnout.engine.messages import RECORDS, Messages
from turnout.engine.metadata import Metadata, texts_of
from turnout.engine.origin import IdSuffixes, dead_suffix, origins, suffix
from turnout.engine.reading import Consumed, batch_of
from turnout.engine.trace import Ends, Trace, Watch, traced
from turnout.errors import RecordError
from turnout.records import FILTERED, Batch, Block, Failure, Positions
from turnout.routes import Route
from turnout.routes.endpoints import NatsSink
from turnout.subjects.draw_hash import draws_of
from turnout.subjects.mapper import Mapper
from turnout.subscriptions.index import Index, Matches
from turnout.transforms.apply import ChainRunner

__all__ = ["Program", "Result"]

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one batch.

    Attributes:
        counts: of its records.
        messages: what goes out.
        failures: the records that failed, as the log shows them; only where the route asks for a log.
    """

    counts: Counts
    messages: Messages
    failures: Sequence[dict[str, Any]] = ()


@dataclass(slots=True)
class _Deliveries:
    """What is to be sent of the records that are alive: for each message its row, destination and id's suffix.

    Where there are subscriptions, *subscriptions* has the index's number of each message's, and -1 where it has none.
    """

    rows: Rows
    topics: Any
    suffixes: Any
    unmatched: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    subscriptions: Rows | None = None


class Program:
    """What a route does with records; it keeps what it has learned of schemas, topics and values between batches.

    One thread at a time may use it; what is pickled is the route alone.

    Args:
        route: the route.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self.key: Codec = codec_of(route.key)
        self.value: Codec = codec_of(route.value)
        self.chain = ChainRunner(route.chain)
        self.mapper = Mapper(route.mappings, route.cluster) if len(route.mappings) else None
        self.metadata = Metadata(route.subscriptions.metadata if route.subscriptions else {})
        self._sinks = list(route.sinks)
        # JetStream messages have no key.
        self._needs_keys = any(not isinstance(sink, NatsSink) for sink in route.sinks.values())
        self._suffixes: dict[int, IdSuffixes] = {}
        self._topic_suffixes: dict[str, str] = {}

    @classmethod
    def of(cls, route: Route) -> Program:
        """The program of a route."""
        return cls(route)

    def __reduce__(self) -> tuple[Any, ...]:
        return Program.of, (self.route,)

    # One batch

    def run(self, batch: Any, index: Index | None = None) -> Result:
        """Everything that the route does with a batch.

        Args:
            batch: a `pyarrow.RecordBatch` with the record's columns; ``stream`` where it came from JetStream.
            index: the subscriptions of the batch's revision; None for a route without subscriptions.

        Raises:
            RunError: a record failed, and the route tolerates no failures; names its place and the reason.
        """
        result, ends = self._run(batch, index, _UNWATCHED)
        stop_at(self.route, ends.records.failures, ends.consumed)
        return result

    def trace(self, batch: Any, index: Index | None = None, watch: Watch | None = None) -> Trace:
        """The same as `run`, with what became of each single record; a failure stops nothing here.

        Args:
            batch: as for `run`.
            index: likewise.
            watch: is shown the records between the steps.
        """
        result, ends = self._run(batch, index, watch or _UNWATCHED)
        return traced(self.route, ends, result.counts, result.messages, index)

    def _run(self, batch: Any, index: Index | None, watch: Watch) -> tuple[Result, Ends]:
        records, consumed = batch_of(batch, self.key, self.value)
        watch.decoded(records, consumed)
        log = FailureLog(self.route.errors, consumed)
        for stage in self.chain.stages:
            watch.before(stage, records)
            stage.apply(records)
            watch.after(stage, records)
            log.passed_over(stage.noted)
        watch.transformed(records)
        alive = records.alive
        lost = self._map(records, consumed, alive)
        watch.mapped(records)
        deliveries = self._deliver(records, alive, lost, index)
        return self._finish(records, consumed, lost, deliveries, log)

    def transformed(self, batch: Any) -> Batch:
        """A batch decoded, transformed and mapped; what the weights lose counts as filtered."""
        records, consumed = batch_of(batch, self.key, self.value)
        self.chain.apply(records)
        records.filter(self._map(records, consumed, records.alive))
        return records

    def sample(self, batch: Any, keys: Sequence[str]) -> list[dict[str, str]]:
        """The metadata under *keys* of each record that would be matched, to choose anchors by."""
        records = self.transformed(batch)
        alive = records.alive
        columns = self.metadata.columns(records, alive, keys)
        return [texts_of(columns, place) for place in range(len(alive))]

    def _map(self, records: Batch, consumed: Consumed, alive: Positions) -> Rows:
        """Give the records their mapped topics; the rows of those that the weights lose."""
        if self.mapper is None:
            return np.zeros(0, np.int64)
        topics = records.by_row(records.topics, alive)

        def draws(places: list[int]) -> NDArray[np.float64]:
            rows = alive[np.array(places, np.intp)].tolist()
            return draws_of(
                [consumed.topics[row] or "" for row in rows],
                [records.partitions[row] for row in rows],
                [records.offsets[row] if records.offsets is not None else None for row in rows],
            )

        mapped = self.mapper.apply([topic or "" for topic in topics], draws)
        if len(alive) == len(records):
            records.topics = mapped
        else:
            for row, topic in zip(alive.tolist(), mapped, strict=True):
                records.topics[row] = topic
        lost = [place for place, topic in enumerate(mapped) if topic is None] if None in mapped else []
        return alive[np.array(lost, np.intp)].astype(np.int64)

    # Who gets what

    def _deliver(self, records: Batch, alive: Positions, lost: Rows, index: Index | None) -> _Deliveries:
        mapped = np.ones(len(records), np.bool_)
        mapped[lost] = False
        kept = mapped[alive]
        rows = alive.astype(np.int64)
        if index is None:
            rows = rows[kept]
            topics = records.by_row(records.topics, rows)
            return _Deliveries(rows, pa.array(topics, pa.string()), self._suffixes_of_topics(topics))
        # What is lost is mostly little: leaving it among the others costs less than taking it out of every column.
        columns = self.metadata.columns(records, alive, index.keys)
        matches = index.match(columns, len(alive))
        if len(lost):
            there = np.flatnonzero(kept[matches.rows])
            matches = Matches(matches.rows[there], matches.subscriptions[there])
        sent = index.deliveries(matches)
        kept[matches.rows] = False
        suffixes = self._suffixes_of(index).of(sent)
        topics = index.destinations(sent.destinations)
        return _Deliveries(rows[sent.rows], topics, suffixes, rows[kept], sent.subscriptions)

    def _suffixes_of(self, index: Index) -> IdSuffixes:
        known = self._suffixes.get(id(index))
        if known is None:
            if len(self._suffixes) > 1:
                # Two revisions are in use while the next micro-batch begins.
                self._suffixes.pop(next(iter(self._suffixes)))
            # It holds the index, whose id no other object has as long as it is here.
            known = self._suffixes[id(index)] = IdSuffixes(self.route.name, index)
        return known

    def _suffixes_of_topics(self, topics: Sequence[str | None], *subscription: str) -> Any:
        """The id suffixes of messages that go to their own topics."""
        known = self._topic_suffixes
        if len(known) > _REMEMBERED:
            known.clear()
        for topic in set(topics).difference(known):
            if topic is not None:
                known[topic] = suffix(self.route.name, *subscription, topic)
        return pa.array([None if topic is None else known[topic] for topic in topics], pa.string())

    # What goes out

    def _finish(
        self, records: Batch, consumed: Consumed, lost: Rows, deliveries: _Deliveries, log: FailureLog
    ) -> tuple[Result, Ends]:
        route = self.route
        unmatched = deliveries.unmatched
        if len(unmatched) and route.unmatched == "pass":
            deliveries = self._passed_on(records, deliveries)
            unmatched = deliveries.unmatched
        delivered = np.unique(deliveries.rows)
        bodies, keys = self._encoded(records, delivered)
        failed = np.array(sorted(records.failures), np.int64)
        if len(failed):
            log.failed(records.failures)
            delivered = delivered[~np.isin(delivered, failed)]
        dead = failed
        if route.unmatched == "deadLetter":
            dead, unmatched = np.union1d(failed, unmatched), unmatched[:0]
        discarded = dead[:0]
        if route.dead_letter is None:
            discarded, dead = dead, dead[:0]
        messages = self._messages(records, consumed, deliveries, delivered, dead, bodies, keys)
        counts = Counts(
            read=len(records),
            filtered=int((records.outcomes == FILTERED).sum()),
            lost_by_weight=len(lost),
            unmatched=len(unmatched),
            delivered=len(delivered),
            dead_lettered=len(dead),
            discarded=len(discarded),
            messages=len(messages) - len(dead),
        )
        ends = Ends(
            records, consumed, lost, unmatched, delivered, dead, discarded,
            deliveries.rows, deliveries.topics, deliveries.subscriptions,
        )  # fmt: skip
        return Result(counts, messages, log.lines()), ends

    def _passed_on(self, records: Batch, deliveries: _Deliveries) -> _Deliveries:
        """Those that nobody wants go on under their own topic, among the others."""
        rows = deliveries.unmatched
        topics = [records.topics[row] for row in rows.tolist()]
        order = np.argsort(np.concatenate([deliveries.rows, rows]), kind="stable")
        places = pa.array(order)
        numbers = deliveries.subscriptions
        if numbers is not None:
            numbers = np.concatenate([numbers, np.full(len(rows), -1)])[order]
        return _Deliveries(
            np.concatenate([deliveries.rows, rows])[order],
            pa.concat_arrays([deliveries.topics, pa.array(topics, pa.string())]).take(places),
            pa.concat_arrays([deliveries.suffixes, self._suffixes_of_topics(topics, "")]).take(places),
            subscriptions=numbers,
        )

    def _encoded(self, records: Batch, rows: Rows) -> tuple[dict[int, bytes | None], dict[int, bytes | None]]:
        """Row → the bytes of its value, and of its key where a sink has keys; what cannot be written fails."""
        values = self._encoded_side(records, records.value, rows, self.value, "VALUE_CONVERTER")
        if not self._needs_keys:
            return values, {}
        return values, self._encoded_side(records, records.key, rows, self.key, "KEY_CONVERTER")

    def _encoded_side(
        self, records: Batch, side: list[Block], rows: Rows, codec: Codec, stage: str
    ) -> dict[int, bytes | None]:
        wanted = np.zeros(len(records), np.bool_)
        wanted[rows] = True
        bodies: dict[int, bytes | None] = {}
        failures: dict[int, Failure] = {}
        for block in tuple(side):
            chosen = block.take(np.flatnonzero(wanted[block.rows]))
            if not len(chosen):
                continue
            written, wrong = _encode(codec, chosen)
            places = chosen.rows.tolist()
            bodies.update(zip(places, written, strict=True))
            failures |= {places[place]: Failure.of(error, stage, codec.class_name) for place, error in wrong.items()}
        records.fail(failures)
        return bodies

    def _messages(
        self,
        records: Batch,
        consumed: Consumed,
        deliveries: _Deliveries,
        delivered: Rows,
        dead: Rows,
        bodies: dict[int, bytes | None],
        keys: dict[int, bytes | None],
    ) -> Messages:
        rows, topics, suffixes = deliveries.rows, deliveries.topics, deliveries.suffixes
        if len(records.failures):
            # A record that could not be written is a dead letter, and none of its messages goes out.
            sent = pa.array(np.isin(rows, delivered))
            rows, topics, suffixes = (
                rows[sent.to_numpy(zero_copy_only=False)],
                topics.filter(sent),
                suffixes.filter(sent),
            )
        source = np.concatenate([delivered, dead])
        place = np.zeros(len(records), np.int64)
        place[source] = np.arange(len(source))
        if len(dead):
            topics = pa.concat_arrays([topics, pa.repeat(pa.scalar(self._dead_topic, pa.string()), len(dead))])
            ends = pa.repeat(pa.scalar(dead_suffix(self.route.name), pa.string()), len(dead))
            suffixes = pa.concat_arrays([suffixes, ends])
            rows = np.concatenate([rows, dead])
        origin = origins(consumed.batch).take(pa.array(rows))
        ids = pc.binary_join_element_wise(origin, suffixes, "")
        topics, sinks = self._to_sinks(topics)
        carried = self._records(records, consumed, delivered, dead, bodies, keys)
        return Messages(topics, ids, sinks, place[rows], carried)

    @property
    def _dead_topic(self) -> str:
        assert self.route.dead_letter is not None
        return self.route.dead_letter.topic

    def _records(
        self,
        records: Batch,
        consumed: Consumed,
        delivered_rows: Rows,
        dead_rows: Rows,
        bodies: dict[int, bytes | None],
        keys: dict[int, bytes | None],
    ) -> Any:
        """The columns that messages carry: of the delivered records, then of the dead letters, as they were read."""
        delivered, dead = delivered_rows.tolist(), dead_rows.tolist()
        values = [bodies[row] for row in delivered] + [consumed.values[row] for row in dead]
        headers = records.headers.to_arrow(delivered_rows)
        if dead:
            context = self.route.dead_letter is not None and self.route.dead_letter.context_headers
            added = dead_headers(consumed.batch, dead, records.failures, name=self.route.name, context=context)
            headers = pa.concat_arrays([headers, added])
        columns = {
            "value": pa.array(values, pa.binary()),
            "headers": headers,
            "key": pa.array([keys.get(row) for row in delivered] + [consumed.keys[row] for row in dead], pa.binary()),
        }
        source = pa.array(delivered + dead, pa.int64())
        for name in ("partition", "offset", "timestamp"):
            kind = RECORDS.field(name).type
            known = name in consumed.batch.schema.names
            columns[name] = (
                consumed.batch.column(name).take(source).cast(kind) if known else pa.nulls(len(source), kind)
            )
        return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)

    def _to_sinks(self, topics: Any) -> tuple[Any, NDArray[np.int8]]:
        """The topics without the names of sinks, and the place of each one's sink; the first takes what names none."""
        sinks = np.zeros(len(topics), np.int8)
        if len(self._sinks) == 1:
            return topics, sinks
        texts = topics.to_pylist()
        for at, text in enumerate(texts):
            name, colon, rest = text.partition(":")
            if colon and name in self._sinks:
                sinks[at] = self._sinks.index(name)
                texts[at] = rest
        return pa.array(texts, pa.string()), sinks


_UNWATCHED = Watch()

_REMEMBERED = 200_000
"""How many topics' id suffixes are remembered; beyond them all are forgotten."""


def _encode(codec: Codec, block: Block) -> tuple[list[bytes | None], dict[int, RecordError]]:
    """The bytes of a block's values, and place → why of those that cannot be written."""
    try:
        return codec.encode(block), {}
    except EncodeErrors as errors:
        return errors.texts, errors.errors
    except RecordError as error:
        return [None] * len(block), dict.fromkeys(range(len(block)), error)
