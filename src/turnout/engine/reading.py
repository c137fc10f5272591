"""Record batch from a source to a batch of the engine: keys and values decoded, headers parsed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Self, SupportsIndex, TypeAlias, cast

import numpy as np
import pyarrow as pa

from turnout.base.clocks import Milliseconds
from turnout.codecs import Codec
from turnout.codecs.codec import Decoded, as_record_codec
from turnout.codecs.json_writing import encode_json
from turnout.engine.messages import is_reserved, without_reserved
from turnout.errors import RecordError, TurnoutError
from turnout.nats.protocol.headers import key_of_header
from turnout.records import Batch, Failure, Headers, Positions
from turnout.records.batch import ListedRecords, as_batch
from turnout.records.block import rows_of
from turnout.records.headers import as_type
from turnout.records.spans import MAX_LISTED_VALUES, ArrowBytes
from turnout.records.types import ArrowArray, ArrowBatch, DynamicValue, NewColumn
from turnout.routes.endpoints import Source

AT_ONCE: Final = 5_000
"""At most so many records: with 10,000 and more the same steps find their values in no cache and take up to twice as
long. The fixed work of a batch equals that of 200 records, so it matters for small batches (measured)."""

UNREAD: Final = "TASK_POLL"
"""Connect's name for the stage in which a source reads: what fails there is no record, but a line or a file."""

Errors: TypeAlias = Mapping[int, RecordError]
"""Row → why it cannot be read."""

_OF_BYTES: Final = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view())
"""Types of keys and values that are bytes for a codec."""

_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""Arrow time units per millisecond."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """The records as they were read, for dead letters, logs and draws.

    Attributes:
        source: the record batch, or a few records.
        topics: topics of the records.
        keys: their bytes.
        values: their bytes.
        reserved_headers: how many headers with reserved names they brought; they are in none of the above.
    """

    source: ArrowBatch | ListedRecords
    topics: list[str | None]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    reserved_headers: int = 0

    @property
    def batch(self) -> ArrowBatch:
        """The record batch."""
        return as_batch(self.source)


def pieces(batch: ArrowBatch | ListedRecords) -> Iterator[ArrowBatch | ListedRecords]:
    """A record batch in parts of equal size, of at most `AT_ONCE` records, without copying.

    >>> import pyarrow as pa
    >>> batch = pa.RecordBatch.from_pydict({"n": range(AT_ONCE + 2)})
    >>> [piece.num_rows for piece in pieces(batch)]
    [2501, 2501]
    """
    if isinstance(batch, ListedRecords):
        yield batch
        return
    size = ceil(batch.num_rows / ceil(batch.num_rows / AT_ONCE)) if batch.num_rows else 1
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


@dataclass(frozen=True, slots=True)
class SourceRules:
    """Rules for records of a source that has no nulls or keys of its own.

    Attributes:
        empty_is_null: whether an empty value is a null.
        key_header: name of the header with the key; None where records have their keys.
    """

    empty_is_null: bool = False
    key_header: str | None = None

    @classmethod
    def of(cls, source: Source, value: Codec) -> Self:
        """Return the rules of a route's source, whose values are decoded by *value*."""
        if source.has_nulls:
            return cls(False, source.key_of_header)
        asked = source.empty_is_null
        if not _takes_empty(value):
            return cls(True, source.key_of_header)
        # An empty text may be a null or a value; of other formats, such as a Protobuf message, it is a value.
        return cls((value.format in _TEXTS) if asked is None else asked, source.key_of_header)


_NO_RULES: Final = SourceRules()
_TEXTS: Final = ("raw", "string", "bytes")


def _takes_empty(codec: Codec) -> bool:
    """Return True if zero bytes are a value of a format."""
    if codec.format in _TEXTS:
        return True
    try:
        blocks, errors = codec.decode(rows_of(1), [b""])
    except (TurnoutError, ValueError):
        return False
    return not errors and all(block.kind != "null" for block in blocks)


def batch_of(
    batch: ArrowBatch | ListedRecords, key: Codec, value: Codec, rules: SourceRules = _NO_RULES
) -> tuple[Batch, Consumed]:
    """Decode a record batch; undecodable records are set aside, and reserved headers are removed.

    Args:
        batch: with the columns of a record: topic, partition, offset, key, value, headers, timestamp; those but
            topic and value may be missing. ``problem`` beside them is why the source could not read a record.
        key: how keys are decoded.
        value: how values are decoded.
        rules: rules of the source.
    """
    if isinstance(batch, ListedRecords):
        if rules.key_header is None and not any(is_reserved(name) for pairs in batch.headers for name, _ in pairs):
            return _batch_of_listed(batch, key, value, rules)
        batch = batch.batch
    batch, reserved = without_reserved(batch)
    count = batch.num_rows
    rows = rows_of(count)
    headers = Headers.of_arrow(batch.column("headers")) if "headers" in batch.schema.names else Headers(count)
    own_keys: Sequence[bytes | None] = contents(batch, "key", key)
    own_values: Sequence[bytes | None] = contents(batch, "value", value)
    own_values = own_values if isinstance(own_values, TypedValues) else _nulled(own_values, rules)
    if rules.key_header is not None:
        texts = headers.last_bytes(rules.key_header) or [None] * count
        own_keys = [None if text is None else key_of_header(text) for text in texts]
        headers.drop([rules.key_header], rows)
    consumed = Consumed(batch, _list(batch, "topic"), own_keys, own_values, reserved)
    # A failed key is not looked into any further, and neither is the value beside it.
    keys, wrong_keys = _side(key, rows, own_keys, headers)
    values, wrong_values = _side(value, rows, own_values, headers)
    records = Batch(
        list(consumed.topics),
        _list(batch, "partition"),
        _list(batch, "offset"),
        _millis(batch),
        keys,
        values,
        headers,
    )
    _fail(records, key, wrong_keys, value, wrong_values)
    records.fail(_unread(batch))
    return records, consumed


