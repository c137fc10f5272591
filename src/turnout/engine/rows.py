"""Rows of a table: values of one schema in Arrow, to which messages refer until Spark receives them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from turnout.base.deferred import pc
from turnout.codecs.codec import Decoded, attempt
from turnout.codecs.conversion import converted
from turnout.codecs.fitting import Fitting, alike, problem_of
from turnout.codecs.frames.columns import WrittenColumn, arrow_type
from turnout.codecs.json_writing import Written, encode_json
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema
from turnout.records.block import rows_of
from turnout.records.types import ArrowArray, Binaries, NewColumns, Structs

_REFERENCE_BYTES = 8


class _Columns:
    """Values of one schema as Arrow columns; see `turnout.codecs.conversion.Target`."""

    def __init__(self, schema: Schema) -> None:
        self.schemas = (schema,)
        self._fitting: dict[tuple[str, ...], Fitting] = {}
        self.parts: list[ArrowArray] = []
        self._count = 0

    def fitted(self, rows: Positions, texts: Sequence[bytes], names: tuple[str, ...] = ()) -> Decoded:
        """Return the values of plain JSON texts; of some fields alone, if names are given."""
        fitting = self._fitting.get(names)
        if fitting is None:
            (schema,) = self.schemas
            chosen = tuple(field for field in schema.fields if not names or field.name in names)
            fitting = self._fitting[names] = Fitting(schema.with_(fields=chosen), drops_unknown=True)
        return fitting.read(rows, texts)

    def written(self, block: Block) -> Written:
        """Return the references of a block's rows; a field that has its column's type keeps its values as they are."""
        (target,), typed = self.schemas, block.schema
        if block.kind == "null":
            null = RecordError("a null has no columns for a row: filter it, or turn it into a value")
            return [None] * len(block), dict.fromkeys(range(len(block)), null)
        if typed is None or typed.type != "struct" or block.kind != "object":
            return converted(block, self)
        pairs = [(field.name, typed.field(field.name), field.schema) for field in target.fields]
        other = tuple(name for name, read, own in pairs if read is not None and not alike(read, own))
        problems = (problem_of(read, own, name) for name, read, own in pairs if read is not None and name in other)
        problem = next((one for one in problems if one is not None), None)
        if problem is not None:
            return [None] * len(block), dict.fromkeys(range(len(block)), RecordError(problem))
        rows, columns, errors = self._read_again(block, other) if other else (rows_of(len(block)), {}, {})
        whole = block.take(rows)
        own = {name: whole.columns[name] for name, read, _ in pairs if read is not None and name not in other}
        nulls = [None] * len(whole)
        references, wrong = self.encode(
            whole.with_columns(target, {name: {**own, **columns}.get(name, nulls) for name, _, _ in pairs})
        )
        listed: list[bytes | None] = [None] * len(block)
        for at, (index, reference) in enumerate(zip(rows.tolist(), references, strict=True)):
            listed[index] = reference
            if at in wrong:
                errors[index] = wrong[at]
        return listed, errors

    def _read_again(self, block: Block, names: tuple[str, ...]) -> tuple[Positions, NewColumns, dict[int, RecordError]]:
        """Return some fields as values of their columns' types, the indices of the values that fit, and the errors."""
        assert block.schema is not None
        chosen = tuple(field for field in block.schema.fields if field.name in names)
        part = block.with_columns(block.schema.basics(chosen), {name: block.columns[name] for name in names})
        texts, errors = encode_json(part)
        good = np.array([index for index, text in enumerate(texts) if text is not None], np.intp)
        blocks, failed = self.fitted(good, [text for text in texts if text is not None], names)
        blocks = sorted(blocks, key=lambda one: one.rows[0])
        if len(blocks) == 1:
            return blocks[0].rows, dict(blocks[0].columns), {**errors, **failed}
        rows = np.concatenate([np.zeros(0, np.intp), *(one.rows for one in blocks)])
        order = np.argsort(rows)
        joined = {name: [value for one in blocks for value in one.columns[name]] for name in names}
        return rows[order], {name: [joined[name][at] for at in order] for name in names}, {**errors, **failed}

    def encode(self, block: Block) -> Written:
        """Keep the rows of values of the schema, and return their references."""
        column = WrittenColumn.of([block], self.schemas[0])
        self.parts.append(column.values)
        references = (np.arange(len(column.values)) + self._count).astype("<i8").tobytes()
        self._count += len(column.values)
        starts = range(0, len(references), _REFERENCE_BYTES)
        each = (references[at : at + _REFERENCE_BYTES] for at in starts)
        by_row = dict(zip(column.rows.tolist(), each, strict=True))
        listed = block.rows.tolist()
        errors = {at: RecordError(column.problems[row]) for at, row in enumerate(listed) if row in column.problems}
        return [by_row.get(row) for row in listed], errors

    def clear(self) -> None:
        self.parts, self._count = [], 0

    def whole(self) -> Structs:
        """Return all rows."""
        return pa.concat_arrays([pa.nulls(0, arrow_type(self.schemas[0])), *self.parts])


class Rows:
    """Codec of the values of a table's rows: their bytes are references among the rows of this batch.

    Fields of their column's type keep its values; others are read as plain JSON by the column's type, exactly or not
    at all. A null has no row.

    Args:
        schema: struct of the columns.

    >>> from turnout.records import Field, group
    >>> rows = Rows(Schema("struct", True, fields=(Field("n", Schema("int32", True)),)))
    >>> (block,) = group(np.arange(2), None, [{"n": 17, "city": "Oulu"}, {"n": 18, "city": "Kemi"}])
    >>> rows.taken(pa.array(rows.encode(block), pa.binary())).to_pylist()
    [{'n': 17}, {'n': 18}]
    """

    format = "columns"
    class_name = "turnout.sink.columns"

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._columns = _Columns(schema)

    def schema(self) -> Schema:
        """Return the struct of the columns."""
        return self._schema

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:  # noqa: ARG002 - none can be read
        """Refuse all: nothing is read in this format."""
        return [], dict.fromkeys(rows.tolist(), RecordError("a reference of a row is no value"))

    def encode(self, block: Block) -> list[bytes | None]:
        """Return the references of the rows.

        Raises:
            EncodeErrors: some do not fit, or are null.
        """
        return attempt(*self._columns.written(block))

    def clear(self) -> None:
        """Forget the rows of the last batch."""
        self._columns.clear()

    def taken(self, references: Binaries) -> Structs:
        """Return the rows of some messages of the last batch, null where there is no reference."""
        rows = self._columns.whole()
        present = references.is_valid()
        joined = b"".join(references.filter(present).to_pylist())
        numbers = pa.array(np.frombuffer(joined, "<i8").astype(np.int64))
        if len(numbers) == len(references):
            return rows.take(numbers)
        positions = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
        return rows.take(numbers.take(pc.if_else(present, positions, None)))
