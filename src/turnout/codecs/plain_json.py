"""JSON without a schema in it: schemaless, or with declared fields and types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from turnout.base.deferred import np
from turnout.codecs.codec import Codec, Decoded, attempt, with_tombstones
from turnout.codecs.ddl import DdlError, parse_ddl
from turnout.codecs.json_objects import ObjectReader
from turnout.codecs.json_reading import Reader
from turnout.codecs.json_writing import encode_json
from turnout.codecs.kind import CodecKind, Setting, flag
from turnout.records import Block, Positions, Schema

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
"""Connect's class for JSON, with and without schemas."""

# A number that is none, outside of a text; JSON has no such thing, but many programs write it. A text that is not
# closed goes to the end: a search behind its quote would read the rest once for each quote.
_NOT_A_NUMBER = re.compile(rb'("(?:[^"\\]++|\\.)*+"?)|(-?\bInfinity\b|\bNaN\b)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class SchemalessJson:
    """The format ``json``: any JSON; the JSON null is a tombstone.

    Values are written without their schema, if they have one.
    """

    format: ClassVar[str] = "json"
    class_name: ClassVar[str] = JSON_CONVERTER

    _reader: ObjectReader = field(default_factory=ObjectReader, compare=False)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._reader.read)

    def encode(self, block: Block) -> list[bytes | None]:
        """See `Codec.encode`."""
        return attempt(*encode_json(block))

    def schema(self) -> Schema | None:
        """Return None: the format has no schema."""
        return None


class TypedJson:
    """The format ``json`` with a ``schema``: objects with declared fields, as structs.

    What Spark's ``from_json`` reads is read: fields that are not declared are left out, missing ones are null, a
    ``STRING`` takes the JSON of anything, a ``TIMESTAMP`` any part of ISO 8601 or seconds, a ``DECIMAL`` also a text.
    The JSON null is a tombstone. Single quotes, and text behind the object, are refused.
    """

    format: ClassVar[str] = "json"
    class_name: ClassVar[str] = JSON_CONVERTER

    def __init__(self, ddl: str) -> None:
        """A codec of the columns that *ddl* declares.

        Raises:
            DdlError: when it cannot be read.
        """
        declared = parse_ddl(ddl)
        self._schema = declared.schema
        self._reader = Reader.declared(declared)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._read)

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        blocks, errors = self._reader.read(rows, texts)
        again = {row: text for row in errors if (text := _with_texts(texts[int(np.searchsorted(rows, row))]))}
        if again:
            more, failed = self._reader.read(np.array(list(again), np.intp), list(again.values()))
            blocks += more
            errors = {row: error for row, error in errors.items() if row not in again or row in failed}
        return [block if block.kind != "null" else block.nulls(None) for block in blocks], errors

    def encode(self, block: Block) -> list[bytes | None]:
        """See `Codec.encode`."""
        return attempt(*encode_json(block))

    def schema(self) -> Schema | None:
        """Return the declared struct."""
        return self._schema


def _with_texts(text: bytes) -> bytes | None:
    """Replace NaN and infinities by strings in a JSON text; None if it contains neither."""
    if b"NaN" not in text and b"Infinity" not in text:
        return None
    replaced = _NOT_A_NUMBER.sub(lambda match: match[1] or b'"%s"' % match[2], text)
    return replaced if replaced != text else None


def _columns(value: object) -> str:
    """Return the columns of a struct, if they can be read."""
    if not isinstance(value, str):
        raise ValueError(f"expected a DDL string, found {value!r}")  # noqa: TRY004 - reported like every other error here
    try:
        parse_ddl(value)
    except DdlError as error:
        raise ValueError(f"{error}, in {value!r}") from error
    return value


def _codec(*, schema: str | None, mapping: str | None, original_names: bool) -> Codec:
    if mapping == "PROTOBUF":
        if schema is not None:
            raise ValueError("expected either schema or mapping: protobuf")
        from turnout.codecs.protobuf.json_mapping import ProtobufJson

        return ProtobufJson(original_names=original_names)
    return SchemalessJson() if schema is None else TypedJson(schema)


def _mapping(value: object) -> str:
    word = str(value).upper()
    if word not in ("PLAIN", "PROTOBUF"):
        raise ValueError(f"expected plain or protobuf, found {value!r}")
    return word


KIND: Final = CodecKind(
    "json",
    JSON_CONVERTER,
    "JSON: schemaless values of any shape, or with `schema` a struct of these fields",
    _codec,
    settings=(
        Setting(
            "schema",
            "the columns of a struct: carrier STRING, delay DOUBLE",
            _columns,
            json_schema={"type": ["string", "null"]},
        ),
        Setting(
            "mapping",
            "how values with a schema are written: plain, or protobuf as in Protobuf's JSON mapping, which is the "
            "default where values are read as protobuf",
            _mapping,
            json_schema={
                "anyOf": [{"type": "null"}, {"type": "string", "pattern": "^(?:plain|protobuf|PLAIN|PROTOBUF)$"}]
            },
        ),
        flag(
            "original.names",
            "whether Protobuf's JSON mapping has the fields' own names, and not lowerCamelCase",
            default=False,
        ),
    ),
)
