"""Kafka's converters of one plain value: numbers of fixed width, booleans, strings and bytes."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from turnout.base.options import Kind, Option
from turnout.base.startup import np
from turnout.base.terminal import plural
from turnout.codecs.codec import Codec, CodecKind, Decoded, ValueNotation, attempt, encode_each, with_tombstones
from turnout.codecs.json_writing import encode_json
from turnout.errors import RecordError
from turnout.records import Block, Float32, Int8, Int16, Int32, Positions, Schema, Struct
from turnout.records.text import text_of
from turnout.records.types import NewColumn, Value

_PACKAGE = "org.apache.kafka.connect.converters."
_OPTIONAL_BYTES = Schema("bytes", True)
_OPTIONAL_STRING = Schema("string", True)
_OPTIONAL_BOOLEAN = Schema("boolean", True)


@dataclass(frozen=True, slots=True)
class Number:
    """Formats ``short``, ``integer``, ``long``, ``float`` and ``double``: big-endian, of fixed width.

    Attributes:
        type: the Connect type.
        own: the class that a schemaless value of the type has.
        packed: how `struct` writes it.
    """

    format: str
    type: str
    own: Callable[[int], int] | Callable[[float], float]
    packed: struct.Struct

    @property
    def class_name(self) -> str:
        """Kafka's converter."""
        return f"{_PACKAGE}{self.format.capitalize()}Converter"

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._read, self.schema())

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        size = self.packed.size
        return _sized(
            rows,
            texts,
            self.schema(),
            size,
            lambda good: [number for (number,) in self.packed.iter_unpack(b"".join(good))],
        )

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        return encode_each(block, lambda value: self._write(value, block.schema))

    def _write(self, value: Value, schema: Schema | None) -> bytes:
        kind = self.type if schema is None and type(value) is self.own else schema and schema.type
        if kind != self.type or (schema is not None and schema.logical):
            raise RecordError(f"expected a value of the type {self.type}, found {_kind(value, schema)}")
        if self.type == "float64" and value != value:
            # Java writes one NaN for all, but in single precision.
            value = math.nan
        try:
            return self.packed.pack(value)
        except (struct.error, OverflowError) as failure:
            raise RecordError(f"{value!r} is no {self.type}: {failure}") from failure

    def schema(self) -> Schema:
        """Return an optional number."""
        return Schema(self.type, True)


@dataclass(frozen=True, slots=True)
class Boolean:
    """The format ``boolean``: one byte, 0 or 1."""

    format: ClassVar[str] = "boolean"
    class_name: ClassVar[str] = _PACKAGE + "BooleanConverter"

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._read, _OPTIONAL_BOOLEAN)

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        blocks, errors = _sized(rows, texts, _OPTIONAL_BOOLEAN, 1, lambda good: [flag == b"\1" for flag in good])
        for row, text in zip(rows.tolist(), texts, strict=True):
            if len(text) == 1 and text not in (b"\0", b"\1"):
                errors[row] = RecordError(f"expected the byte 0 or 1, found {text[0]}")
        valid = [block.take(np.flatnonzero(~np.isin(block.rows, list(errors)))) for block in blocks]
        return [block for block in valid if len(block)], errors

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        if block.schema is not None and block.schema.type != "boolean":
            raise RecordError(f"expected a boolean, found a value of the type {block.schema.type}")

        def write(value: Value) -> bytes:
            if type(value) is not bool:
                raise RecordError(f"expected a boolean, found {_kind(value, block.schema)}")
            return b"\1" if value else b"\0"

        return encode_each(block, write)

    def schema(self) -> Schema:
        """Return an optional boolean."""
        return _OPTIONAL_BOOLEAN


@dataclass(frozen=True, slots=True)
class String:
    """The format ``string``: UTF-8; invalid bytes are replaced, as in Java.

    Anything can be written, objects in the letters that Java prints for them: ``Struct{a=1,b=x}``, ``{a=1, b=x}``.
    """

    format: ClassVar[str] = "string"
    class_name: ClassVar[str] = "org.apache.kafka.connect.storage.StringConverter"

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, _read_strings, _OPTIONAL_STRING)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        schema = block.schema
        return encode_each(block, lambda value: _java_text(value, schema).encode("utf-8", "replace"))

    def schema(self) -> Schema:
        """Return an optional string."""
        return _OPTIONAL_STRING


@dataclass(frozen=True, slots=True)
class Bytes:
    """The format ``bytes``: bytes as they are, and nothing else."""

    format: ClassVar[str] = "bytes"
    class_name: ClassVar[str] = _PACKAGE + "ByteArrayConverter"

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, _read_bytes, _OPTIONAL_BYTES)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        if block.schema is not None and block.schema.type != "bytes":
            raise RecordError(f"expected bytes, found a value of the type {block.schema.type}")

        def write(value: Value) -> bytes:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise RecordError(f"expected bytes, found {_kind(value, block.schema)}")
            return bytes(value)

        return encode_each(block, write)

    def schema(self) -> Schema:
        """Optional bytes."""
        return _OPTIONAL_BYTES


