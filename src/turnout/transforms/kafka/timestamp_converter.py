"""Five forms of time of TimestampConverter, and the conversions between them, through milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Self

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.startup import np
from turnout.errors import RecordError
from turnout.loops import times as loops
from turnout.records import Batch, Block, Field, Moment, Schema, Shape
from turnout.records.block import choosing
from turnout.records.schema import DATE, TIME, TIMESTAMP, class_of
from turnout.records.spans import SCHEMALESS, Bounds, EncodedColumn, NumberColumn, SpanColumn, replaced
from turnout.records.types import Column, Convert, DynamicValue, Octets, Value
from turnout.transforms.base import (
    REPLACE_NULL,
    ByFields,
    Errors,
    NamedField,
    Side,
    Step,
    Transform,
    mistake,
    unchanged,
)
from turnout.transforms.fields import (
    FIELD_SYNTAX,
    NULL_POINTER,
    FieldPath,
    Memo,
    Nesting,
    Tree,
    convert,
    copied,
    default_value,
    nested_fields,
    nested_step,
    parse_field,
    read,
    require_object,
    store,
)
from turnout.transforms.java.calendar import JavaTimeError, parse_java_time, wrapped
from turnout.transforms.java.times import time_parser, time_printer, time_template
from turnout.transforms.java.values import trim
from turnout.transforms.options import STRING, Option, Options, one_of

TARGETS: Mapping[str, Schema] = {
    "string": Schema("string"),
    "unix": Schema("int64"),
    "Date": Schema("int32", name=DATE, version=1),
    "Time": Schema("int32", name=TIME, version=1),
    "Timestamp": Schema("int64", name=TIMESTAMP, version=1),
}
"""Schemas of converted values, apart from optionality."""

_NAMES = {TIMESTAMP: "Timestamp", DATE: "Date", TIME: "Time"}
_UNKNOWN = "org.apache.kafka.connect.errors.ConnectException"
_MAX, _MIN = (1 << 63) - 1, -(1 << 63)


def source_of(schema: Schema) -> str:
    """Return the kind of timestamp of a schema; a logical type is recognised by its name.

    Raises:
        RecordError: it is none of them.
    """
    source = _NAMES.get(schema.name or "") or {"string": "string", "int64": "unix"}.get(schema.type)
    if source is None:
        raise RecordError(f"Schema {schema.type} does not correspond to a known timestamp type format", _UNKNOWN)
    return source


@dataclass(slots=True)
class Conversion:
    """From any of the five forms to one of them.

    Attributes:
        target: the form that is made.
        pattern: of texts, in and out; blank for none.
        precision: of unix time, in and out.
    """

    target: str
    pattern: str
    precision: str
    _parse: Callable[[str], int | None] | None = field(init=False, default=None)
    _write: Callable[[int], Value] = field(init=False)
    _template: bytes | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if trim(self.pattern):
            self._parse = time_parser(self.pattern)
            self._template = time_template(self.pattern)
        self._write = self._writer()

    def of(self, source: str) -> Convert:
        """Return the conversion of values of one form; it raises `RecordError`."""
        to_millis, write = self._reader(source), self._write
        return lambda value: write(to_millis(value))

    def of_any(self, value: Value) -> Value:
        """Return the conversion of one schemaless value; its type determines its form."""
        if isinstance(value, Moment):
            return self._write(int(value))
        if type(value) is int:
            return self._write(_of_unix(value, self.precision))
        if type(value) is str:
            return self._write(self._of_text(value))
        raise RecordError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")

    def of_column(self, column: Column, memo: Memo, errors: Errors) -> Column:
        """Return a converted column; texts of JSON become numbers without becoming texts.

        Args:
            column: values of which null stays null.
            memo: the conversion of one value.
            errors: by index.
        """
        kind = {"Timestamp": Moment, "unix": int}.get(self.target)
        milliseconds = self.target != "unix" or self.precision == "milliseconds"
        found = _texts_of(column) if kind is not None and self._template and milliseconds else None
        if found is None or kind is None or self._template is None:
            return convert(column, memo, errors)
        data, (begins, ends), quotes = found
        times, undecided = np.zeros(len(column), np.int64), np.zeros(len(column), np.uint8)
        numbers = NumberColumn(times, kind)
        template = np.frombuffer(self._template, np.uint8)
        if not loops.read_times(data, begins, ends, quotes, template, times, undecided):
            return numbers
        others = np.flatnonzero(undecided)
        wrong: Errors = {}
        converted = convert(choosing(others, len(column))(column), memo, wrong)
        errors.update((int(others[index]), error) for index, error in wrong.items())
        if None not in converted:
            times[others] = converted
            return numbers
        return replaced(list(numbers), converted, undecided.astype(np.bool_))

    def _reader(self, source: str) -> Callable[[DynamicValue], int]:
        if source == "string":
            return self._of_text
        if source == "unix":
            return lambda value: _of_unix(_checked(value, int, "a Long"), self.precision)
        return lambda value: int(_checked(value, Moment, "a java.util.Date"))

    def _of_text(self, text: str) -> int:
        _checked(text, str, "a String")
        if self._parse is None:
            raise RecordError("a string needs a format", NULL_POINTER)
        millis = self._parse(text)
        if millis is None:
            raise RecordError(f"Could not parse timestamp: value ({text}) does not match pattern ({self.pattern})")
        return millis

    def _writer(self) -> Callable[[int], Value]:
        match self.target:
            case "string":
                return time_printer(self.pattern)
            case "unix":
                precision = self.precision
                return lambda millis: _to_unix(millis, precision)
            case "Date":
                # Java's calendar has 64 bits: the first day begins before they do.
                return lambda millis: Moment(wrapped(millis - millis % MILLISECONDS_PER_DAY, 64))
            case "Time":
                return lambda millis: Moment(millis % MILLISECONDS_PER_DAY)
        return Moment


def _texts_of(column: Column) -> tuple[Octets, Bounds, int] | None:
    """Return the bytes with the texts of a column, their bounds, and 1 if these have quotes; None if not known."""
    if type(column) is SpanColumn and column.kind.form in (SCHEMALESS, "string"):
        return (*column.data_bounds(), 1)
    if type(column) is EncodedColumn and column.find_texts is not None:
        return np.frombuffer(column.content, np.uint8), column.find_texts(column.bounds), 0
    return None


def _checked(value: Value, kind: type, expected: str) -> DynamicValue:
    if class_of(type(value)) is not kind:
        raise RecordError(f"Expected the timestamp to be {expected}, but found {type(value).__name__}")
    return value


def _of_unix(number: int, precision: str) -> int:
    """Milliseconds, cut toward zero, and at the ends of 64 bits."""
    match precision:
        case "seconds":
            return _saturated(number * 1000)
        case "microseconds":
            return _cut(number, 1000)
        case "nanoseconds":
            return _cut(number, 1_000_000)
    return number


def _to_unix(millis: int, precision: str) -> int:
    match precision:
        case "seconds":
            return _cut(millis, 1000)
        case "microseconds":
            return _saturated(millis * 1000)
        case "nanoseconds":
            return _saturated(millis * 1_000_000)
    return millis


def _saturated(number: int) -> int:
    return max(_MIN, min(_MAX, number))


def _cut(number: int, by: int) -> int:
    return number // by if number >= 0 else -(-number // by)


TARGET_TYPES = ("string", "unix", "Date", "Time", "Timestamp")
_PURPOSE = "converting timestamp formats"
PRECISIONS = ("seconds", "milliseconds", "microseconds", "nanoseconds")


@dataclass(frozen=True, slots=True)
class TimestampConverter(Transform):
    """See ``summary``.

    Attributes:
        path: the steps to the field, none for the whole key or value.
        format: the pattern of ``java.text.SimpleDateFormat``, empty if none was given.
    """

    summary: ClassVar[str] = "Converts a time between text, unix time, Date, Time and Timestamp."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("target.type", STRING, "What to make.", check=one_of(*TARGET_TYPES), valid=", ".join(TARGET_TYPES)),
        Option("field", STRING, "The field, a path where the syntax version is V2; empty for the whole.", default=""),
        Option("format", STRING, "The pattern of the text.", default="", valid="java.text.SimpleDateFormat"),
        Option(
            "unix.precision",
            STRING,
            "The unit of unix time, in and out.",
            default="milliseconds",
            check=one_of(*PRECISIONS),
            valid=", ".join(PRECISIONS),
        ),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    target_type: str = "Timestamp"
    path: FieldPath = ()
    format: str = ""
    unix_precision: str = "milliseconds"
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check the pattern, which is required if the target is text."""
        pattern = options["format"] or ""
        if options["target.type"] == "string" and not trim(pattern):
            raise mistake("format", "is missing, and the target type string needs it")
        try:
            parse_java_time(pattern)
        except JavaTimeError as error:
            raise mistake("format", f"expected a pattern of java.text.SimpleDateFormat: {error}") from None
        field = options["field"]
        return cls(
            side,
            options["target.type"],
            parse_field("field", field, options["field.syntax.version"]) if field else (),
            pattern,
            options["unix.precision"],
            options["replace.null.with.default"],
        )

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("field", self.side, [self.path] if self.path else [])

    def plan(self, shape: Shape) -> Step:
        """Convert the whole, or the one field; null stays null, with the converted schema if it has one."""
        conversion = Conversion(self.target_type, self.format, self.unix_precision)
        if len(self.path) > 1:
            return self._nested(shape)
        if self.path:
            return self._field(shape, conversion)
        if shape.schema is None:
            return self._whole(shape, None, self._memo())
        source = source_of(shape.schema)
        return self._whole(shape, self._target(shape.schema), Memo(conversion.of(source)))

    def mixed(self) -> ByFields | None:
        """See `Transform.mixed`."""
        return ByFields.of([self.path]) if self.path else None

    def _nested(self, shape: Shape) -> Step:
        if shape.kind == "null":
            return Step(unchanged)
        nesting = Nesting(_PURPOSE, self.replace_null_with_default)
        require_object(shape, _PURPOSE)
        return nested_step(
            Tree([(self.path, self)]), lambda tree: replace(self, path=self.path[-1:]) if tree.items else None, nesting
        )

    def _memo(self) -> Memo:
        return _memo_of_any(self.target_type, self.format, self.unix_precision)

    def _target(self, schema: Schema) -> Schema:
        return TARGETS[self.target_type].with_(optional=schema.optional)

    def _whole(self, shape: Shape, changed: Schema | None, memo: Memo) -> Step:
        if shape.kind == "object":
            memo({})

        def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
            if block.kind == "null":
                return block.nulls(changed)
            return block.with_values(changed, convert(block.values, memo, errors))

        return Step(run)

    def _field(self, shape: Shape, conversion: Conversion) -> Step:
        if shape.schema is None:
            if shape.kind == "null":
                return Step(unchanged)
            require_object(shape, _PURPOSE)
            return _field_of_map(self.path[0], conversion, self._memo())
        if shape.kind != "null" or shape.schema.type != "struct":
            require_object(shape, _PURPOSE)
        return self._field_of_struct(shape, shape.schema, conversion)

    def _field_of_struct(self, shape: Shape, schema: Schema, conversion: Conversion) -> Step:
        name, defaults = self.path[0], self.replace_null_with_default
        old = schema.field(name)
        fields = tuple(
            Field(name, self._target(field.schema)) if field.name == name else field for field in schema.fields
        )
        changed = schema.basics(fields).with_(optional=schema.optional)
        if schema.default is not None:
            changed = changed.with_(default=self._default(schema, conversion))
        if shape.kind == "null":
            return Step(lambda block, _where, _batch, _errors: block.nulls(changed))
        memo = None if old is None else Memo(conversion.of(source_of(old)))

        def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
            columns = copied(block, errors, defaults=defaults, without=(name,))
            if old is not None and memo is not None:
                column = conversion.of_column(read(block, Field(name, old), defaults=defaults), memo, errors)
                columns[name] = column
                store(Field(name, self._target(old)), column, errors)
            return block.with_columns(changed, {field.name: columns[field.name] for field in fields})

        return Step(run)

    def _default(self, schema: Schema, conversion: Conversion) -> dict[str, object]:
        """Return the default of a struct, its field converted."""
        default: dict[str, object] = dict(default_value(schema))
        name = self.path[0]
        old = schema.field(name)
        if old is None:
            return default
        value = default.get(name)
        if value is None and self.replace_null_with_default:
            value = default_value(old)
        return default | {name: None if value is None else conversion.of(source_of(old))(value)}


@lru_cache(maxsize=64)
def _memo_of_any(target: str, pattern: str, precision: str) -> Memo:
    """Return the conversion of schemaless values; all shapes share its cache."""
    return Memo(Conversion(target, pattern, precision).of_any)


def _field_of_map(name: str, conversion: Conversion, memo: Memo) -> Step:
    def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
        columns = dict(block.columns)
        # A field that is absent is added as null.
        column = columns.get(name)
        columns[name] = [None] * len(block) if column is None else conversion.of_column(column, memo, errors)
        return block.with_columns(None, columns)

    return Step(run)
