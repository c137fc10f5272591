"""Columns of a table's rows: which part of a message each has, and its type, from the chain or from the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from turnout.errors import ConfigError, Mistake
from turnout.records import Schema
from turnout.records.schema import ANY
from turnout.routes.endpoints.tables import ColumnSpec, TableSink, struct_of
from turnout.transforms import Chain
from turnout.transforms.schemas import schemas_after


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Rule of a table for the values of a column, beside their type.

    Attributes:
        required: whether nulls are refused.
        longest: most characters of a text; None for any number.
        refuses_nul: whether texts with the character U+0000 are refused.
    """

    required: bool = False
    longest: int | None = None
    refuses_nul: bool = False

    def problem(self, value: object) -> str:
        """Return why a value is refused, "" if it is not.

        >>> ColumnRule(longest=3).problem("Oulu")
        'has at most 3 characters, found 4'
        """
        if not isinstance(value, str):
            return "has no nulls" if self.required and value is None else ""
        if self.longest is not None and len(value) > self.longest:
            return f"has at most {self.longest:,} characters, found {len(value):,}"
        return "has no texts with the character U+0000" if self.refuses_nul and "\0" in value else ""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Columns of a table's rows.

    Attributes:
        value: struct of the fields of the value that are columns.
        columns: content and type of each column, in their order.
        rules: names of columns, and what the table refuses in each.
    """

    value: Schema
    columns: tuple[tuple[ColumnSpec, Schema], ...]
    rules: tuple[tuple[str, ColumnRule], ...] = ()

    @property
    def texts(self) -> tuple[tuple[ColumnSpec, ColumnRule], ...]:
        """The columns of texts that are made of bytes: of the key, or of the last header of a name."""
        made = (spec for spec, schema in self.columns if schema.type == "string")
        of_bytes = (spec for spec in made if spec.part == "key" or (spec.part == "headers" and spec.path))
        rules = dict(self.rules)
        return tuple((spec, rules.get(spec.name, ColumnRule())) for spec in of_bytes)

    @property
    def field_rules(self) -> tuple[tuple[ColumnSpec, ColumnRule], ...]:
        """The columns of fields of the value in which the table refuses something."""
        fields = (spec for spec, _ in self.columns if spec.part == "value" and spec.path)
        rules = dict(self.rules)
        return tuple((spec, rules[spec.name]) for spec in fields if spec.name in rules)

    @property
    def types(self) -> dict[str, Schema]:
        """Type of each column by its name."""
        return {spec.name: schema for spec, schema in self.columns}


def value_after(chain: Chain, key: Schema | None, value: Schema | None) -> Schema | None:
    """Return the schema of all values after a chain; None where they are schemaless or have several."""
    possible = schemas_after(chain, key, value).values
    return next(iter(possible)) if len(possible) == 1 else None


def plan_rows(
    sink: TableSink,
    value: Schema | None,
    existing: Mapping[str, Schema] | None = None,
    path: str = "sink",
    rules: Mapping[str, ColumnRule] | None = None,
) -> RowPlan:
    """Return the columns of a sink's rows.

    The type of a column is that of the table, if it is there, else the declared one, else that of the field.

    Args:
        sink: the sink, whose rows have columns of their own.
        value: schema of the values after the chain; None for schemaless ones.
        existing: columns of the table, if it is there.
        path: place of the sink in the route.
        rules: name of a column → what the table refuses in it.

    Raises:
        ConfigError: names each column without a type, and those that the table does not have.
    """
    existing = existing or {}
    is_struct = value is not None and value.type == "struct"
    specs = sink.specs
    if specs is None and is_struct:
        specs = tuple(ColumnSpec(field.name, "value", (field.name,)) for field in (value.fields if value else ()))
    elif specs is None and existing and value is None:
        specs = tuple(ColumnSpec(name, "value", (name,)) for name in existing)
    if not specs:
        problem = "found none, expected them with their types, as in {delay: value.delay INT}, or columns: record"
        raise ConfigError([Mistake(f"{path}.columns", problem)], what="bad columns")
    columns, mistakes = [], []
    for spec in specs:
        schema = existing.get(spec.name) or spec.schema or (_field(value, spec.path) if spec.part == "value" else None)
        if schema is None or schema.type == ANY:
            problem = f"found no type: give it, as in value.{'.'.join(spec.path)} STRING, as values have no schema here"
            mistakes.append(Mistake(f"{path}.columns.{spec.name}", problem))
            continue
        if (unfit := spec.problem(schema)) is not None:
            mistakes.append(Mistake(f"{path}.columns.{spec.name}", unfit))
            continue
        columns.append((spec, schema.with_(optional=True)))
    names = ", ".join(spec.name for spec in specs)
    unknown = [name for name in sink.partition_columns if name not in {spec.name for spec in specs}]
    mistakes += [Mistake(f"{path}.partitionBy", f"found {name!r}, expected one of {names}") for name in unknown]
    mistakes += [Mistake(f"{path}.columns.{name}", problem) for name, problem in _read_twice(columns)]
    if mistakes:
        raise ConfigError(mistakes, what="bad columns")
    paths = ((spec.path, schema) for spec, schema in columns if spec.part == "value" and spec.path)
    return RowPlan(struct_of(paths), tuple(columns), tuple((rules or {}).items()))


def _read_twice(columns: Sequence[tuple[ColumnSpec, Schema]]) -> Iterator[tuple[str, str]]:
    """Yield the columns, with the problem, that read a field in another type than a column before: it has one."""
    read: list[tuple[ColumnSpec, Schema]] = []
    for spec, schema in columns:
        if spec.part != "value" or not spec.path:
            continue
        for other, whole in read:
            outer, inner = sorted(((other.path, whole), (spec.path, schema)), key=lambda one: len(one[0]))
            if inner[0][: len(outer[0])] != outer[0]:
                continue
            found = _field(outer[1], inner[0][len(outer[0]) :])
            if found is None or found.with_(optional=True) != inner[1].with_(optional=True):
                yield spec.name, f"reads {'.'.join(spec.path)} in another type than the column {other.name} does"
        read.append((spec, schema))


def _field(schema: Schema | None, path: tuple[str, ...]) -> Schema | None:
    for name in path:
        schema = schema.field(name) if schema is not None and schema.type == "struct" else None
    return schema


def _record() -> RowPlan:
    before, behind = ("topic", "partition", "offset"), ("headers", "timestamp")
    specs = [
        *map(ColumnSpec.of, before, before),
        ColumnSpec.of("key", "key STRING"),
        ColumnSpec("value", "body", (), "STRING"),
        *map(ColumnSpec.of, behind, behind),
    ]
    columns = tuple((spec, schema) for spec in specs if (schema := spec.schema) is not None)
    return RowPlan(Schema("struct", True), columns)


RECORD_ROWS: Final = _record()
"""Rows with the columns of a record, its key and its value as texts."""
