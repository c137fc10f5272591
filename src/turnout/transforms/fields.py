"""Fields of objects: structs, nested ones by path, and schemaless objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from turnout.base.startup import np
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Float32, Moment, Schema, Shape, Struct, group
from turnout.records.field_paths import PathError, parse_path
from turnout.records.schema import ANY, DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.types import Column, Convert, DynamicValue, Entries, NewColumn, Value
from turnout.transforms.base import Errors, NamedField, Side, Step, Transform, mistake
from turnout.transforms.options import STRING, Option, one_of


def require_object(shape: Shape, purpose: str) -> None:
    """Raise for everything that is neither a struct nor a schemaless map; null is neither.

    Args:
        shape: shape of the keys or values.
        purpose: purpose of the fields, for the message.
    """
    if shape.kind == "object":
        return
    if shape.schema is None:
        raise RecordError(f"Only Map objects supported in absence of schema for [{purpose}], found: {_kind_of(shape)}")
    raise RecordError(f"Only Struct objects supported for [{purpose}], found: {_kind_of(shape)}")


def _kind_of(shape: Shape) -> str:
    if shape.kind == "null":
        return "null"
    return "another type" if shape.schema is None else shape.schema.type


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


FieldPath: TypeAlias = tuple[str, ...]
"""The steps to a field."""

Item = TypeVar("Item")

_PLANS: Final = 10_000
"""Maximum number of cached plans; the cache is cleared when it is full."""

_EMPTY: Final = Schema("struct")
"""The schema of an object that is created."""

FIELD_SYNTAX: Final = Option(
    "field.syntax.version",
    STRING,
    "V1: the text is one name. V2: steps between dots, a step with dots inside backticks.",
    default="V1",
    check=one_of("V1", "V2", any_case=True),
    valid="V1, V2, in any case",
)


def parse_fields(option: str, texts: Iterable[str], version: str) -> tuple[FieldPath, ...]:
    """Return the path of each text of an option.

    Raises:
        OptionError: a path has no steps or a backtick that is never closed, or leads to a field inside another's.
    """
    paths = tuple(parse_field(option, text, version) for text in texts)
    ordered = sorted(set(paths))
    for outer, inner in pairwise(ordered):
        if inner[: len(outer)] == outer:
            shown = f"{'.'.join(inner)!r} is inside of {'.'.join(outer)!r}"
            raise mistake(option, f"expected fields that are not nested in each other, and {shown}")
    return paths


def parse_field(option: str, text: str, version: str) -> FieldPath:
    """Return the path of one text of an option.

    Raises:
        OptionError: it has no steps, or a backtick that is never closed.
    """
    try:
        path = parse_path(text, version)
    except PathError as error:
        raise mistake(option, str(error)) from None
    if not path:
        raise mistake(option, "expected a field, found an empty path")
    return path


def nested_fields(option: str, side: Side, paths: Iterable[FieldPath]) -> Iterator[NamedField]:
    """Yield the fields that an option names by paths."""
    return (NamedField(option, side, path) for path in paths)


class Tree(Generic[Item]):
    """Items by the parents of their paths.

    Attributes:
        items: those of this object's own fields, with their names.
        children: those inside of a field of it.

    >>> tree = Tree([(("a",), 1), (("b", "c"), 2)])
    >>> tree.items, tree.children["b"].items
    ([('a', 1)], [('c', 2)])
    """

    def __init__(self, items: Iterable[tuple[FieldPath, Item]]) -> None:
        self.items: list[tuple[str, Item]] = []
        self.children: dict[str, Tree[Item]] = {}
        for path, item in items:
            node = self
            for step in path[:-1]:
                node = node.children.setdefault(step, Tree(()))
            node.items.append((path[-1], item))


class Nesting(NamedTuple):
    """Manner of working inside of nested objects.

    Attributes:
        purpose: purpose of the fields, for error messages.
        defaults: whether a null is read as its field's default, in every field that is copied.
        create: whether parents that are missing are added as empty objects.
    """

    purpose: str
    defaults: bool
    create: bool = False


def nested_step(tree: Tree[Item], flat: Callable[[Tree[Item]], Transform | None], nesting: Nesting) -> Step:
    """Return the step that applies the transform of each object of *tree*, the innermost first.

    Parents that are null or missing are left alone; any other value in their place is a failure of the record.

    Args:
        tree: operations by path.
        flat: the transform for the fields of one object of the tree; None where there is nothing to do.
        nesting: how.
    """
    return Step(_NestedRun(tree, flat, nesting))


class _NestedRun:
    """The `Run` of one object of a tree. Its plans are kept for each shape, as a stage keeps them."""

    def __init__(self, tree: Tree[Item], flat: Callable[[Tree[Item]], Transform | None], nesting: Nesting) -> None:
        self.transform = flat(tree)
        self.nesting = nesting
        self.children = {name: _NestedRun(child, flat, nesting) for name, child in tree.children.items()}
        self._plans: dict[Shape, Step] = {}
        self._latest: tuple[Shape, Step] | None = None
        self._outer: dict[str, tuple[Schema, Schema, Schema]] = {}
        self._after: tuple[Schema, Schema, Schema] | None = None

    def __call__(self, block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> list[Block]:
        require_object(block.shape, self.nesting.purpose)
        for name, child in self.children.items():
            block = self._within(block, name, child, batch, errors)
        if self.transform is None:
            return [block]
        result = self._step(self.transform, block.shape).run(block, None, batch, errors)
        return result if isinstance(result, list) else [result]

    def _step(self, transform: Transform, shape: Shape) -> Step:
        if self._latest is not None and shape.schema is not None and self._latest[0].schema is shape.schema:
            return self._latest[1]
        step = self._plans.get(shape)
        if step is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            step = self._plans[shape] = transform.plan(shape)
        self._latest = shape, step
        return step

    def _within(self, block: Block, name: str, child: _NestedRun, batch: Batch, errors: Errors) -> Block:
        """Return the block after the child's work on the objects in a field."""
        schema = block.schema
        if schema is None:
            column = block.columns.get(name)
            if column is None and not self.nesting.create:
                return block
            column = self._created(column or [None] * len(block))
            changed, _ = child.inside(block, None, column, batch, errors)
            return block.with_columns(None, {**block.columns, name: changed})
        inner = schema.field(name)
        if inner is None:
            if not self.nesting.create:
                return block
            inner = _EMPTY
            column = [{} for _ in range(len(block))]
        else:
            column = read(block, Field(name, inner))
        columns: dict[str, Column] = copied(block, errors, defaults=self.nesting.defaults, without={name})
        changed, after = child.inside(block, inner, column, batch, errors)
        store(Field(name, after), changed, errors, checked=block.checked)
        outer = self._schema(schema, name, inner, after)
        columns[name] = changed
        return block.with_columns(outer, {field.name: columns[field.name] for field in outer.fields})

    def _created(self, column: Column) -> Column:
        return [{} if value is None else value for value in column] if self.nesting.create else column

    def _schema(self, schema: Schema, name: str, inner: Schema, after: Schema) -> Schema:
        """Return the schema of an object with a changed field's schema; cached, so equal ones are identical."""
        cached = self._outer.get(name)
        if cached is not None and cached[0] is schema and cached[1] is after:
            return cached[2]
        if inner == after and schema.field(name) is not None:
            outer = schema
        else:
            if schema.default is not None:
                raise RecordError(f"a struct with a default cannot change inside: its default has the old {name!r}")
            exists = any(field.name == name for field in schema.fields)
            fields = tuple(Field(name, after) if field.name == name else field for field in schema.fields)
            outer = schema.basics(fields if exists else (*fields, Field(name, after)))
            outer = outer.with_(optional=schema.optional)
        self._outer[name] = (schema, after, outer)
        return outer

    def inside(
        self, block: Block, schema: Schema | None, column: Column, batch: Batch, errors: Errors
    ) -> tuple[NewColumn, Schema]:
        """Return a column of objects after the work on them, with its schema.

        Args:
            block: the block that has the column.
            schema: schema of the column; None in schemaless objects.
            column: the objects, some of them null.
            batch: the batch.
            errors: by index in the block.
        """
        declared = None if schema is None or schema.type == ANY else schema
        present = np.array([index for index, value in enumerate(column) if value is not None], np.intp)
        parts = group(block.rows[present], declared, [column[index] for index in present], checked=block.checked)
        changed = list(column)
        after = declared
        for part in parts:
            indexes = np.searchsorted(block.rows, part.rows)
            wrong: Errors = {}
            results: list[Block] = []
            try:
                results = self(part, None, batch, wrong)
            except RecordError as refusal:
                wrong = dict.fromkeys(range(len(part)), refusal)
            for index, error in wrong.items():
                errors.setdefault(int(indexes[index]), error)
            for result in results:
                after = result.schema
                for index, value in zip(np.searchsorted(block.rows, result.rows), result.whole(), strict=True):
                    changed[index] = value
        if declared is None:
            return changed, Schema(ANY, optional=True) if schema is None else schema
        if not parts:
            after = self._schema_after(declared, block, batch)
        assert after is not None
        return changed, self._optional(declared, after)

    def _schema_after(self, schema: Schema, block: Block, batch: Batch) -> Schema | None:
        """Return the schema that the objects would have."""
        if schema.type != "struct":
            return schema
        empty = Block(block.rows[:0], schema, columns={field.name: [] for field in schema.fields})
        return self(empty, None, batch, {})[0].schema

    def _optional(self, schema: Schema, after: Schema) -> Schema:
        """Return the new schema, optional as the old one was; the same one for the same ones."""
        cached = self._after
        if cached is not None and cached[0] is schema and cached[1] is after:
            return cached[2]
        result = after if after.optional == schema.optional else after.with_(optional=schema.optional)
        self._after = (schema, after, result)
        return result