@dataclass(frozen=True, slots=True)
class Raw(Bytes):
    """Format ``raw``: bytes and strings are written unchanged, other results of transforms as JSON."""

    format: ClassVar[str] = "raw"

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        if block.kind != "plain":
            return attempt(*encode_json(block))
        values = [value.encode("utf-8", "replace") if type(value) is str else value for value in block.values]
        if all(type(value) is bytes for value in values):
            return values
        texts, errors = encode_json(block)
        items = [value if type(value) is bytes else text for value, text in zip(values, texts, strict=True)]
        return attempt(items, {index: error for index, error in errors.items() if items[index] is None})


def _sized(
    rows: Positions, texts: Sequence[bytes], schema: Schema, size: int, read: Callable[[Sequence[bytes]], NewColumn]
) -> Decoded:
    """Values of *size* bytes each."""
    wrong = {at: text for at, text in enumerate(texts) if len(text) != size}
    errors = {
        int(rows[at]): RecordError(f"expected {plural(size, 'byte')}, found {len(text)}") for at, text in wrong.items()
    }
    if wrong:
        rows = np.delete(rows, list(wrong))
        texts = [text for text in texts if len(text) == size]
    return ([Block(rows, schema, values=read(texts))] if texts else []), errors


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def _read_strings(rows: Positions, texts: Sequence[bytes]) -> Decoded:
    return [Block(rows, _OPTIONAL_STRING, values=[_utf8(text) for text in texts])], {}


def _utf8(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        # Java puts one mark in the place of a surrogate, Python one in that of each of its bytes.
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}".encode(), text).decode("utf-8", "replace")


def _read_bytes(rows: Positions, texts: Sequence[bytes]) -> Decoded:
    return [Block(rows, _OPTIONAL_BYTES, values=texts)], {}


def _kind(value: Value, schema: Schema | None) -> str:
    """Name the kind of a value, for messages."""
    if schema is not None:
        return schema.logical or schema.type
    names = {int: "int64", float: "float64", str: "string", dict: "map", list: "array", Int8: "int8"}
    return names.get(type(value), type(value).__name__)


def _java_text(value: Value, schema: Schema | None) -> str:
    """Return a value as Java's ``toString`` has it, but times in ISO 8601."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        if schema is not None and schema.type == "struct":
            parts = [(f.name, value.get(f.name), f.schema) for f in schema.fields]
            texts = (f"{name}={_java_text(part, of)}" for name, part, of in parts if part is not None)
            return f"Struct{{{','.join(texts)}}}"
        keys, values = (schema.keys, schema.values) if schema is not None else (None, None)
        return f"{{{', '.join(f'{_java_text(k, keys)}={_java_text(item, values)}' for k, item in value.items())}}}"
    if isinstance(value, list | tuple):
        inner = schema.values if schema is not None else None
        return f"[{', '.join(_java_text(item, inner) for item in value)}]"
    if isinstance(value, Struct):
        return _java_text(value.fields, value.schema)
    return text_of(value, schema) or ""


def _encoding(value: object) -> str:
    if str(value).upper() not in ("UTF8", "UTF-8"):
        raise ValueError(f"expected UTF-8, found {value!r}")
    return "UTF-8"


_ENCODING: Final = Option("encoding", Kind(_encoding), "", "UTF-8")


def _kind_of(codec: Codec, summary: str, **attributes: Any) -> CodecKind:
    return CodecKind(codec.format, codec.class_name, summary, lambda: codec, **attributes)


_NUMBERS = (
    Number("short", "int16", Int16, struct.Struct(">h")),
    Number("integer", "int32", Int32, struct.Struct(">i")),
    Number("long", "int64", int, struct.Struct(">q")),
    Number("float", "float32", Float32, struct.Struct(">f")),
    Number("double", "float64", float, struct.Struct(">d")),
)

RAW: Final = _kind_of(Raw(), "bytes, left alone")

CONVERTERS: Final = (
    _kind_of(String(), "text in UTF-8, by Kafka's StringConverter", connect=(_ENCODING,)),
    _kind_of(Bytes(), "bytes, by Kafka's ByteArrayConverter", connect=()),
    *(
        _kind_of(
            number,
            f"one number of {8 * number.packed.size} bits, by Kafka's {number.class_name.rpartition('.')[2]}",
            connect=(),
            notation=ValueNotation,
        )
        for number in _NUMBERS
    ),
    _kind_of(Boolean(), "true or false in one byte, by Kafka's BooleanConverter", connect=(), notation=ValueNotation),
)
"""Kafka's converters of one plain value."""
