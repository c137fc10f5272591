"""Reading and storing of struct fields as in Connect: defaults replace nulls, schemas check values.

Nothing here costs anything for a field that is optional and has no default, in a block that a codec has checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

from turnout.errors import RecordError
from turnout.records import Block, Field, Float32, Moment, Schema, Struct
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.types import Column, Convert, DynamicValue, Entries, NewColumn, Value
from turnout.transforms.base import Errors

NULL_POINTER = "java.lang.NullPointerException"
"""Exception of Connect for an unexpected null."""

SCHEMA_BUILDER = "org.apache.kafka.connect.errors.SchemaBuilderException"
"""Exception of Connect for a schema that cannot be built."""

_MEMO = 20_000
"""Maximum number of cached values of each type; the cache is cleared when it is full."""

_MAX_CLEARS = 3
"""Number of times the cache may be cleared before it is switched off."""

_DATES = (DATE, TIME, TIMESTAMP)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


# --- reading ----------------------------------------------------------------------------------------------------------


def default_value(schema: Schema) -> DynamicValue:
    """Return a reader's value for a null under *schema*: its default, None if it has none."""
    return None if schema.default is None else _value_of(schema, schema.default)


def _value_of(schema: Schema, default: DynamicValue) -> DynamicValue:
    """Return a default as a value of a batch: date objects are `Moment`."""
    if default is None or isinstance(default, Moment):
        return default
    if schema.logical in _DATES:
        return Moment(default)
    if schema.type == "struct" and isinstance(default, dict):
        return {field.name: _value_of(field.schema, default.get(field.name)) for field in schema.fields}
    if schema.type == "array" and schema.values is not None:
        return [_value_of(schema.values, item) for item in default]
    if schema.type == "map" and schema.values is not None:
        return {key: _value_of(schema.values, item) for key, item in default.items()}
    return default


def read(block: Block, field: Field, *, defaults: bool = True) -> Column:
    """Return the column of a struct's field, with the default of its schema in place of stored nulls if *defaults*."""
    column = block.columns.get(field.name)
    if column is None:
        column = [None] * len(block)
    if defaults and field.schema.default is not None and None in column:
        default = default_value(field.schema)
        return [default if value is None else value for value in column]
    return column


def copied(block: Block, errors: Errors, *, defaults: bool = True, without: Collection[str] = ()) -> dict[str, Column]:
    """Return the columns of a struct as a copy of it stores them, but for the fields named in *without*."""
    assert block.schema is not None
    columns: dict[str, Column] = {}
    stored, checked = block.columns, block.checked
    for field in block.schema.fields:
        if field.name not in without:
            if checked and is_plain(field.schema) and field.name in stored:
                columns[field.name] = stored[field.name]
                continue
            column = columns[field.name] = read(block, field, defaults=defaults)
            store(field, column, errors, checked=checked)
    return columns


def is_plain(schema: Schema) -> bool:
    """Return True if each value of the schema, and a null, is stored as it is."""
    return (schema.optional or schema.omissible) and schema.default is None


# --- storing ----------------------------------------------------------------------------------------------------------


def store(field: Field, column: Column, errors: Errors, *, checked: bool = True) -> None:
    """Note for which places the field cannot take the column's value (``ConnectSchema.validateValue``).

    Args:
        field: with its schema as it is in the struct that the values go into.
        column: a value for each place of the block.
        errors: by index; the first error of an index is kept.
        checked: the values are known to be of the schema's type, so that only nulls are looked for.
    """
    schema = field.schema
    if not checked:
        for index, value in enumerate(column):
            if value is not None or not schema.optional:
                problem = _misfit(schema, value, f'field: "{field.name}"')
                if problem is not None:
                    errors.setdefault(index, RecordError(problem))
    elif not (schema.optional or schema.omissible) and None in column:
        error = RecordError(_null_for(schema, f'field: "{field.name}"'))
        for index, value in enumerate(column):
            if value is None:
                errors.setdefault(index, error)


def _null_for(schema: Schema, where: str) -> str:
    return f"Invalid value: null used for required {where}, schema type: {schema.type.upper()}"


