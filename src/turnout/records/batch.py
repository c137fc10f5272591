"""Records under way together, as parallel columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from turnout.base.clocks import Milliseconds
from turnout.base.startup import np
from turnout.errors import RecordError
from turnout.records.block import Block, Positions, columns_of, rows_of, taking, types_of
from turnout.records.headers import Header, Headers
from turnout.records.schema import Schema, exact
from turnout.records.types import ArrowBatch, Column, DynamicValue, NewColumn, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray


_Members: TypeAlias = tuple[list[int], NewColumn]
"""Indices of values, and the values."""

_PLAIN: Final = "plain"


def group(rows: Positions, schema: Schema | None, values: Iterable[Value], *, checked: bool = True) -> list[Block]:
    """Return whole values as blocks: objects by their shape, nulls, and all others together.

    Args:
        rows: rows of the values in the batch.
        schema: schema of all values. With one, a dict is an object only where the schema is a struct.
        values: the values.
        checked: whether they are known to fit the schema.

    >>> blocks = group(np.arange(4), None, [{"a": 1}, "text", {"a": 2}, None])
    >>> [(block.kind, block.rows.tolist()) for block in blocks]
    [('object', [0, 2]), ('plain', [1]), ('null', [3])]
    """
    objects = schema is None or schema.type == "struct"
    groups: dict[object, _Members] = {}
    values = values if isinstance(values, list) else list(values)
    for index, value in enumerate(values):
        if value is None:
            key: object = None
        elif objects and type(value) is dict:
            key = tuple(value)
        else:
            key = _PLAIN
        members = groups.get(key)
        if members is None:
            groups[key] = ([index], [value])
        else:
            members[0].append(index)
            members[1].append(value)
    blocks: list[Block] = []
    for key, (indices, content) in _split_by_type(groups):
        group_rows = rows if len(indices) == len(rows) else rows[np.array(indices, np.intp)]
        if key is None:
            block = Block(group_rows, schema, checked=checked)
        elif key is _PLAIN:
            block = Block(group_rows, schema, values=content, checked=checked)
        else:
            block = Block.closed(group_rows, schema, content, columns_of, checked=checked)
        blocks.append(block)
    return blocks


def _split_by_type(groups: dict[object, _Members]) -> Iterator[tuple[object, _Members]]:
    """Separate objects whose names are equal in Python but not in Connect."""
    for key, (indices, members) in groups.items():
        if type(key) is not tuple or not types_of(key):
            yield key, (indices, members)
            continue
        by_type: dict[tuple[type, ...], _Members] = {}
        for index, member in zip(indices, members, strict=True):
            alike = by_type.setdefault(types_of(tuple(member)), ([], []))
            alike[0].append(index)
            alike[1].append(member)
        for alike in by_type.values():
            yield key, alike


ALIVE: Final = 0
FILTERED: Final = 1
FAILED: Final = 2


@dataclass(frozen=True, slots=True)
class Record:
    """Single record, for programs with only a few.

    Attributes:
        key: plain Python, see `turnout.records.schema`; a struct is a dict with every field in the schema's order.
        offset: None for a source record, which has none.
        timestamp: milliseconds since 1970.
        key_schema: schema of the key; None for schemaless data.
        value_schema: schema of the value.

    >>> from turnout.transforms import Chain
    >>> properties = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "v"}
    >>> chain = Chain.from_config(properties)
    >>> [record.value for record in chain.apply([Record("t", 1), Record("t", None)])]
    [{'v': 1}, {'v': None}]
    """

    topic: str | None
    value: DynamicValue = None
    key: DynamicValue = None
    headers: Sequence[Header] = ()
    partition: int | None = 0
    offset: int | None = None
    timestamp: int | None = None
    key_schema: Schema | None = None
    value_schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Cause of a record's failure, in the terms of Connect's error reports.

    Attributes:
        stage: ``KEY_CONVERTER``, ``VALUE_CONVERTER``, ``TRANSFORMATION`` …
        class_name: the converter or transform that was at work.
        exception: the Java class that Connect would have thrown.
        message: the error's text.

    >>> from turnout.records import Record
    >>> from turnout.transforms import Chain
    >>> chain = Chain.from_config({"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "a:int8"})
    >>> (failure,) = chain.apply([Record("t", {"a": "many"})])
    >>> failure.stage, failure.message
    ('TRANSFORMATION', 'c: Value (many) was out of range for requested data type')
    """

    stage: str
    class_name: str
    exception: str
    message: str

    @classmethod
    def of(cls, error: RecordError, stage: str, class_name: str, message: str | None = None) -> Failure:
        """Return the failure for an error in a stage."""
        return cls(stage, class_name, error.exception, str(error) if message is None else message)


