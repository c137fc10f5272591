"""Plan for the values of one Avro schema: how they are read into columns and written from them.

Values are read by the schema of their writer; there is no reader's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from turnout.codecs.avro.column_reading import Cursors, ReadColumn, column_reader
from turnout.codecs.avro.connect_schema import connect_schema_of
from turnout.codecs.avro.passing import check_texts, passing
from turnout.codecs.avro.reading import MalformedError, read_value, reader_of
from turnout.codecs.avro.types import AvroType
from turnout.codecs.avro.writing import WriteColumn, column_writer, fields_writer
from turnout.codecs.codec import Decoded
from turnout.errors import RecordError
from turnout.records import Block, Positions, group
from turnout.records.types import Column, NewColumn

_MAX_LISTED_VALUES: Final = 8
"""This many values are read one by one: arrays would cost more than they give (measured)."""


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
        if len(texts) <= _MAX_LISTED_VALUES or self.type.kind != "record" or not self.type.fields:
            return self._one_by_one(rows, texts)
        cursors = Cursors(texts, len(self.head))
        columns: dict[str, Column] = {name: read(cursors) for name, read in self._columns.items()}
        check_texts(cursors, columns, self._readers)
        failed = np.flatnonzero(cursors.failed | (cursors.positions != cursors.ends))
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
    def _readers(self) -> dict[str, ReadColumn]:
        return {field.name: column_reader(field.type) for field in self.type.fields}

    @cached_property
    def _columns(self) -> dict[str, ReadColumn]:
        return {field.name: passing(field.type, self._readers[field.name]) for field in self.type.fields}

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
