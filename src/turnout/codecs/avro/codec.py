"""Codec of Avro's binary encoding, with the readers and writers of each pair of schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from turnout.base.caches import LruCache
from turnout.codecs.avro.columns import RecordReader
from turnout.codecs.avro.connect_schema import avro_schema_of, connect_schema_of, schema_text
from turnout.codecs.avro.kind import AVRO_CONVERTER
from turnout.codecs.avro.reading import MalformedError, read_value, reader_of
from turnout.codecs.avro.types import AvroType, parse_schema
from turnout.codecs.avro.writing import WriteColumn, column_writer, fields_writer
from turnout.codecs.codec import Decoded, attempt, with_tombstones
from turnout.codecs.conversion import Fitting, converted
from turnout.codecs.json_writing import Written
from turnout.codecs.schema_registry import Indexes, Position, RegisteringCodec, SchemaText
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema, group
from turnout.records.types import Column, NewColumn


class Plan:
    """Reader and writer of the values of one schema.

    Args:
        type_: type of the values.
        head: bytes before each value.

    Attributes:
        schema: schema of the values in Connect.
    """

    def __init__(self, type_: AvroType, head: bytes = b"") -> None:
        self.type = type_
        self.head = head
        self.schema = connect_schema_of(type_)
        self._read = reader_of(type_)

    def decode(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the values behind the heads of these texts, see `turnout.codecs.Codec.decode`."""
        if len(texts) == 1 or self.type.kind != "record" or not self.type.fields:
            return self._one_by_one(rows, texts)
        columns, is_failed = self._records.read(texts, len(self.head))
        failed = np.flatnonzero(is_failed)
        if not len(failed):
            return [Block(rows, self.schema, columns=columns)], {}
        good = np.setdiff1d(np.arange(len(rows)), failed, assume_unique=True)
        blocks, errors = self._one_by_one(rows[failed], [texts[index] for index in failed.tolist()])
        if len(good):
            blocks.append(Block(rows, self.schema, columns=columns).take(good))
        return blocks, errors

    def _one_by_one(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        values: NewColumn = []
        indices: list[int] = []
        errors: dict[int, RecordError] = {}
        start = len(self.head)
        for index, text in enumerate(texts):
            try:
                values.append(read_value(self._read, text, start))
                indices.append(index)
            except MalformedError as malformed:
                errors[int(rows[index])] = RecordError(f"the value is not of its Avro schema: {malformed}")
        return group(rows[np.array(indices, np.intp)], self.schema, values) if values else [], errors

    @cached_property
    def _records(self) -> RecordReader:
        return RecordReader(self.type)

    def encode(self, block: Block) -> list[bytes]:
        """Return the bytes of the values of a block.

        Raises:
            RecordError: one of them does not fit the schema.
        """
        if block.kind == "object" and self.type.kind == "record":
            columns = block.columns
            nulls = [None] * len(block)
            return self._write_fields(
                [columns.get(field.name, nulls) for field in self.type.fields], len(block), self.head
            )
        return [self.head + text for text in self._write(block.whole())]

    @cached_property
    def _write_fields(self) -> Callable[[list[Column], int, bytes], list[bytes]]:
        return fields_writer(self.type)

    @cached_property
    def _write(self) -> WriteColumn:
        return column_writer(self.type)


_SCHEMAS: Final = 256


class AvroFile:
    """Values of the schema of a file, without a header."""

    format: ClassVar[str] = "avro"
    class_name: ClassVar[str] = AVRO_CONVERTER

    def __init__(self, text: str, *, drops_unknown: bool = False) -> None:
        """Create a codec of the schema in *text*.

        Args:
            text: the schema.
            drops_unknown: whether fields that it does not have are left out of values of other formats.

        Raises:
            ValueError: it is no schema, or Connect has no equivalent.
        """
        self._plan = Plan(parse_schema(text))
        self._target = _PlannedValues(self._plan, drops_unknown=drops_unknown)
        self._equal = LruCache[int, Schema](_SCHEMAS)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `turnout.codecs.Codec.decode`."""
        return with_tombstones(rows, texts, self._plan.decode)

    def encode(self, block: Block) -> list[bytes | None]:
        """See `turnout.codecs.Codec.encode`."""
        schema = block.schema
        if schema is None:
            if block.kind == "null":
                return [None] * len(block)
            raise RecordError("the value has no schema, and Avro needs one")
        if schema is not self._plan.schema and self._equal.get(id(schema)) is not schema:
            if schema != self._plan.schema:
                raise RecordError(
                    "the schema of the value was changed, and readers would not know it: they have the schema of the "
                    "file; write Avro with a registry, or another format"
                )
            self._equal.add(id(schema), schema)
        return attempt(*_written(self._plan, block))

    def converted(self, block: Block) -> Written:
        """See `turnout.codecs.conversion.OfOneSchema`."""
        return converted(block, self._target)

    def schema(self) -> Schema | None:
        """Return the schema of the file, in Connect."""
        return self._plan.schema


class _PlannedValues:
    """Values of a plan, see `turnout.codecs.schema_registry.codec.SchemaPlan`."""

    def __init__(self, plan: Plan, *, drops_unknown: bool) -> None:
        self._plan = plan
        self._drops_unknown = drops_unknown
        self.schemas = (plan.schema,)

    def decode(self, rows: Positions, texts: Sequence[bytes], codec: object) -> Decoded:
        del codec
        return self._plan.decode(rows, texts)

    def encode(self, block: Block) -> Written:
        return _written(self._plan, block)

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        return self._fitting.read(rows, texts)

    @cached_property
    def _fitting(self) -> Fitting:
        return Fitting(self._plan.schema, drops_unknown=self._drops_unknown)


class AvroRegistry(RegisteringCodec):
    """Values in Confluent's wire format, with schemas of a registry."""

    format: ClassVar[str] = "avro"
    class_name: ClassVar[str] = AVRO_CONVERTER
    language: ClassVar[str] = "AVRO"

    def _plan_of(self, text: SchemaText, indexes: Indexes, position: Position) -> _PlannedValues:
        del indexes
        plan = Plan(parse_schema(text.text, text.references), position.prefix)
        return _PlannedValues(plan, drops_unknown=self._writing.drops_unknown)

    def _text_of(self, schema: Schema) -> SchemaText:
        return SchemaText("AVRO", schema_text(avro_schema_of(schema)))

    def _name_of(self, text: SchemaText) -> str | None:
        return parse_schema(text.text, text.references).name


def _written(plan: Plan, block: Block) -> Written:
    """Encode a block; where a value does not fit, value by value."""
    if block.kind == "null" and plan.type.kind != "union":
        return [None] * len(block), {}
    try:
        return [*plan.encode(block)], {}
    except RecordError as error:
        if len(block) == 1:
            return [None], {0: error}
    errors: dict[int, RecordError] = {}
    texts: list[bytes | None] = []
    for index in range(len(block)):
        try:
            texts += plan.encode(block.take(np.array([index], np.intp)))
        except RecordError as error:
            errors[index] = error
            texts.append(None)
    return texts, errors
