"""Five forms of time of TimestampConverter, and the conversions between them, through milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.errors import RecordError
from turnout.records import Moment, Schema
from turnout.records.scalars import class_of
from turnout.records.schema import DATE, TIME, TIMESTAMP
from turnout.records.types import Convert, DynamicValue, Value
from turnout.transforms.java.calendar import wrapped
from turnout.transforms.java.text import trim
from turnout.transforms.java.time_parse import time_parser
from turnout.transforms.java.time_print import time_printer
from turnout.transforms.struct_fields import NULL_POINTER

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

    def __post_init__(self) -> None:
        if trim(self.pattern):
            self._parse = time_parser(self.pattern)
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
