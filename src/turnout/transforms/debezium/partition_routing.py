"""PartitionRouting: the partition of a change event by fields of it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import ClassVar, Final

from turnout.base.untrusted import JsonObject
from turnout.errors import RecordError
from turnout.records import Batch, BigInt, Block, Float32, Int8, Int16, Int32, Moment, Positions, Schema
from turnout.records.types import DynamicValue, NewColumn, Value
from turnout.transforms.base import Errors, NamedField, Side, Transform, change_rows
from turnout.transforms.debezium.extract_new_record_state import PACKAGE, is_envelope
from turnout.transforms.fields import NULL_POINTER, default_value
from turnout.transforms.java.values import hash_code
from turnout.transforms.options import INT, LIST, STRING, Option, names, one_of

_UNPROCESSABLE: Final = "io.debezium.DebeziumException"
_CHANGE: Final = "change"
_INT: Final = 0xFFFFFFFF
_LONG: Final = (1 << 64) - 1
_ABSENT: Final = object()


def _positive(value: int | None) -> str | None:
    return None if value is not None and value > 0 else "expected a number above 0"


@dataclass(frozen=True, slots=True)
class PartitionRouting(Transform):
    """See ``summary``. Debezium's transform; other records than change events are unchanged."""

    summary: ClassVar[str] = "Sets the partition of change events by a hash of fields: `change.region`, `source.table`."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "partitions.PartitionRouting",)
    sided: ClassVar[bool] = False
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    sets_partition: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "partition.payload.fields",
            LIST,
            "The fields; `change` is the new row, of a deletion the old one. One that is missing is left out.",
            check=names,
        ),
        Option("partition.topic.num", INT, "The number of the topic's partitions.", check=_positive),
        Option(
            "partition.hash.function",
            STRING,
            "The hash of each field: Java's, or MurmurHash3.",
            default="java",
            check=one_of("java", "murmur", any_case=True),
            valid="java, murmur",
        ),
    )

    partition_payload_fields: tuple[str, ...] = ()
    partition_topic_num: int = 1
    partition_hash_function: str = "java"

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE,)

    def named_fields(self) -> Iterator[NamedField]:
        """Yield the fields but for those of `change`, which is either row."""
        for path in self._paths():
            if path[0] != _CHANGE:
                yield NamedField("partition.payload.fields", Side.VALUE, path)

    def _paths(self) -> list[tuple[str, ...]]:
        return [tuple(map(str.strip, text.split("."))) for text in self.partition_payload_fields]

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Set the partitions of these rows."""
        errors: Errors = {}
        partitions: NewColumn = list(batch.partitions)
        paths = self._paths()
        hash_of = java_hash if self.partition_hash_function.lower() == "java" else murmur_hash

        def examine(block: Block, wrong: Errors) -> Block:
            if is_envelope(block):
                for index, event in enumerate(block.whole()):
                    row = int(block.rows[index])
                    try:
                        found = self._partition(event, block.schema, paths, hash_of)
                        partitions[row] = partitions[row] if found is None else found
                    except RecordError as error:
                        wrong[index] = error
            return block

        change_rows(batch.value, rows, errors, examine)
        batch.partitions = partitions
        return errors

    def _partition(
        self,
        event: JsonObject,
        schema: Schema | None,
        paths: Sequence[tuple[str, ...]],
        hash_of: Callable[[Value, Schema | None], int],
    ) -> int | None:
        if event.get("op") in ("t", "m"):
            return None
        found = [_at(event, schema, path) for path in paths]
        values = [(value, inner) for value, inner in found if value is not None and value is not _ABSENT]
        if not values:
            return None
        total = sum(hash_of(value, inner) for value, inner in values) & 0x7FFFFFFF
        return (0 if total == 0x7FFFFFFF else total) % self.partition_topic_num


def _at(event: DynamicValue, schema: Schema | None, path: Sequence[str]) -> tuple[DynamicValue, Schema | None]:
    """Return the value at a path with its schema.

    Raises:
        RecordError: an object on the way is null.
    """
    value, inner = event, schema
    for step in path:
        if value is None:
            raise RecordError(f"{'.'.join(path)} is inside of a null", NULL_POINTER)
        name = ("before" if event.get("op") == "d" else "after") if step == _CHANGE and len(path) > 1 else step
        if not isinstance(value, dict) or (name not in value and (inner is None or inner.field(name) is None)):
            return _ABSENT, None
        value, inner = value.get(name), None if inner is None else inner.field(name)
        if value is None and inner is not None:
            value = default_value(inner)
    return value, inner


def java_hash(value: Value, schema: Schema | None = None) -> int:
    """Return the ``hashCode`` of a value, without its sign.

    Raises:
        RecordError: it is of a class whose hash differs from run to run.
    """
    kind = "" if schema is None else schema.type
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, str):
        return hash_code(value)
    if isinstance(value, BigInt):
        return _of_big(int(value))
    if isinstance(value, Moment):
        return _folded(int(value))
    if isinstance(value, int):
        short = kind in ("int8", "int16", "int32") or isinstance(value, Int8 | Int16 | Int32)
        return int(value) & _INT if short else _folded(value)
    if isinstance(value, float):
        if kind == "float32" or isinstance(value, Float32):
            return _bits(">f", ">I", value, 0x7FC00000)
        bits = _bits(">d", ">Q", value, 0x7FF8000000000000)
        return (bits ^ bits >> 32) & _INT
    if isinstance(value, Decimal) and value.is_finite():
        sign, digits, exponent = value.as_tuple()
        unscaled = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
        return (31 * _of_big(unscaled) - int(exponent)) & _INT
    found = "bytes" if isinstance(value, bytes) else type(value).__name__
    raise RecordError(f"expected texts, numbers and booleans to choose the partition by, found {found}", _UNPROCESSABLE)


def _folded(number: int) -> int:
    bits = number & _LONG
    return (bits ^ bits >> 32) & _INT


def _bits(write: str, read: str, value: float, nan: int) -> int:
    bits: int = nan if value != value else struct.unpack(read, struct.pack(write, value))[0]
    return bits


def _of_big(number: int) -> int:
    """Return the hash of a BigInteger."""
    size = -(-abs(number).bit_length() // 32) * 4
    words = struct.unpack(f">{size // 4}I", abs(number).to_bytes(size, "big"))
    code = reduce(lambda found, word: (31 * found + word) & _INT, words, 0)
    return (-code if number < 0 else code) & _INT


def murmur_hash(value: Value, schema: Schema | None = None) -> int:
    """Return Debezium's MurmurHash3 of a value, without its sign: of a text, else of its Java hash.

    Raises:
        RecordError: see `java_hash`.
    """
    if isinstance(value, str):
        # Half of a surrogate pair is a question mark in Debezium as well.
        return _murmur(value.encode("utf-8", "replace"))
    return _murmur(struct.pack("<I", java_hash(value, schema)))


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _LONG


def _mixed(k: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        k = (k ^ k >> 33) * factor & _LONG
    return k ^ k >> 33


def _murmur(data: bytes) -> int:
    """Return the upper half of the hash: MurmurHash3 of an early draft, whose last bytes are signed."""
    h1, h2 = 0x9368E53C2F6AF274 ^ 9001, 0x586DCD208F7CD3FD ^ 9001
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    full = len(data) // 16
    blocks: list[tuple[int, int]] = [struct.unpack_from("<QQ", data, 16 * at) for at in range(full)]
    tail = data[16 * full :]
    if tail:
        signed = [byte - 256 if byte > 127 else byte for byte in tail]
        words = [
            reduce(lambda word, pair: word ^ (pair[1] << 8 * pair[0]) & _LONG, enumerate(half), 0)
            for half in (signed[:8], signed[8:])
        ]
        blocks.append((words[0], words[1]))
    for k1, k2 in blocks:
        h1 = h1 ^ _rotated(k1 * c1 & _LONG, 23) * c2 & _LONG
        h1 = h1 + h2 & _LONG
        h2 = _rotated(h2, 41)
        h2 = h2 ^ _rotated(k2 * c2 & _LONG, 23) * c1 & _LONG
        h2 = h2 + h1 & _LONG
        h1 = h1 * 3 + 0x52DCE729 & _LONG
        h2 = h2 * 3 + 0x38495AB5 & _LONG
        c1 = c1 * 5 + 0x7B7D159C & _LONG
        c2 = c2 * 5 + 0x6BCE6396 & _LONG
    h2 ^= len(data)
    h1 = h1 + h2 & _LONG
    h2 = h2 + h1 & _LONG
    h1, h2 = _mixed(h1), _mixed(h2)
    return (h1 + h2 & _LONG) >> 32