def _misfit(schema: Schema, value: DynamicValue, where: str) -> str | None:
    """Return the reason that the schema refuses the value; None if it accepts it."""
    if value is None:
        return None if schema.optional or schema.omissible else _null_for(schema, where)
    if not fits(schema, value):
        name = f' "{schema.name}"' if schema.name is not None else ""
        return f"Invalid value for schema{name} with type {schema.type.upper()}: {type(value).__name__} for {where}"
    if schema.type == "struct":
        return _misfit_of_struct(schema, value)
    if schema.type == "array" and schema.values is not None:
        return _first(_misfit(schema.values, item, f"element of array {where}") for item in value)
    if schema.type == "map":
        keys, values = schema.keys, schema.values
        wrong_key = None if keys is None else _first(_misfit(keys, key, f"key of map {where}") for key in value)
        if wrong_key is not None or values is None:
            return wrong_key
        return _first(_misfit(values, item, f"value of map {where}") for item in value.values())
    return None


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _misfit_of_struct(schema: Schema, value: DynamicValue) -> str | None:
    if isinstance(value, Struct):
        if value.schema != schema:
            return "Struct schemas do not match."
        value = value.fields
    for field in schema.fields:
        inner = value.get(field.name)
        # A null that was never stored is accepted here, if a default replaces it.
        if inner is not None or field.schema.default is None:
            problem = _misfit(field.schema, inner, f'field: "{field.name}"')
            if problem is not None:
                return problem
    return None


def fits(schema: Schema, value: Value) -> bool:
    """Return True if a value that is not null has the schema's type, contents aside; logical types count by name."""
    if schema.name in _DATES:
        return isinstance(value, Moment)
    if schema.name == DECIMAL:
        return isinstance(value, Decimal)
    match schema.type:
        case "int8" | "int16" | "int32" | "int64" as kind:
            half = 1 << _BITS[kind] - 1
            return type(value) is int and -half <= value < half
        case "float64":
            return type(value) is float
        case "float32":
            return type(value) in (float, Float32)
        case "boolean":
            return type(value) is bool
        case "string":
            return isinstance(value, str)
        case "bytes":
            return isinstance(value, bytes | bytearray | memoryview)
        case "array":
            return isinstance(value, list | tuple)
        case "map":
            return isinstance(value, dict)
        case "struct":
            return isinstance(value, dict | Struct)
    return True


# --- converting -------------------------------------------------------------------------------------------------------


class Memo:
    """A function of one value that caches its results for strings, integers, times and floats.

    Values of different types are kept apart, as Python takes 1, 1.0 and true for the same. Where hardly a value comes
    again, it stops remembering.

    Args:
        function: the function; it may raise `RecordError`, which is not remembered.
        by_type: functions that replace it for values of some types, without another check of the type.
    """

    __slots__ = ("_memos", "function")

    def __init__(self, function: Convert, by_type: Mapping[type, Convert] | None = None) -> None:
        self.function = function
        chosen = by_type or {}
        kinds: tuple[type, ...] = (str, int, float, Moment)
        self._memos = {kind: _Memo(chosen.get(kind, function)) for kind in kinds}

    def __call__(self, value: Value) -> DynamicValue:
        """Return the function's result for the value."""
        return self.function(value)

    def of_column(self, column: Column) -> Convert | None:
        """Return the function to call for each item of a column with values of one type; None stays None.

        None if the column has values of several types, or of a type that is not remembered.
        """
        kinds = set(map(type, column))
        nulls = type(None) in kinds
        kinds.discard(type(None))
        values = self._memos.get(kinds.pop()) if len(kinds) == 1 else None
        if values is None:
            return None
        if values.overflows < _MAX_CLEARS:
            return values.__getitem__
        return values.of_any if nulls else values.function


class _Memo(Entries):
    """Values with the results of a function, each computed on first use."""

    __slots__ = ("function", "overflows")

    def __init__(self, function: Convert) -> None:
        super().__init__({None: None})
        self.function = function
        self.overflows = 0

    def of_any(self, value: Value) -> DynamicValue:
        return None if value is None else self.function(value)

    def __missing__(self, value: Value) -> DynamicValue:
        converted = self.of_any(value)
        if len(self) >= _MEMO:
            self.clear()
            self.overflows += 1
        # 0.0 and -0.0 are one key, and two values.
        if value != 0.0 or type(value) is not float:
            self[value] = converted
        return converted


def convert(column: Column, function: Convert, errors: Errors) -> NewColumn:
    """Apply *function* to a column, except to nulls; a `RecordError` is added by its index.

    A `Memo` as the function caches the results of repeated values.
    """
    direct = function.of_column(column) if isinstance(function, Memo) else None
    try:
        if direct is not None:
            return list(map(direct, column))
        return [None if value is None else function(value) for value in column]
    except RecordError:
        return [_converted(index, value, function, errors) for index, value in enumerate(column)]


def _converted(index: int, value: Value, function: Convert, errors: Errors) -> DynamicValue:
    if value is None:
        return None
    try:
        return function(value)
    except RecordError as error:
        errors.setdefault(index, error)
        return None
