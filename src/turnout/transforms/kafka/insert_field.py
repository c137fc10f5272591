"""InsertField: add fields from the record's own attributes, or a fixed text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from turnout.base.startup import np
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Int32, Moment, Schema, Shape
from turnout.records.schema import TIMESTAMP
from turnout.records.spans import numbers_of
from turnout.records.types import Column, NewColumns
from turnout.transforms.base import REPLACE_NULL, ByFields, Errors, Run, Side, Step, Transform, mistake, unchanged
from turnout.transforms.fields import (
    FIELD_SYNTAX,
    SCHEMA_BUILDER,
    FieldPath,
    Nesting,
    Tree,
    copied,
    nested_step,
    parse_field,
    require_object,
    store,
)
from turnout.transforms.options import STRING, Option, OptionError, Options

if TYPE_CHECKING:
    from numpy.typing import NDArray


Source = Literal["topic", "partition", "offset", "timestamp", "static"]
_PURPOSE = "field insertion"
_SOURCES: tuple[Source, ...] = ("topic", "partition", "offset", "timestamp", "static")
_SCHEMAS = {
    "topic": Schema("string"),
    "partition": Schema("int32"),
    "offset": Schema("int64"),
    "timestamp": Schema("int64", name=TIMESTAMP, version=1),
    "static": Schema("string"),
}


@dataclass(frozen=True, slots=True)
class Insertion:
    """Added field: ``name!`` in the options makes it required, ``name?`` and ``name`` optional."""

    path: FieldPath
    source: Source
    optional: bool = True

    @classmethod
    def parse(cls, text: str, source: Source, version: str) -> Self:
        """Read the name with its suffix; only one is taken off.

        Raises:
            OptionError: the path has no steps, or a backtick that is never closed.
        """
        suffix = text[-1:] if text[-1:] in ("?", "!") else ""
        name = text.removesuffix(suffix)
        return cls(parse_field(f"{source}.field", name, version), source, optional=suffix != "!")

    @property
    def name(self) -> str:
        """The name in its object."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class InsertField(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Adds fields with the topic, partition, offset, timestamp or a fixed text."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("topic.field", STRING, "Field for the topic.", default=None, valid="name, name?, name!"),
        Option("partition.field", STRING, "Field for the partition.", default=None, valid="name, name?, name!"),
        Option("offset.field", STRING, "Field for the offset.", default=None, valid="name, name?, name!"),
        Option("timestamp.field", STRING, "Field for the timestamp.", default=None, valid="name, name?, name!"),
        Option("static.field", STRING, "Field for static.value.", default=None, valid="name, name?, name!"),
        Option("static.value", STRING, "The text for static.field; may be empty.", default=None),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    insertions: tuple[Insertion, ...] = ()
    static_value: str | None = None
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Collect the insertions in the order in which Connect makes them."""
        named = [(options[f"{source}.field"], source) for source in _SOURCES]
        version = options["field.syntax.version"]
        insertions = tuple(Insertion.parse(name, source, version) for name, source in named if name is not None)
        if not insertions:
            raise mistake("", "expected at least one of " + ", ".join(f"{source}.field" for source in _SOURCES))
        static = options["static.value"]
        if options["static.field"] is not None and static is None:
            raise mistake("static.value", "is missing, and static.field needs it")
        return cls(side, insertions, static, options["replace.null.with.default"])

    def doubts(self) -> Iterator[OptionError]:
        """Connect puts the later one in the place of the earlier one."""
        for at, insertion in enumerate(self.insertions):
            if later := [one.source for one in self.insertions[at + 1 :] if one.path == insertion.path]:
                name = ".".join(insertion.path)
                yield OptionError(f"{insertion.source}.field", f"{name!r} is overwritten by {later[0]}.field")

    def plan(self, shape: Shape) -> Step:
        """Add the fields behind the others; null stays null."""
        if shape.kind == "null":
            return Step(unchanged)
        require_object(shape, _PURPOSE)
        tree = Tree((insertion.path, insertion) for insertion in self.insertions)
        if tree.children:
            return nested_step(tree, self._flat, Nesting(_PURPOSE, self.replace_null_with_default, create=True))
        return Step(self._into_map if shape.schema is None else self._into_struct(shape.schema))

    def _flat(self, tree: Tree[Insertion]) -> InsertField | None:
        insertions = tuple(replace(insertion, path=(name,)) for name, insertion in tree.items)
        return replace(self, insertions=insertions) if insertions else None

    def mixed(self) -> ByFields | None:
        """See `Transform.mixed`."""
        return ByFields.of(insertion.path for insertion in self.insertions)

    def _into_map(self, block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> list[Block]:
        inserted = {insertion: self._values(insertion, block, batch, errors) for insertion in self.insertions}
        # A null partition or timestamp is not stored, so that the shape is another one there.
        absent = {
            insertion: values
            for insertion, values in inserted.items()
            if insertion.source in _LEFT_OUT and None in values
        }
        columns: NewColumns = dict(block.columns)
        if not absent:
            for insertion, values in inserted.items():
                columns[insertion.name] = _schemaless(insertion, values)
            return [block.with_columns(None, columns)]
        together: dict[tuple[bool, ...], list[int]] = {}
        for index, missing in enumerate(zip(*absent.values(), strict=True)):
            together.setdefault(tuple(value is None for value in missing), []).append(index)
        return [self._part(block.take(np.array(indexes, np.intp)), indexes, inserted) for indexes in together.values()]

    def _part(self, part: Block, indexes: list[int], inserted: dict[Insertion, Column]) -> Block:
        """Return the part with its new fields; all or none of its records have a partition, and a timestamp."""
        columns: NewColumns = dict(part.columns)
        for insertion, values in inserted.items():
            chosen = [values[index] for index in indexes]
            if insertion.source not in _LEFT_OUT or None not in chosen:
                columns[insertion.name] = _schemaless(insertion, chosen)
        return part.with_columns(None, columns)

    def _into_struct(self, schema: Schema) -> Run:
        fields = list(schema.fields)
        for insertion in self.insertions:
            if not insertion.name:
                raise RecordError("fieldName cannot be null.", SCHEMA_BUILDER)
            if any(insertion.name == field.name for field in fields):
                problem = f'Cannot create field because of field name duplication "{insertion.name}"'
                raise RecordError(problem, SCHEMA_BUILDER)
            fields.append(Field(insertion.name, _SCHEMAS[insertion.source].with_(optional=insertion.optional)))
        changed = schema.basics(tuple(fields))
        added = fields[len(schema.fields) :]
        defaults = self.replace_null_with_default

        def run(block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
            columns = copied(block, errors, defaults=defaults)
            for insertion, field in zip(self.insertions, added, strict=True):
                values = self._values(insertion, block, batch, errors)
                if insertion.source == "timestamp":
                    values = numbers_of(values, Moment)
                elif insertion.source == "topic":
                    # A null partition or timestamp is never stored, and so passes even where it is required.
                    store(field, values, errors)
                columns[insertion.name] = values
            return block.with_columns(changed, columns)

        return run

    def _values(self, insertion: Insertion, block: Block, batch: Batch, errors: Errors) -> Column:
        """Return the values to insert into the block's records."""
        match insertion.source:
            case "topic":
                return batch.of_block(batch.topics, block)
            case "partition":
                return _of_rows(batch.partitions, block, batch)
            case "timestamp":
                return _of_rows(batch.timestamps, block, batch)
            case "static":
                return [self.static_value] * len(block)
        if batch.offsets is None:
            raise RecordError(_NO_OFFSET)
        offsets = _of_rows(batch.offsets, block, batch)
        if None in offsets:
            for index, offset in enumerate(offsets):
                if offset is None:
                    errors.setdefault(index, RecordError(_NO_OFFSET))
        return offsets


_LEFT_OUT = ("partition", "timestamp")
_NO_OFFSET = "Only SinkRecord objects supported for [field insertion], found: a source record, which has no offset"


def _of_rows(column: Sequence[int | None] | NDArray[np.int64], block: Block, batch: Batch) -> Sequence[int | None]:
    if isinstance(column, list):
        return batch.of_block(column, block)
    if isinstance(column, np.ndarray):
        numbers: list[int | None] = column[block.rows].tolist()
        return numbers
    return batch.of_block(column, block)


def _schemaless(insertion: Insertion, values: Column) -> Column:
    """Return values for schemaless objects: partitions carry their width, times are plain numbers."""
    if insertion.source == "partition":
        return list(map(Int32, values))
    return numbers_of(values, int) if insertion.source == "timestamp" else values
