"""Options that Debezium's scripted transforms share, and the choice of the records that they concern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias, TypeVar

from turnout.base.startup import np
from turnout.errors import ConditionError, RecordError
from turnout.records import Batch, Block, Positions, Schema
from turnout.records.schema import ANY, Struct
from turnout.records.types import DynamicValue
from turnout.transforms.base import Errors, NamedField, Side, Transform
from turnout.transforms.debezium.expression import (
    GRAAL_JS,
    GROOVY,
    Comparison,
    Constant,
    Interpolation,
    Membership,
    Negation,
    Path,
    Script,
    Step,
)
from turnout.transforms.debezium.extract_new_record_state import PACKAGE
from turnout.transforms.debezium.script_rules import NULL, TRUE, Typed
from turnout.transforms.options import STRING, Option, OptionError, Options, java_regex, non_empty, one_of
from turnout.transforms.predicates import RecordIsTombstone, TopicNameMatches

T = TypeVar("T")

_LANGUAGES: Final = (GROOVY, GRAAL_JS)
_MODES: Final = ("keep", "drop", "evaluate")


def _pattern(value: str | None) -> str | None:
    return java_regex(value) if value else None


TOPIC_REGEX: Final = Option(
    "topic.regex",
    STRING,
    "Only records whose whole topic matches it are evaluated; without it all.",
    default="",
    check=_pattern,
    valid="java.util.regex",
)
LANGUAGE: Final = Option(
    "language",
    STRING,
    "The language of the expression, whose rules for equality, order and truth hold.",
    check=one_of(*_LANGUAGES),
    valid=", ".join(_LANGUAGES),
)
NULLS: Final = Option(
    "null.handling.mode",
    STRING,
    "Handling of a record without a value: kept unchanged, dropped, or evaluated like the others.",
    default="keep",
    check=one_of(*_MODES, any_case=True),
    valid=", ".join(_MODES),
)


@dataclass(frozen=True, slots=True)
class Scripted(Transform):
    """Transform with an expression over the whole record."""

    sided: ClassVar[bool] = False
    keeps_paths: ClassVar[bool] = True

    topic_regex: str = ""
    language: str = ""
    null_handling_mode: str = "keep"

    def concerned(self, batch: Batch, rows: Positions, errors: Errors) -> Positions:
        """Return the rows to evaluate the expression for; drop nulls if configured."""
        if self.topic_regex:
            rows = rows[TopicNameMatches(self.topic_regex).test(batch, errors)[rows]]
        mode = self.null_handling_mode.lower()
        if mode == "evaluate":
            return rows
        is_null = RecordIsTombstone().test(batch, {})[rows]
        if mode == "drop":
            batch.filter(rows[is_null])
        return rows[~is_null]

    def results(self, script: Script, batch: Batch, rows: Positions, errors: Errors) -> dict[int, Typed]:
        """Return the result of an expression for each of the rows; those for which it fails are errors."""
        paths = script.paths()
        columns = [_Column.of(batch, path) for path in paths]
        # Records with equal fields have one result.
        known: dict[object, Typed | RecordError] = {}
        results: dict[int, Typed] = {}
        listed = rows.tolist()
        if len(listed) < len(batch):
            columns = [_Column([column.values[row] for row in listed], column.type) for column in columns]
        keys = zip(*(column.keys() for column in columns), strict=True) if columns else repeat((), len(listed))
        for index, (row, key) in enumerate(zip(listed, keys, strict=True)):
            result = known.get(key)
            if result is None:
                result = _result(
                    script, {path: column.cell(index) for path, column in zip(paths, columns, strict=True)}
                )
                if len(known) < _MAX_KNOWN:
                    known[key] = result
            if isinstance(result, RecordError):
                errors[row] = result
            else:
                results[row] = result
        return results


class _Column(NamedTuple):
    """Column of the values at a path, by row.

    Attributes:
        values: cells, or plain values of one type and nulls.
        type: their type, as `Typed` has it; empty for cells.
    """

    values: Sequence[DynamicValue]
    type: str = ""

    @classmethod
    def of(cls, batch: Batch, path: Path) -> _Column:
        """Return the column of a path."""
        if path.root in ("key", "value") and path.steps:
            plain = _plain_column(batch.key if path.root == "key" else batch.value, len(batch), path.steps)
            if plain is not None:
                return plain
        return cls(_cells(batch, path))

    def cell(self, index: int) -> _Cell:
        """Return the cell of a row."""
        value: DynamicValue = self.values[index]
        if not self.type:
            return value  # type: ignore[no-any-return]
        return NULL if value is None else Typed(value, self.type)

    def keys(self) -> Sequence[object]:
        """Return for each cell what is equal for equal cells alone: 0.0 is not -0.0, and 1.0 not 1.00."""
        if self.type:
            return self.values
        return [
            cell if isinstance(cell, _Failed) or cell.type in _EXACT else (cell.type, repr(cell.value))
            for cell in self.values
        ]


def _plain_column(side: Sequence[Block], count: int, steps: Sequence[Step]) -> _Column | None:
    """Return the values of one exact type at a path in objects without schemas; None for all others."""
    if len(side) != 1 or side[0].kind != "object" or side[0].schema is not None or len(side[0]) != count:
        return None
    first, *others = steps
    column = side[0].columns.get(first.name)
    for step in others:
        if column is None or set(map(type, column)) != {dict}:
            return None
        column = [value.get(step.name) for value in column]
    types = set() if column is None else set(map(type, column)) - {type(None)}
    if column is None or len(types) != 1:
        return None
    name = _PLAIN_TYPES.get(types.pop())
    return None if name is None else _Column(column, name)


_PLAIN_TYPES: Final[Mapping[type, str]] = {str: "string", int: "int64", bool: "boolean"}


def _result(script: Script, cells: dict[Path, _Cell]) -> Typed | RecordError:
    def read(path: Path) -> Typed:
        cell = cells[path]
        if isinstance(cell, _Failed):
            raise RecordError(cell.message, cell.exception)
        return cell

    try:
        return script.evaluate(read)
    except RecordError as error:
        return error


class _Failed(NamedTuple):
    """Reason that a path has no value in a record."""

    message: str
    exception: str


_Cell: TypeAlias = Typed | _Failed
_EXACT: Final = frozenset({"string", "boolean", "int8", "int16", "int32", "int64", "bigint"})
_MAX_KNOWN: Final = 10_000
"""Results of one batch that are remembered."""


def _cells(batch: Batch, path: Path) -> list[_Cell]:
    """Return what is at a path for each row."""
    if path.root == "topic":
        return [Typed.of(topic) for topic in batch.topics]
    if path.root == "header":
        name, inner = path.steps
        absent: _Cell = NULL if inner.safe else _no_object(inner.name)
        present = batch.headers.has(name.name).tolist()
        texts = batch.headers.last(name.name)
        return [Typed.of(text) if has else absent for text, has in zip(texts, present, strict=True)]
    cells: list[_Cell] = [NULL] * len(batch)
    for block in batch.key if path.root == "key" else batch.value:
        for row, cell in zip(block.rows.tolist(), _of_block(block, path.steps), strict=True):
            cells[row] = cell
    return cells


def _of_block(block: Block, steps: tuple[Step, ...]) -> Iterator[_Cell]:
    schema = block.schema
    if block.kind != "object" or not steps:
        return (_inside(value, schema, steps) for value in block.whole())
    first, *others = steps
    inner = None if schema is None else schema.field(first.name)
    column = block.columns.get(first.name)
    if column is None or (schema is not None and inner is None):
        return (_inside(value, schema, steps) for value in block.whole())
    default = None if inner is None else inner.default
    return (_inside(default if value is None else value, inner, others) for value in column)


def _inside(value: DynamicValue, schema: Schema | None, steps: Sequence[Step]) -> _Cell:
    """Return what is at the steps in a value, as `Struct.get` and `Map.get` give it."""
    for step in steps:
        if schema is None and type(value) is dict:
            value = value.get(step.name)
            continue
        if value is None:
            if not step.safe:
                return _no_object(step.name)
            continue
        if isinstance(value, Struct):
            value, schema = value.fields, value.schema
        if not isinstance(value, Mapping):
            return _Failed(f"No such property: {step.name}", "groovy.lang.MissingPropertyException")
        if schema is None or schema.type in (ANY, "map"):
            value, schema = value.get(step.name), None if schema is None or schema.type == ANY else schema.values
            continue
        inner = schema.field(step.name)
        if inner is None:
            return _Failed(f"{step.name} is not a valid field name", "org.apache.kafka.connect.errors.DataException")
        value, schema = value.get(step.name), inner
        value = inner.default if value is None else value
    return Typed.of(value, schema)


def _no_object(name: str) -> _Failed:
    return _Failed(f"Cannot get property '{name}' on null object", "java.lang.NullPointerException")


def named_fields_of(option: str, script: Script) -> Iterator[NamedField]:
    """Yield the fields of keys and values that an expression names."""
    for path in script.paths():
        if path.root in ("key", "value") and path.steps:
            yield NamedField(option, Side(path.root.capitalize()), tuple(step.name for step in path.steps))


def named_headers_of(option: str, script: Script) -> Iterator[tuple[str, str]]:
    """Yield the headers that an expression names."""
    return ((option, path.steps[0].name) for path in script.paths() if path.root == "header")


def read_option(option: str, expression: str, read: Callable[[str], T]) -> T:
    """Return an option's expression, read.

    Raises:
        OptionError: it has something else in it than conditions.
    """
    try:
        return read(expression)
    except ConditionError as error:
        raise OptionError(option, str(error)) from None


_ANY: Final = Script(Constant(TRUE), GROOVY)


@dataclass(frozen=True, slots=True)
class DebeziumFilter(Scripted):
    """See ``summary``. Debezium's `Filter`, under another short name than Kafka's.

    Attributes:
        kept: the records to keep.
    """

    summary: ClassVar[str] = "Keeps the records that an expression is true of, and drops the others."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "Filter",)
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "condition",
            STRING,
            "The expression: `value.op == 'u' && value.after.id > 2`.",
            check=non_empty,
            own_language=True,
        ),
        LANGUAGE,
        TOPIC_REGEX,
        NULLS,
    )

    kept: Script = _ANY

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the expression."""
        language = options["language"]
        script = read_option("condition", options["condition"], lambda text: Script.read(text, language))
        for result in script.results():
            if isinstance(result, Interpolation) or (isinstance(result, Constant) and result.item.type != "boolean"):
                raise OptionError(
                    "condition", "expected an expression that is true or false, found a constant of another type"
                )
        return cls(side, options["topic.regex"], language, options["null.handling.mode"], script)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return named_fields_of("condition", self.kept)

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return named_headers_of("condition", self.kept)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop the records that it is false of."""
        errors: Errors = {}
        concerned = self.concerned(batch, rows, errors)
        dropped = []
        for row, result in self.results(self.kept, batch, concerned, errors).items():
            if result.type != "boolean":
                found = "null" if result.value is None else f"a value of type {result.type or 'object'}"
                errors[row] = RecordError(f"expected true or false of the expression, found {found}")
            elif not result.value:
                dropped.append(row)
        batch.filter(np.array(dropped, np.intp))
        return errors


_OWN: Final = Script(Constant(NULL), GROOVY)


@dataclass(frozen=True, slots=True)
class ContentBasedRouter(Scripted):
    """See ``summary``. Debezium's transform.

    Attributes:
        topic: the expression; a result of null leaves the record's own.
    """

    summary: ClassVar[str] = "Routes a record to the topic that an expression chooses by its content."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "ContentBasedRouter",)
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "topic.expression",
            STRING,
            "The expression: `value.op == 'd' ? 'deleted' : null`; null keeps the topic.",
            check=non_empty,
            own_language=True,
        ),
        LANGUAGE,
        TOPIC_REGEX,
        NULLS,
    )

    topic: Script = _OWN

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the expression."""
        language = options["language"]
        script = read_option("topic.expression", options["topic.expression"], lambda text: Script.read(text, language))
        for result in script.results():
            is_constant = isinstance(result, Constant) and result.item.type not in ("string", "")
            if is_constant or isinstance(result, Comparison | Membership | Negation):
                raise OptionError("topic.expression", "expected a topic (a text, a field or null) as each result")
        return cls(side, options["topic.regex"], language, options["null.handling.mode"], script)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return named_fields_of("topic.expression", self.topic)

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return named_headers_of("topic.expression", self.topic)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Give each record the topic that is the expression's result; null keeps its own."""
        errors: Errors = {}
        topics = list(batch.topics)
        for row, result in self.results(self.topic, batch, self.concerned(batch, rows, errors), errors).items():
            if result.is_text:
                topics[row] = result.value
            elif result.value is not None:
                kind = result.type or "object"
                errors[row] = RecordError(f"expected a topic of the expression, found a value of type {kind}")
        batch.topics = topics
        return errors
