"""Committed offsets of a route, read from its checkpoint.

Spark writes the checkpoint: ``commits/N`` exists when micro-batch N is done, and ``offsets/N`` holds the end
that it was planned to, a line of JSON for each source.

Of NATS it is ``{"STREAM": sequence}``, with optional keys beside it. A stream's name has no dot, so keys with a dot are
free for other facts:

- ``STREAM.from``: first sequence of the micro-batch, where no earlier offset in the checkpoint has it.
- ``STREAM.open``: number of an open split. Spark's offsets are ends of micro-batches, and an open split has none when
  it is planned: its sequence is its beginning, and the number, one higher for each open split, makes the offset differ
  from the last one. Its position is recorded under the number (`turnout.runtime.open_splits`) and is where the next
  micro-batch begins.
- ``STREAM.created``: creation time of the stream that the sequence is a position in. A checkpoint of an earlier release
  has none; it adopts the present stream.
- ``STREAM.id``: identity of the stream in message ids, where it does not follow from the creation time: "" for a
  checkpoint that has adopted its stream, and keeps ids without one.
- ``STREAM.time``: when the message before the sequence was stored, in microseconds since 1970, if that is known.

Of Kafka it is the one of `turnout.runtime.kafka.source.KafkaOffsets`. With open splits it has ``:open``, the number of
the first, and ``:splits``, how many there are; their numbers follow each other.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from turnout.base.startup import freeze_gc
from turnout.base.untrusted import JsonMapping, JsonObject, is_whole
from turnout.engine.counts import Counts
from turnout.nats.protocol.positions import Position, StreamIdentity
from turnout.records.types import DynamicValue
from turnout.runtime.open_splits import position_after
from turnout.traces.spans import SpanContext


def encoded(value: object) -> str:
    """Return an object as one text."""
    return base64.b64encode(pickle.dumps(value)).decode()


def decoded(text: str) -> DynamicValue:
    """Inverse of `encoded`."""
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - of the same application


_MIN_SPLIT_RECORDS: Final = 10_000
"""A task costs more than reading fewer records takes."""


def even_spans(start: int, end: int, max_spans: int) -> list[tuple[int, int]]:
    """Return the spans of a range as pairs of begin and end (exclusive); none for an empty range.

    The same arguments give the same spans, so a repeated micro-batch can be divided in the same way.

    Args:
        start: first number.
        end: number behind the last one.
        max_spans: spans at most; there are fewer where a span would have less than 10,000 numbers.

    >>> even_spans(10, 30_010, 2)
    [(10, 15010), (15010, 30010)]
    >>> even_spans(10, 19_000, 2)
    [(10, 19000)]
    """
    length = end - start
    if length <= 0:
        return []
    count = max(1, min(max_spans, length // _MIN_SPLIT_RECORDS))
    return list(pairwise(start + length * index // count for index in range(count + 1)))


def shares(lengths: Mapping[str, int], tasks: int) -> dict[str, int]:
    """Return how many of some tasks each range gets: by its part of all records, at least one.

    >>> shares({"ORDERS": 900_000, "PRICES": 300_000, "NEWS": 0}, 8)
    {'ORDERS': 6, 'PRICES': 2, 'NEWS': 1}
    """
    total = sum(max(0, length) for length in lengths.values())
    return {name: max(1, tasks * max(0, length) // max(1, total)) for name, length in lengths.items()}


SPLIT_COLUMNS: Final = "split binary"
"""The column of a source whose rows are splits: how to read one, and which, pickled together."""

_ROW = pa.schema([pa.field("split", pa.binary())])


class RecordReader(Protocol):
    """Reader of one split, to be used once.

    Attributes:
        revision: revision of the subscriptions that its records are matched with; None where there are none.
        not_read: once all is read, how many records of the range, counted here, were left unread.
        stream: stream of the records, or ``topic:partition``; "" where there is no range.
        start: the first sequence or offset.
        end: that behind the last.
    """

    revision: int | None
    not_read: int
    stream: str
    start: int
    end: int

    def batches_with_stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, with a column ``stream`` if they are from one."""