@dataclass(slots=True)
class Batch:
    """Records as columns; stages change it in place, and a record keeps its row to the end.

    `turnout.nats.jetstream.Batch` is another thing, the messages of one fetch.

    Attributes:
        topics: by row, as all lists here.
        partitions: null where a source record has none.
        offsets: None where the records are not yet in a topic (Connect's source records).
        timestamps: milliseconds since 1970.
        key: the keys of the records that are alive.
        value: their values.
        headers: headers of all records.
        failures: row → why it failed.
        decompressed: bytes that its records' contents have been decompressed to.
        has_overflow: True if a record failed because those before it are decompressed to all that a batch may have.
    """

    topics: list[str | None]
    partitions: Sequence[int | None]
    offsets: Sequence[int | None] | None
    timestamps: Sequence[Milliseconds | None]
    key: list[Block]
    value: list[Block]
    headers: Headers
    failures: dict[int, Failure] = field(default_factory=dict)
    decompressed: int = 0
    has_overflow: bool = False
    _outcomes: NDArray[np.int8] | None = field(init=False, default=None, repr=False, compare=False)
    _alive: Positions | None = field(init=False, default=None, repr=False, compare=False)

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> Batch:
        """Build a batch from single records, whose values are not known to fit their schemas."""
        has_offsets = any(record.offset is not None for record in records)
        return cls(
            [record.topic for record in records],
            [record.partition for record in records],
            [record.offset for record in records] if has_offsets else None,
            cast("list[Milliseconds | None]", [record.timestamp for record in records]),
            _blocks([(record.key_schema, exact(record.key)) for record in records]),
            _blocks([(record.value_schema, exact(record.value)) for record in records]),
            Headers.of_lists([record.headers for record in records]),
        )

    def __len__(self) -> int:
        return len(self.topics)

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """`ALIVE`, `FILTERED` or `FAILED`, by row."""
        if self._outcomes is None:
            self._outcomes = np.zeros(len(self.topics), np.int8)
        return self._outcomes

    @property
    def alive(self) -> Positions:
        """The rows of the records that are neither filtered nor failed; not to be changed in place."""
        if self._alive is None:
            nothing_ended = self._outcomes is None
            self._alive = rows_of(len(self)) if nothing_ended else np.flatnonzero(self.outcomes == ALIVE)
        return self._alive

    @property
    def alive_count(self) -> int:
        """Number of live records."""
        return len(self.alive)

    def filter(self, rows: Positions) -> None:
        """Drop these records."""
        if not len(rows):
            return
        self.outcomes[rows] = FILTERED
        self._purge()

    def fail(self, failures: Mapping[int, Failure]) -> None:
        """Set these records aside; of a record that has failed already the first failure counts."""
        if not failures:
            return
        for row, failure in failures.items():
            self.failures.setdefault(row, failure)
        self.outcomes[list(failures)] = FAILED
        self._purge()

    def _purge(self) -> None:
        """Drop the keys and values of records that are no longer alive."""
        self._alive = None
        for side in (self.key, self.value):
            for at, block in enumerate(side):
                side[at] = block.take(np.flatnonzero(self.outcomes[block.rows] == ALIVE))
            side[:] = [block for block in side if len(block)]

    def record(self, row: int) -> Record:
        """Return the current record of a row; key and value are null if it is no longer alive."""
        key_schema, key = _at(self.key, row)
        value_schema, value = _at(self.value, row)
        offset = None if self.offsets is None else self.offsets[row]
        return Record(
            self.topics[row], value, key, self.headers.of(row), self.partitions[row], offset, self.timestamps[row],
            key_schema, value_schema,
        )  # fmt: skip

    def by_row(self, column: Column, rows: Positions) -> Column:
        """Return the items of a column of this batch at these rows."""
        return column if len(rows) == len(self) else taking(rows, len(self))(column)

    def of_block(self, column: Column, block: Block) -> Column:
        """Return the items of a column of this batch at a block's rows."""
        return column if len(block) == len(self) else self.by_row(column, block.rows)


def _blocks(values: Sequence[tuple[Schema | None, Value]]) -> list[Block]:
    """Build blocks from single values, grouped by equal schemas."""
    together: list[tuple[Schema | None, list[int]]] = []
    for row, (schema, _) in enumerate(values):
        # Schemas may hold defaults that cannot be hashed; there are few of them.
        rows = next((rows for other, rows in together if other is schema or other == schema), None)
        if rows is None:
            together.append((schema, [row]))
        else:
            rows.append(row)
    all_rows = rows_of(len(values))
    return [
        block
        for schema, rows in together
        for block in group(
            all_rows if len(rows) == len(values) else np.array(rows, np.intp),
            schema,
            (values[row][1] for row in rows),
            checked=schema is None,
        )
    ]


def _at(side: Iterable[Block], row: int) -> tuple[Schema | None, Value]:
    for block in side:
        index = int(np.searchsorted(block.rows, row))
        if index < len(block) and block.rows[index] == row:
            return block.schema, block.take(np.array([index], np.intp)).whole()[0]
    return None, None


STREAM_ID: Final = "stream_id"
"""Column of a record batch with the stream and its identity, as origins begin: ``ORDERS.18ec3e1cf4bcb700``."""

TOPIC_ID: Final = "topic_id"
"""Column of a record batch with the id of a Kafka topic, which message ids end with; null for those without one."""

Pairs: TypeAlias = Sequence[tuple[str, "bytes | None"]]
"""Names and values of one record's headers, in order."""


class ListedRecords:
    """A few records; each Arrow array of their record batch takes as long as the work on some of them.

    Args:
        ids: by record, as all lists here: what ids of its messages begin with, see `turnout.engine.messages`.
        topics: their topics, or subjects.
        partitions: their partitions.
        offsets: offsets in them, or sequences in the stream.
        times: microseconds since 1970; None for a record without.
        keys: bytes of the keys.
        values: bytes of the values.
        headers: headers off the wire.
        make: makes the record batch of these records.
    """

    def __init__(
        self,
        ids: Sequence[str],
        topics: Sequence[str],
        partitions: Sequence[int],
        offsets: Sequence[int],
        times: Sequence[int | None],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Pairs],
        make: Callable[[], ArrowBatch],
    ) -> None:
        self.ids = ids
        self.topics = topics
        self.partitions = partitions
        self.offsets = offsets
        self.times = times
        self.keys = keys
        self.values = values
        self.headers = headers
        self._make = make

    @property
    def num_rows(self) -> int:
        """Number of records."""
        return len(self.topics)

    @cached_property
    def batch(self) -> ArrowBatch:
        """The records as a record batch."""
        return self._make()


def as_batch(records: ArrowBatch | ListedRecords) -> ArrowBatch:
    """Return the record batch of some records."""
    return records.batch if isinstance(records, ListedRecords) else records
