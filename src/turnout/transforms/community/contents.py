"""Transforms of the form of a value: Base64, Drop, FromJson, ToJson, GzipDecompress."""

from __future__ import annotations

import json
import re
import zlib
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from turnout.errors import RecordError
from turnout.records import Batch, BigInt, Block, Field, Schema, Shape, group
from turnout.records.text import json_of
from turnout.records.types import Column, DynamicValue, NewColumns
from turnout.transforms.base import Errors, NamedField, Step, Transform, flat_fields, unchanged
from turnout.transforms.fields import convert, copied, require_object
from turnout.transforms.options import BOOLEAN, INT, LIST, STRING, Option, one_of

FIELDS = Option("fields", LIST, "The fields, flat names; without any the whole key or value.", default=())


@dataclass(frozen=True, slots=True)
class Contents(Transform):
    """Transform that converts single values.

    Nulls stay nulls, and so do fields that a record does not have.
    """

    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True

    fields: tuple[str, ...] = ()

    @abstractmethod
    def schema_of(self, schema: Schema) -> Schema | None:
        """Return the schema of the converted values of a schema; None where they are schemaless.

        Raises:
            RecordError: no value of the schema can be converted.
        """

    @abstractmethod
    def converted(self, value: DynamicValue, schema: Schema | None) -> DynamicValue:
        """Return the converted value.

        Raises:
            RecordError: it cannot be converted.
        """

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return flat_fields("fields", self.side, self.fields)

    def plan(self, shape: Shape) -> Step:
        """Find the schemas of the converted values."""
        if shape.kind == "null":
            return Step(unchanged)
        if not self.fields:
            return self._of_whole(shape.schema)
        require_object(shape, f"{self.class_name()} of fields")
        return Step(self._of_map) if shape.schema is None else self._of_struct(shape.schema)

    def _of_whole(self, schema: Schema | None) -> Step:
        changed = None if schema is None else self.schema_of(schema)

        def run(block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> list[Block]:
            values = block.values if block.kind == "plain" else block.whole()
            return group(block.rows, changed, self._column(values, schema, batch, errors))

        return Step(run)

    def _of_map(self, block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
        columns: NewColumns = dict(block.columns)
        for name in self.fields:
            if name in columns:
                columns[name] = self._column(columns[name], None, batch, errors)
        return block.with_columns(None, columns)

    def _of_struct(self, schema: Schema) -> Step:
        fields: list[Field] = []
        for field in schema.fields:
            if field.name in self.fields:
                inner = self.schema_of(field.schema) or Schema("variant")
                field = Field(field.name, inner.with_(optional=field.schema.optional))
            fields.append(field)
        changed = schema.basics(tuple(fields)).with_(optional=schema.optional)
        chosen = [field for field in schema.fields if field.name in self.fields]

        def run(block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
            columns: NewColumns = dict(copied(block, errors))
            for field in chosen:
                columns[field.name] = self._column(columns[field.name], field.schema, batch, errors)
            return block.with_columns(changed, columns)

        return Step(run)

    def _column(self, column: Column, schema: Schema | None, batch: Batch, errors: Errors) -> Column:  # noqa: ARG002 - for others
        return convert(column, lambda value: self.converted(value, schema), errors)


def refused(value: object, expected: str) -> RecordError:
    """Return the error for a value of another type."""
    return RecordError(f"expected {expected}, found {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Base64(Contents):
    """See ``summary``. Not part of Connect."""

    summary: ClassVar[str] = "Writes bytes, or the UTF-8 of texts, in base64 (RFC 4648), or reads base64 as bytes."
    options: ClassVar[tuple[Option, ...]] = (
        FIELDS,
        Option("operation", STRING, "Direction.", check=one_of("encode", "decode"), valid="encode, decode"),
    )

    operation: str = "encode"

    def schema_of(self, schema: Schema) -> Schema:
        """See `Contents.schema_of`."""
        if schema.type not in ("string", "bytes") or schema.logical:
            raise RecordError(f"expected a text or bytes, found {schema.logical or schema.type}")
        return Schema("string" if self.operation == "encode" else "bytes", optional=schema.optional)

    def converted(self, value: DynamicValue, schema: Schema | None) -> DynamicValue:  # noqa: ARG002 - as the others
        """See `Contents.converted`."""
        if not isinstance(value, str | bytes):
            raise refused(value, "a text or bytes")
        content = value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)
        if self.operation == "encode":
            return b64encode(content).decode("ascii")
        try:
            return b64decode(content, validate=True)
        except ValueError as failure:
            raise RecordError(f"the value is not base64: {failure}") from failure


_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")


@dataclass(frozen=True, slots=True)
class FromJson(Contents):
    """See ``summary``. Not part of Connect."""

    summary: ClassVar[str] = "Reads texts or bytes that are JSON as schemaless values."
    java_names: ClassVar[tuple[str, ...]] = ("com.github.jcustenborder.kafka.connect.json.FromJson",)
    options: ClassVar[tuple[Option, ...]] = (FIELDS,)

    def schema_of(self, schema: Schema) -> None:
        """See `Contents.schema_of`."""
        if schema.type not in ("string", "bytes") or schema.logical:
            raise RecordError(f"expected a text or bytes of JSON, found {schema.logical or schema.type}")

    def converted(self, value: DynamicValue, schema: Schema | None) -> DynamicValue:  # noqa: ARG002 - as the others
        """See `Contents.converted`."""
        if not isinstance(value, str | bytes):
            raise refused(value, "a text or bytes of JSON")
        text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
        try:
            read: DynamicValue = msgspec.json.decode(text)
        except (ValueError, RecursionError) as failure:
            raise RecordError(f"the value is not JSON: {failure}") from failure
        return _with_big_integers(read) if _LONG_NUMBER.search(text) else read


def _with_big_integers(value: DynamicValue) -> DynamicValue:
    """Return a value in which integers beyond 64 bits are `BigInt`."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else BigInt(value)
    if type(value) is dict:
        return {name: _with_big_integers(item) for name, item in value.items()}
    if type(value) is list:
        return [_with_big_integers(item) for item in value]
    return value


def _without_schemas(value: DynamicValue) -> str | None:
    return "JSON with its schema is not written here; take the format connect-json" if value else None


@dataclass(frozen=True, slots=True)
class ToJson(Contents):
    """See ``summary``. Jeremy Custenborder's ``ToJSON``; whole texts and bytes stay as they are, as there."""

    summary: ClassVar[str] = "Writes maps, structs and arrays as JSON; of fields also texts and numbers."
    java_names: ClassVar[tuple[str, ...]] = ("com.github.jcustenborder.kafka.connect.transform.common.ToJSON",)
    options: ClassVar[tuple[Option, ...]] = (
        FIELDS,
        Option(
            "output.schema.type",
            STRING,
            "Whether the JSON is a text or bytes.",
            default="STRING",
            check=one_of("STRING", "BYTES"),
            valid="STRING, BYTES",
        ),
        Option("schemas.enable", BOOLEAN, "Only false.", default=False, check=_without_schemas, valid="false"),
    )

    output_schema_type: str = "STRING"
    schemas_enable: bool = False

    def schema_of(self, schema: Schema) -> Schema:
        """See `Contents.schema_of`."""
        if not self.fields and schema.type in ("string", "bytes") and not schema.logical:
            return schema
        return Schema(self.output_schema_type.lower(), optional=True)

    def converted(self, value: DynamicValue, schema: Schema | None) -> DynamicValue:
        """See `Contents.converted`."""
        if not self.fields and isinstance(value, str | bytes):
            return value
        try:
            text = json.dumps(json_of(value, schema), ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as failure:
            raise RecordError(f"the value cannot be written as JSON: {failure}") from failure
        return text if self.output_schema_type == "STRING" else text.encode("utf-8", "replace")


_GZIP: Final = 16 + zlib.MAX_WBITS
"""Window bits by which zlib expects a header of gzip."""

MAX_BATCH: Final = 256 << 20
"""Decompressed bytes of a batch, after which no other content of it is decompressed; a run divides such a batch."""

_FIRST_PIECE: Final = 1 << 10
_LARGEST_PIECE: Final = 1 << 16


def _positive(value: int | None) -> str | None:
    return None if value is not None and value > 0 else "expected a number of bytes above 0"


@dataclass(frozen=True, slots=True)
class GzipDecompress(Contents):
    """See ``summary``. Confluent's transform; `fields` and `max.bytes` are turnout's."""

    summary: ClassVar[str] = "Decompresses bytes that gzip has compressed; a result larger than max.bytes is a failure."
    java_names: ClassVar[tuple[str, ...]] = ("io.confluent.connect.transforms.GzipDecompress",)
    options: ClassVar[tuple[Option, ...]] = (
        FIELDS,
        Option("max.bytes", INT, "The largest decompressed content, in bytes.", default=16 << 20, check=_positive),
    )

    max_bytes: int = 16 << 20

    def schema_of(self, schema: Schema) -> Schema:
        """See `Contents.schema_of`."""
        if schema.type != "bytes" or schema.logical:
            raise RecordError(f"expected bytes, found {schema.logical or schema.type}")
        return schema

    def converted(self, value: DynamicValue, schema: Schema | None) -> bytes:  # noqa: ARG002 - as the others
        """See `Contents.converted`."""
        if not isinstance(value, bytes):
            raise refused(value, "bytes")
        content = bytearray()
        offset = 0
        while offset < len(value) or not offset:
            # A file of gzip may have several members, one after the other.
            offset = self._add_member(memoryview(value), offset, content)
        return bytes(content)

    def _column(self, column: Column, schema: Schema | None, batch: Batch, errors: Errors) -> Column:
        return [self._bounded(index, value, schema, batch, errors) for index, value in enumerate(column)]

    def _bounded(
        self, index: int, value: DynamicValue, schema: Schema | None, batch: Batch, errors: Errors
    ) -> DynamicValue:
        if value is None:
            return None
        if batch.decompressed >= MAX_BATCH:
            batch.has_overflow = True
            errors[index] = RecordError(
                f"the records before it are decompressed to {batch.decompressed:,} bytes, and a batch to at most "
                f"{MAX_BATCH:,}: take fewer records at a time, or a smaller max.bytes"
            )
            return None
        try:
            content = self.converted(value, schema)
        except RecordError as error:
            errors.setdefault(index, error)
            return None
        batch.decompressed += len(content)
        return content

    def _add_member(self, value: memoryview, offset: int, content: bytearray) -> int:
        """Decompress the member at *offset* to the end of *content*, and return the offset after it.

        The value is read in pieces: the library copies what follows a member, and the whole rest for each of many small
        members would be quadratic.
        """
        member = zlib.decompressobj(_GZIP)
        size = _FIRST_PIECE
        while not member.eof:
            piece = value[offset : offset + size]
            if not len(piece):
                raise RecordError("the value is not of gzip: it ends too early")
            try:
                content += member.decompress(piece, self.max_bytes - len(content) + 1)
            except zlib.error as failure:
                raise RecordError(f"the value is not of gzip: {failure}") from failure
            if len(content) > self.max_bytes:
                raise RecordError(f"the value has more than {self.max_bytes:,} bytes when it is decompressed")
            offset += len(piece) - len(member.unused_data)
            size = min(2 * size, _LARGEST_PIECE)
        return offset


@dataclass(frozen=True, slots=True)
class Drop(Transform):
    """See ``summary``. Confluent's transform."""

    summary: ClassVar[str] = "Sets the key or the value to null."
    java_names: ClassVar[tuple[str, ...]] = ("io.confluent.connect.transforms.Drop",)
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "schema.behavior",
            STRING,
            "What becomes of the schema: none, the same, the same if it is optional, or the same made optional.",
            default="nullify",
            check=one_of("nullify", "retain", "validate", "force_optional", any_case=True),
            valid="nullify, retain, validate, force_optional",
        ),
    )

    schema_behavior: str = "nullify"

    def plan(self, shape: Shape) -> Step:
        """Choose the schema of the nulls."""
        behavior, schema = self.schema_behavior.lower(), shape.schema
        if behavior == "nullify":
            schema = None
        elif behavior == "force_optional" and schema is not None:
            schema = schema.with_(optional=True)
        elif behavior == "validate" and schema is not None and not schema.optional:
            raise RecordError(f"the schema of the {self.root} is not optional, so that it cannot be null")

        def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, _errors: Errors) -> Block:
            return block.nulls(schema)

        return Step(run)
