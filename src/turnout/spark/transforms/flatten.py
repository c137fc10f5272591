"""Flatten."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, require
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.typed import Object, Struct, Typed, with_default
from turnout.spark.variants import as_map, is_object, kind_of
from turnout.transforms.flatten import Flatten
from turnout.transforms.schema import Field, Schema, default_of

__all__: list[str] = []

_PURPOSE = "flattening"
_BUILDER = "org.apache.kafka.connect.errors.SchemaBuilderException"
_DEEPEST = 100
"""How many levels of schemaless objects are flattened; deeper ones stay objects."""


@compile_transform.register
def _(transform: Flatten, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    made: Typed
    if isinstance(side, Object):
        need_map(step, side, _PURPOSE)
        made = Typed(_object(step.bind(side.column), transform.delimiter, step), None)
    elif need_struct(step, side, _PURPOSE):
        made = _Struct(transform.delimiter, step, side.present).flat(side)
    else:
        made = side
    step.record = record.with_side(transform.side, made)
    return step


def _object(value: Column, delimiter: str, step: Step) -> Column:
    """The object with its nested objects' entries under joined names: level by level until none is left."""

    def joined(prefix: Column, name: Column) -> Column:
        return F.when(prefix == "", name).otherwise(F.concat(prefix, F.lit(delimiter), name))

    def expanded(entry: Column) -> Column:
        inner = F.transform(
            F.map_entries(as_map(entry["value"])),
            lambda one: F.struct(joined(entry["key"], one["key"]).alias("key"), one["value"].alias("value")),
        )
        return F.when(is_object(entry["value"]), inner).otherwise(F.array(entry))

    def level(entries: Column, _: Column) -> Column:
        nested = F.exists(entries, lambda entry: is_object(entry["value"]))
        return F.when(nested, F.flatten(F.transform(entries, expanded))).otherwise(entries)

    entries = step.bind(F.aggregate(F.sequence(F.lit(1), F.lit(_DEEPEST)), F.map_entries(as_map(value)), level))
    dates = F.exists(entries, lambda entry: kind_of(entry["value"]).isin("TIMESTAMP", "TIMESTAMP_NTZ", "DATE"))
    step.fail(value.isNotNull() & dates, "Flatten transformation does not support dates without a schema")
    names = step.bind(F.transform(entries, lambda entry: entry["key"]))
    backwards = F.reverse(names)
    last = F.filter(entries, lambda entry, at: at == F.size(names) - F.array_position(backwards, entry["key"]))
    return F.when(value.isNotNull(), F.to_variant_object(F.map_from_entries(last)))


class _Struct:
    """Collects the leaves of a struct."""

    def __init__(self, delimiter: str, step: Step, present: Column) -> None:
        self.delimiter = delimiter
        self.step = step
        self.present = present
        self.fields: list[Field] = []
        self.columns: list[tuple[str, Column]] = []
        self.failed = False

    def flat(self, side: Typed) -> Typed:
        assert side.schema is not None
        self._collect(side, "", optional=side.schema.optional, default=side.schema.default)
        if self.failed:
            return side
        return Struct(self.columns, self.present, side.schema.basics(tuple(self.fields)))

    def _collect(self, struct: Typed, prefix: str, *, optional: bool, default: object) -> None:
        assert struct.schema is not None
        inherited = struct.schema.with_(default=default)
        for field in struct.schema.fields:
            name = f"{prefix}{self.delimiter}{field.name}" if prefix else field.name
            schema = field.schema
            value = struct.stored(field.name)
            fallback = schema.default if schema.default is not None else default_of(inherited, field.name)
            loose = optional or schema.optional
            if schema.type == "struct":
                self._collect(Typed(value, schema), name, optional=loose, default=fallback)
            elif schema.type == "map":
                self._fail(f"Flatten transformation does not support MAP for record with schemas (for field {name}).")
            elif not name or any(name == other.name for other in self.fields):
                self._fail(f'Cannot create field because of field name duplication "{name}"', _BUILDER)
            else:
                self._leaf(name, schema, value, struct.present, optional=loose, default=fallback)

    def _leaf(
        self, name: str, schema: Schema, value: Column, inside: Column, *, optional: bool, default: object
    ) -> None:
        made = schema.with_(optional=optional, default=default)
        # A null struct leaves its leaves null; a leaf's own default is read only inside a struct that is there.
        read = F.when(inside, with_default(value, schema)) if schema.default is not None else value
        require(self.step, self.present, name, read, made)
        self.fields.append(Field(name, made))
        self.columns.append((name, read))

    def _fail(self, message: str, exception: str | None = None) -> None:
        self.failed = True
        if exception:
            self.step.fail(self.present, message, exception)
        else:
            self.step.fail(self.present, message)