def _nulled(values: Sequence[bytes | None], rules: SourceRules) -> Sequence[bytes | None]:
    """Return values with a null for each empty one, where that is the rule."""
    if rules.empty_is_null and b"" in values:
        return [value or None for value in values]
    return values


def _batch_of_listed(listed: ListedRecords, key: Codec, value: Codec, rules: SourceRules) -> tuple[Batch, Consumed]:
    """Decode a few records without reserved headers."""
    own_values = _nulled(listed.values, rules)
    consumed = Consumed(listed, list(listed.topics), listed.keys, own_values)
    rows, headers = rows_of(listed.num_rows), Headers.of_pairs(listed.headers)
    keys, wrong_keys = _decoded(key, rows, listed.keys, headers)
    values, wrong_values = _decoded(value, rows, own_values, headers)
    millis = cast("list[Milliseconds | None]", [None if time is None else time // 1000 for time in listed.times])
    records = Batch(list(listed.topics), list(listed.partitions), listed.offsets, millis, keys, values, headers)
    _fail(records, key, wrong_keys, value, wrong_values)
    return records, consumed


def _fail(records: Batch, key: Codec, wrong_keys: Errors, value: Codec, wrong_values: Errors) -> None:
    """Set records aside whose key or value cannot be read."""
    if not wrong_keys and not wrong_values:
        return
    failures = {row: Failure.of(error, "VALUE_CONVERTER", value.class_name) for row, error in wrong_values.items()}
    failures |= {row: Failure.of(error, "KEY_CONVERTER", key.class_name) for row, error in wrong_keys.items()}
    records.fail(failures)


class TypedValues(Sequence["bytes | None"]):
    """Values of a table, whose bytes are made where they are asked for: those of dead letters and of the log.

    Args:
        column: Arrow array of a type that is not bytes or text.
        name: ``key`` or ``value``.
        codec: codec of the bytes.
    """

    def __init__(self, column: ArrowArray, name: str, codec: Codec) -> None:
        self._column, self._name, self._codec = column, name, codec

    def blocks(self) -> Decoded:
        """Return the values.

        Raises:
            RecordError: Connect has no type for them.
        """
        from turnout.codecs.arrow_columns import arrow_blocks

        return arrow_blocks(self._column, self._name)

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: SupportsIndex | slice) -> DynamicValue:
        # A block of its own for each: few are asked for.
        blocks, errors = TypedValues(self._column.slice(index, 1), self._name, self._codec).blocks()
        for block in () if errors else blocks:
            try:
                return self._codec.encode(block)[0]
            except TurnoutError:
                return encode_json(block)[0][0]
        return None


def _side(codec: Codec, rows: Positions, texts: Sequence[bytes | None], headers: Headers) -> Decoded:
    return texts.blocks() if isinstance(texts, TypedValues) else _decoded(codec, rows, texts, headers)


def _decoded(codec: Codec, rows: Positions, texts: Sequence[bytes | None], headers: Headers) -> Decoded:
    own = as_record_codec(codec)
    ids = None if own is None else headers.last_bytes(own.header)
    if own is None or ids is None:
        return codec.decode(rows, texts)
    return own.decode_with(rows, texts, ids)


def _unread(batch: ArrowBatch) -> dict[int, Failure]:
    """Return the rows that are no records, as their source could not read them, each with the reason."""
    if "problem" not in batch.schema.names or batch.column("problem").null_count == batch.num_rows:
        return {}
    problems = enumerate(batch.column("problem").to_pylist())
    return {row: Failure.of(RecordError(one), UNREAD, "turnout.source") for row, one in problems if one is not None}


def _list(batch: ArrowBatch, name: str) -> NewColumn:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if column.null_count == 0 and pa.types.is_integer(column.type):
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def contents(batch: ArrowBatch, name: str, codec: Codec) -> Sequence[bytes | None]:
    """A column of bytes or of text, as bytes; of another type, as typed values."""
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if column.null_count == batch.num_rows:
        return [None] * batch.num_rows
    if column.type not in _OF_BYTES:
        return TypedValues(column, name, codec)
    column = as_type(column, pa.binary())
    is_listed = column.null_count > 0 or len(column) <= MAX_LISTED_VALUES
    return column.to_pylist() if is_listed else ArrowBytes(column)


def _millis(batch: ArrowBatch) -> list[Milliseconds | None]:
    """Return timestamps as milliseconds since 1970, rounded down also before 1970, as in Java."""
    if "timestamp" not in batch.schema.names or batch.column("timestamp").null_count == batch.num_rows:
        return [None] * batch.num_rows
    column = batch.column("timestamp")
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if column.type.unit == "s":
        column = column.cast(pa.timestamp("ms", tz=column.type.tz))
    numbers = column.view(pa.int64())
    filled = numbers.fill_null(0) if column.null_count else numbers
    millis = np.floor_divide(filled.to_numpy(), _PER_MILLI[column.type.unit]).tolist()
    if column.null_count:
        return [None if missing else milli for milli, missing in zip(millis, column.is_null().to_pylist(), strict=True)]
    return millis  # type: ignore[no-any-return]