def task_rows(options: object, split: object | None, stage: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task: the split as a row, or the counts of the stage that reads and publishes it.

    Args:
        options: how the source is read.
        split: split of the task; None for one with nothing to read.
        stage: encoded `turnout.spark.stage.SparkStage` of a route that publishes; None for a next stage that reads.
    """
    rows = [] if split is None else [split_row(options, split)]
    if stage is None:
        freeze_gc()
        yield from rows
    else:
        yield from decoded(stage).publish(rows)


SplitOf: TypeAlias = tuple[DynamicValue, DynamicValue]
"""A split behind the options of its source, both of classes of the source's format."""


def split_row(options: object, split: object) -> pa.RecordBatch:
    """Return a split as a row, with how to read its source."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps((options, split))], pa.binary())], schema=_ROW)


def splits_of(rows: pa.RecordBatch) -> Iterator[SplitOf]:
    """Yield the splits of some rows, each behind the options of its source."""
    for pickled in rows.column(0).to_pylist():
        options, split = pickle.loads(pickled)  # noqa: S301 - what `split_row` has written, in a task of this query
        yield options, split


def open_split_of(rows: pa.RecordBatch) -> SplitOf | None:
    """Return the open split of rows that have one only, behind the options of its source; None without one."""
    return next(((options, part) for options, part in splits_of(rows) if hasattr(part, "opens")), None)


def readers_of(rows: pa.RecordBatch) -> Iterator[RecordReader]:
    """Yield a reader for each split of some rows."""
    for options, split in splits_of(rows):
        yield split.reader(options)


def records_of(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of the splits of some rows, each with its stream; revisions are left out."""
    for reader in readers_of(rows):
        yield from reader.batches_with_stream()


NatsOffset: TypeAlias = JsonObject
"""Next sequence of each stream, and the keys above; the content of a checkpoint."""

_OPEN_SUFFIX: Final = ".open"
_BEGIN_SUFFIX: Final = ".from"
_CREATED_SUFFIX: Final = ".created"
_ID_SUFFIX: Final = ".id"
_TIME_SUFFIX: Final = ".time"

WARNING: Final = ".warning"
"""End of a key in the latest offset of a query's progress, after the name of a stream: a loss was stepped over."""

LARGE_BACKLOG: Final = 50_000
"""With more records than this to catch up with, micro-batches have an end: they cost less by record."""

_SMALL_BACKLOG: Final = 10_000


def identity_in(offset: JsonMapping, stream: str) -> StreamIdentity | None:
    """Return the identity of a stream that an offset has; None in one of an earlier release."""
    created = offset.get(f"{stream}{_CREATED_SUFFIX}")
    if not isinstance(created, str):
        return None
    token = offset.get(f"{stream}{_ID_SUFFIX}")
    return StreamIdentity(created, token) if isinstance(token, str) else StreamIdentity.of(created)


def identities_in(offset: JsonMapping) -> dict[str, StreamIdentity]:
    """Return the identities of streams that an offset has, by stream."""
    streams = [name.removesuffix(_CREATED_SUFFIX) for name in offset if name.endswith(_CREATED_SUFFIX)]
    found = {stream: identity_in(offset, stream) for stream in streams}
    return {stream: identity for stream, identity in found.items() if identity is not None}


def time_in(offset: JsonMapping, stream: str) -> int | None:
    """Return when the message before the sequence of an offset was stored; None if it does not say so."""
    time = offset.get(f"{stream}{_TIME_SUFFIX}")
    return time if is_whole(time) else None


def position_keys(positions: Mapping[str, Position]) -> NatsOffset:
    """Return the keys of an offset with positions in streams, given by stream."""
    offset: NatsOffset = {}
    for stream, position in positions.items():
        identity = position.identity
        offset |= {stream: position.next, f"{stream}{_CREATED_SUFFIX}": identity.created}
        if identity != StreamIdentity.of(identity.created):
            offset[f"{stream}{_ID_SUFFIX}"] = identity.token
        if position.time is not None:
            offset[f"{stream}{_TIME_SUFFIX}"] = position.time
    return offset


def number_in(offset: JsonMapping, stream: str | None = None) -> int | None:
    """Return the number of the first open split in an offset, or of a stream's; None if there is none."""
    numbers = open_numbers(offset)
    return next(iter(numbers.values()), None) if stream is None else numbers.get(stream)


def open_numbers(offset: JsonMapping) -> dict[str, int]:
    """Return the numbers of the open splits in an offset, by stream; those of Kafka's partitions by index."""
    first, count = offset.get(OPEN), offset.get(SPLITS)
    if is_whole(first):
        return {f":{index}": first + index for index in range(count if is_whole(count) else 1)}
    return _with_suffix(offset, _OPEN_SUFFIX)


def begins(offset: JsonMapping) -> dict[str, int]:
    """Return the first sequences of a micro-batch that its offset records, by stream."""
    return _with_suffix(offset, _BEGIN_SUFFIX)


def begin_keys(starts: Mapping[str, Position]) -> NatsOffset:
    """Return the keys of an offset that record where its micro-batch begins, given by stream."""
    return {f"{stream}{_BEGIN_SUFFIX}": position.next for stream, position in starts.items()}


def _with_suffix(offset: JsonMapping, suffix: str) -> dict[str, int]:
    return {name.removesuffix(suffix): number for name, number in offset.items() if name.endswith(suffix)}


def opened(starts: Mapping[str, Position], number: int) -> NatsOffset:
    """Return the offset of an open split that begins at *starts*."""
    return position_keys(starts) | {f"{stream}{_OPEN_SUFFIX}": number for stream in starts}


def closed(offset: NatsOffset, starts: Mapping[str, Position]) -> NatsOffset:
    """Return the offset with which a bounded micro-batch follows; *offset* unchanged if it has no open split.

    Args:
        offset: the last one.
        starts: where the next micro-batch begins, by stream.
    """
    if number_in(offset) is None:
        return offset
    return position_keys(starts) | begin_keys(starts)


class Backlog:
    """Choice between open splits and micro-batches with an end, with hysteresis."""

    def __init__(self) -> None:
        self._large = False

    def is_large(self, records: int) -> bool:
        """Return True from the moment that more than 50,000 records wait until there are no more than 10,000."""
        self._large = records > (_SMALL_BACKLOG if self._large else LARGE_BACKLOG)
        return self._large


REVISION: Final = "subscriptions.revision"
"""Key of an offset with the revision of the subscriptions that its micro-batch is matched with."""


TOPIC_IDS: Final = ":ids"
"""Key of an offset with the ids of Kafka's topics."""

OPEN: Final = ":open"
"""Key of an offset with the number of the first open split of Kafka's partitions."""

SPLITS: Final = ":splits"
"""Key of an offset with the number of tasks that its micro-batch was planned for."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Committed offsets of a route.

    Attributes:
        batch: the last micro-batch that is done; None where none is.
        next: next sequence by stream, next offset by topic and partition.
        identities: identity of each stream, as far as the offset has it.
        topic_ids: likewise the id of each topic.
    """

    batch: int | None
    next: dict[str, object]
    identities: dict[str, StreamIdentity] = field(default_factory=dict, compare=False)
    topic_ids: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def by_stream(self) -> dict[str, object]:
        """Next sequence by stream, next offset by ``topic:partition``."""
        positions: dict[str, object] = {}
        for name, value in self.next.items():
            if isinstance(value, dict):
                positions |= {f"{name}:{number}": offset for number, offset in value.items()}
            else:
                positions[name] = value
        return positions

    @property
    def identity_texts(self) -> dict[str, str]:
        """Text that distinguishes each stream or topic from others of its name, as far as that is known."""
        return {name: identity.created for name, identity in self.identities.items()} | self.topic_ids

    def label(self, stream: str) -> str:
        """Return a stream with its identity if it is known, as origins and the matches of feeds have it."""
        identity = self.identities.get(stream)
        return stream if identity is None else identity.label(stream)

    def sequence(self, stream: str) -> int:
        """Return the next sequence of a stream, or the offset of a ``topic:partition``; 0 if none is committed."""
        topic, colon, partition = stream.rpartition(":")
        offsets = self.next.get(topic) if colon else None
        following = offsets.get(partition, 0) if isinstance(offsets, dict) else self.next.get(stream, 0)
        return following if isinstance(following, int) else 0


def committed(checkpoint: Path) -> Offsets:
    """Return the offsets committed in the checkpoint, and recorded of an open split; none without a checkpoint."""
    batches = numbers_in(checkpoint / "commits")
    while batches:
        batch = batches.pop()
        position = planned_end(checkpoint, batch)
        if position is None:
            continue
        # Names beside the streams have a dot, which no NATS stream's name has; those beside Kafka's topics a colon.
        # A topic may have a dot too, and its offsets are by partition.
        names = [name for name in position if ":" not in name and ("." not in name or isinstance(position[name], dict))]
        following = {name: position[name] for name in names}
        later = _under_way(checkpoint, batch + 1)
        reached = _merged(_merged(following, _recorded(checkpoint, position)), later)
        ids = _topic_ids(position) | (_topic_ids(planned_end(checkpoint, batch + 1) or {}) if later else {})
        return Offsets(batch, reached, identities_in(position), ids)
    first = planned_end(checkpoint, 0) or {}
    return Offsets(None, _under_way(checkpoint, 0), identities_in(first), _topic_ids(first))


def planned_end(checkpoint: Path, batch: int) -> dict[str, object] | None:
    """Return the offset that a micro-batch was planned to; None if it cannot be read."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        position = json.loads(lines[2])
    except (OSError, IndexError, ValueError):
        return None
    return position if isinstance(position, dict) else None


def _under_way(checkpoint: Path, batch: int) -> dict[str, object]:
    """Return the records of an uncommitted micro-batch; only open splits have them."""
    return _recorded(checkpoint, planned_end(checkpoint, batch) or {})


def _recorded(checkpoint: Path, position: Mapping[str, object]) -> dict[str, object]:
    """Return the position that the open splits in an offset have reached, by stream, or by topic and partition."""
    numbers = {name: number for name, number in position.items() if is_whole(number)}
    reached: dict[str, object] = {}
    for stream, number in open_numbers(numbers).items():
        found = position_after(checkpoint, number)
        if isinstance(found, dict):
            reached = _merged(reached, {topic: at for topic, at in found.items() if ":" not in topic})
        elif found is not None:
            reached[stream] = found
    return reached


def _merged(positions: Mapping[str, object], newer: Mapping[str, object]) -> dict[str, object]:
    """Return positions with those that are newer, of Kafka's topics by partition."""
    merged = dict(positions)
    for name, value in newer.items():
        before = merged.get(name)
        merged[name] = before | value if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _topic_ids(position: Mapping[str, object]) -> dict[str, str]:
    ids = position.get(TOPIC_IDS)
    return {name: str(id_) for name, id_ in ids.items()} if isinstance(ids, dict) else {}


def numbers_in(folder: Path) -> list[int]:
    """Return the numbers that files of a folder are named by, ascending; none without the folder."""
    try:
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())
    except OSError:
        return []