def fields_on(schema: Schema, path: FieldPath) -> tuple[Field, ...] | None:
    """Return the fields on the way to a field, the field itself last; None if the schema has none at the path."""
    fields: list[Field] = []
    for step in path:
        inner = schema.field(step) if schema.type == "struct" else None
        if inner is None:
            return None
        fields.append(Field(step, inner))
        schema = inner
    return tuple(fields)


def schema_at(fields: tuple[Field, ...]) -> Schema:
    """Return the schema of the last field; optional where one of its parents may be null.

    >>> city = Field("city", Schema("string"))
    >>> schema_at((Field("place", Schema("struct", optional=True, fields=(city,))), city)).optional
    True
    """
    schema = fields[-1].schema
    loose = not schema.optional and any(parent.schema.optional for parent in fields[:-1])
    return schema.with_(optional=True) if loose else schema


def read_struct(block: Block, fields: tuple[Field, ...], *, defaults: bool) -> Column:
    """Return the column of a field in structs; parents are read with their defaults whatever *defaults* says."""
    last = len(fields) - 1
    column = read(block, fields[0], defaults=last > 0 or defaults)
    for index, field in enumerate(fields[1:], 1):
        column = _fields_of(column, field, defaults=index < last or defaults)
    return column


def read_map(block: Block, path: FieldPath, purpose: str, errors: Errors) -> Column | None:
    """Return the column of a field in schemaless objects; None if they all lack the first step.

    A parent that is no object is an error of its record, a null or missing one has null.
    """
    parent, *others = path
    column = block.columns.get(parent)
    if column is None:
        return None
    for step in others:
        column = [_entry(value, step, parent, purpose, index, errors) for index, value in enumerate(column)]
        parent = step
    return column


def _entry(value: Value, step: str, parent: str, purpose: str, index: int, errors: Errors) -> Value:
    """Return the entry of a map; null has none, and everything else is refused."""
    if type(value) is dict:
        return value.get(step)
    if value is not None:
        message = f"Only Map objects supported in absence of schema for [{purpose}], found another type: {parent}"
        errors.setdefault(index, RecordError(message))
    return None


def _fields_of(column: Column, field: Field, *, defaults: bool) -> NewColumn:
    """Return one field of each struct; a default replaces a null, but not in a struct that is null itself."""
    name = field.name
    default = default_value(field.schema) if defaults else None
    if default is None:
        return [None if struct is None else struct.get(name) for struct in column]
    values = [(struct, None if struct is None else struct.get(name)) for struct in column]
    return [default if value is None and struct is not None else value for struct, value in values]