class StartupStep(StrEnum):
    """Step of a run before its first micro-batch, in the words that show it."""

    SERVERS = "asking the servers and the store"
    LOOPS = "compiling, once"
    SESSION = "starting Spark: the JVM and its session"
    SUBSCRIPTIONS = "reading the subscriptions"
    FIRST_BATCH = "waiting for Spark's workers and the first records"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run after a micro-batch.

    Attributes:
        batch: the number of the micro-batch, as in the checkpoint.
        counts: everything since the run began.
        seconds: since the first micro-batch began.
        batch_seconds: duration of the last micro-batch, from the first record to the last acknowledgement.
        revision: revision of the subscriptions that it was matched with; None without subscriptions.
        subscriptions: how many there are; None without subscriptions.
        context: context of the micro-batch's span; None without one.
    """

    batch: int
    counts: Counts
    seconds: float
    batch_seconds: float
    revision: int | None
    subscriptions: int | None = None
    context: SpanContext | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run.

    Attributes:
        counts: outcomes of the records.
        batches: how many micro-batches were run.
        seconds: from the first micro-batch's beginning to the end of the last.
        stopped: the run was stopped on request; it can continue from its checkpoint.
    """

    counts: Counts
    batches: int
    seconds: float
    stopped: bool = False

    @property
    def records_per_second(self) -> float:
        """Records read per second of work; 0 if no work was done."""
        return self.counts.read / self.seconds if self.seconds else 0.0
