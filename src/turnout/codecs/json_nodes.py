"""Readers of JSON values of one schema, fast for well-formed values and lenient for others: structures and leaves.

Leaves are numbers, texts, times and bytes: as a declared type, or as Connect's JsonConverter reads them. Dates and
times are ISO 8601 texts, read as Spark reads them, and written by column.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes import c_float
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from turnout.base.clocks import EPOCH, MILLISECONDS_PER_DAY, microseconds_since_epoch
from turnout.base.startup import np
from turnout.loops import times
from turnout.records import BigInt, Moment, Schema
from turnout.records.schema import ANY, DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.text import iso_of
from turnout.records.types import Column, Convert, ConvertColumn, DynamicValue, Entries, NewColumn, Value

_FIRST_DAY = date(1970, 1, 1).toordinal()
_LAST_MILLISECOND = 9_223_372_036_854_775
"""Milliseconds: the last moment, whose microseconds fit into 64 bits."""

_DATE = r"(?P<year>[+-]?\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?)?"
_ZONE = r"(?P<zone>Z|(?:UTC|GMT|UT)?[+-]\d{1,2}(?::?\d{2}(?::?\d{2})?)?|[A-Za-z][\w/+-]*)"
_timestamp = re.compile(rf"{_DATE}(?:[T ]{_CLOCK}\s*{_ZONE}?)?)?)?", re.ASCII).fullmatch
_date = re.compile(rf"{_DATE}(?:[T ].*)?)?)?", re.ASCII | re.DOTALL).fullmatch
_offset = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII).fullmatch


def moment_of(time: datetime) -> Moment:
    """Return the moment of a time; one without a zone is in UTC."""
    return Moment(microseconds_since_epoch(time) // 1000)


def day_of(day: date) -> Moment:
    """Return the moment at which a day begins."""
    return Moment((day.toordinal() - _FIRST_DAY) * MILLISECONDS_PER_DAY)


def read_timestamp(text: str) -> Moment:
    """Parse a moment; missing fields are the least, and the zone UTC.

    Raises:
        ValueError: when it names none.
    """
    match = _timestamp(text.strip())
    if match is None:
        raise ValueError(text)
    parts = match.groupdict()
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(text)
    millis = ((hour * 60 + minute) * 60 + second) * 1000 + int(((parts["fraction"] or "") + "000")[:3])
    local = _days(parts) * MILLISECONDS_PER_DAY + millis
    moment = local - _zone_offset(parts["zone"], local)
    if abs(moment) > _LAST_MILLISECOND:
        raise ValueError(text)
    return Moment(moment)


def read_date(text: str) -> Moment:
    """Return the day that a text begins with, as the moment of its midnight.

    Raises:
        ValueError: when there is none.
    """
    match = _date(text.strip())
    if match is None:
        raise ValueError(text)
    return Moment(_days(match.groupdict()) * MILLISECONDS_PER_DAY)


def _days(parts: dict[str, str | None]) -> int:
    """Return the days from 1970 to a date of the Gregorian calendar, which is taken to have no beginning."""
    year, month, day = int(parts["year"] or 0), int(parts["month"] or 1), int(parts["day"] or 1)
    # A date's days repeat every 400 years, of which Python's calendar has 25.
    cycle, within = divmod(year - 2000, 400)
    return date(2000 + within, month, day).toordinal() - _FIRST_DAY + cycle * 146_097


def _zone_offset(zone: str | None, local: int) -> int:
    """Return the milliseconds that a zone is ahead of UTC at its local time."""
    if zone in (None, "Z", "UTC", "GMT", "UT"):
        return 0
    match = _offset(str(zone))
    if match is not None:
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        offset_seconds = (hours * 60 + minutes) * 60 + seconds
        if offset_seconds > 18 * 3600 or minutes > 59 or seconds > 59:
            raise ValueError(zone)
        return (offset_seconds if match[1] == "+" else -offset_seconds) * 1000
    try:
        offset = ZoneInfo(str(zone)).utcoffset((EPOCH + timedelta(milliseconds=local)).replace(tzinfo=None))
    except (OSError, LookupError, OverflowError) as failure:
        raise ValueError(zone) from failure
    return round(offset.total_seconds() * 1000) if offset is not None else 0


def timestamps_as_text(column: Sequence[int | None]) -> list[str | None]:
    """Moments as ISO 8601 in UTC: ``2013-01-01T10:00:00.000Z``; nulls stay null."""
    present = [moment for moment in column if moment is not None]
    texts: Iterator[str] = map(iso_of, present)
    with suppress(OverflowError):
        out, spans = np.empty(len(present) * times.MAX_NUMBER, np.uint8), np.empty(2 * len(present), np.int64)
        size = times.write_numbers(np.array(present, np.int64), True, out, spans)
        if size >= 0:
            written = out.tobytes().decode()
            texts = (written[at + 1 : at + times.MAX_NUMBER - 1] for at in range(0, size, times.MAX_NUMBER))
    return [None if moment is None else next(texts) for moment in column]


def dates_as_text(column: Sequence[int | None]) -> list[str | None]:
    """Return the days of moments: ``2013-01-01``; nulls stay null."""
    return [text and text[:-14] for text in timestamps_as_text(column)]


_Read = TypeVar("_Read")

NULL: Final = b"null"
JsonType: TypeAlias = Any
"""A type for msgspec's decoder, built at run time."""

Slow: TypeAlias = Callable[[bytes], DynamicValue]
"""Reads the JSON text of a value, whatever it is; raises `Misfit`."""

json_of = msgspec.json.decode
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WHOLE = msgspec.json.Decoder(msgspec.Raw).decode


def text_for_people(value: Value) -> str:
    """Render a found value, short enough for a message."""
    shown = value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


class Misfit(Exception):  # noqa: N818 - control flow between these modules, never seen outside
    """Raised where a value is not of its schema.

    Attributes:
        place: the names and numbers that lead to it.
    """

    def __init__(self, expected: str, text: bytes) -> None:
        self.expected = expected
        self.text = text
        self.path: list[str] = []

    def __str__(self) -> str:
        shown = "nothing" if not self.text else text_for_people(self.text)
        where = "".join(self.path).removeprefix(".")
        return f"{where + ': ' if where else ''}expected {self.expected}, found {shown}"


@dataclass(frozen=True, slots=True)
class Node:
    """Reader of values of one schema.

    Attributes:
        strict: the type that msgspec reads, with None where a null may be.
        absent: msgspec's default of a missing field; `msgspec.NODEFAULT` for required ones.
        column: makes values of what msgspec has read, nulls included; None where they are the same.
        slow: the value of any JSON text, which is empty where a field is missing; may be slow and raises `Misfit`.
        check: of what msgspec has read; raises `Misfit`. None where nothing can be wrong with it.
        kind: type of a number, text or boolean that JSON has a form of; empty for others, and where nulls are replaced.
        nullable: whether null is a value.
    """

    strict: JsonType
    absent: object
    column: ConvertColumn | None
    slow: Slow
    check: Convert | None = None
    kind: str = ""
    nullable: bool = False


def field_names(names: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """Return valid Python names and the field of each; None if msgspec rejects one of the fields' names."""
    if any(character in '"\\' or character < " " for name in names for character in name):
        return None
    own = [f"f{at}" for at in range(len(names))]
    return own, dict(zip(own, names, strict=True))


def struct_node(nodes: Mapping[str, Node]) -> Node:
    """Return an object with these fields, as a dict."""
    kind = _struct_type(nodes)
    slow = _slow_struct(nodes)
    if kind is None:
        return slow_node(slow)
    names = tuple(nodes)
    own = kind.__struct_fields__
    columns = [(at, node.column) for at, node in enumerate(nodes.values()) if node.column is not None]
    checks = [(name, node.check) for name, node in zip(own, nodes.values(), strict=True) if node.check is not None]

    def opened(member: msgspec.Struct) -> Entries:
        values = list(msgspec.structs.astuple(member))
        for at, column in columns:
            values[at] = column((values[at],))[0]
        return dict(zip(names, values, strict=True))

    def check(member: msgspec.Struct) -> None:
        for name, check in checks:
            check(getattr(member, name))

    return Node(kind, msgspec.NODEFAULT, each(opened), slow, check if checks else None)


def _struct_type(nodes: Mapping[str, Node]) -> JsonType:
    names = field_names(tuple(nodes))
    if names is None:
        return None
    own, rename = names
    fields: NewColumn = [
        (name, node.strict) if node.absent is msgspec.NODEFAULT else (name, node.strict, node.absent)
        for name, node in zip(own, nodes.values(), strict=True)
    ]
    # Decoded values have no reference cycles: the garbage collector need not track them.
    return msgspec.defstruct("Read", fields, rename=rename, gc=False, kw_only=True)


def _slow_struct(nodes: Mapping[str, Node]) -> Slow:
    def read(text: bytes) -> Entries:
        members = _inside(_FIELDS, text, "an object")
        value = {}
        for name, node in nodes.items():
            try:
                value[name] = node.slow(bytes(members.get(name, b"")))
            except Misfit as misfit:
                misfit.path.insert(0, f".{name}")
                raise
        return value

    return read


def list_node(item: Node) -> Node:
    """Return the node for an array of *item*."""

    def read(text: bytes) -> NewColumn:
        values = []
        for at, raw in enumerate(_inside(_ITEMS, text, "an array")):
            try:
                values.append(item.slow(bytes(raw)))
            except Misfit as misfit:
                misfit.path.insert(0, f"[{at}]")
                raise
        return values

    column = item.column
    opened = None if column is None else each(lambda items: list(column(items)))
    return Node(list[item.strict], msgspec.NODEFAULT, opened, read, _all(item.check))  # type: ignore[name-defined]


def map_node(item: Node) -> Node:
    """Return the node for an object with any names and values of *item*."""

    def read(text: bytes) -> Entries:
        values = {}
        for name, raw in _inside(_FIELDS, text, "an object").items():
            try:
                values[name] = item.slow(bytes(raw))
            except Misfit as misfit:
                misfit.path.insert(0, f"[{name!r}]")
                raise
        return values

    column = item.column
    opened = (
        None if column is None else each(lambda entries: dict(zip(entries, column((*entries.values(),)), strict=True)))
    )
    inner = _all(item.check)
    check = None if inner is None else lambda entries: inner(entries.values())
    return Node(dict[str, item.strict], msgspec.NODEFAULT, opened, read, check)  # type: ignore[name-defined]


def pairs_node(key: Node, item: Node) -> Node:
    """Return the node for a map with keys that are not strings: an array of key-value pairs."""

    def read(text: bytes) -> Entries:
        values = {}
        for at, raw in enumerate(_inside(_ITEMS, text, "an array of pairs")):
            pair = _inside(_ITEMS, bytes(raw), "a pair")
            if len(pair) != 2:
                raise Misfit("a key and a value", bytes(raw))
            try:
                values[key.slow(bytes(pair[0]))] = item.slow(bytes(pair[1]))
            except Misfit as misfit:
                misfit.path.insert(0, f"[{at}]")
                raise
            except TypeError:
                raise Misfit("a key that can be looked up", bytes(pair[0])) from None
        return values

    return slow_node(read)


def slow_node(slow: Slow) -> Node:
    """Values that are always parsed one by one in Python."""

    def column(texts: Column) -> NewColumn:
        return [slow(bytes(raw)) for raw in texts]

    return Node(msgspec.Raw, msgspec.Raw(b""), column, slow, lambda raw: slow(bytes(raw)), nullable=True)


def nullable(node: Node, *, required: bool, default: Value = None, omits: bool = False) -> Node:
    """Return the node with nulls and missing values allowed, read as *default*, or with both refused.

    Args:
        node: how values that are not null are read.
        required: whether there is to be a value.
        default: replacement of a null, if not None.
        omits: whether a required value may be missing all the same, which is read as None; null is refused.
    """
    inner = node.slow

    def slow(text: bytes) -> DynamicValue:
        if text and text != NULL:
            return inner(text)
        if required and (text or not omits):
            raise Misfit("a value", text)
        return default

    if node.strict is msgspec.Raw:
        return slow_node(slow)
    if required and not omits:
        return replace(node, slow=slow)
    column = node.column
    if default is not None:
        column = _or_default(column, default)
    checked = node.check
    check = None if checked is None else lambda value: None if value is None else checked(value)
    kind = node.kind if default is None else ""
    return Node(node.strict if required else node.strict | None, None, column, slow, check, kind, not required)


def _or_default(column: ConvertColumn | None, default: Value) -> ConvertColumn:
    def read(texts: Column) -> NewColumn:
        values = texts if column is None else column(texts)
        return [default if value is None else value for value in values]

    return read


def each(convert: Convert) -> Callable[[Column], NewColumn]:
    """Return a column of the results of *convert* for each value except nulls."""
    return lambda values: [None if value is None else convert(value) for value in values]


def _all(check: Convert | None) -> Convert | None:
    if check is None:
        return None

    def every(values: Iterable[DynamicValue]) -> None:
        for value in values:
            check(value)

    return every


def json_text(text: bytes) -> bytes:
    """Return the JSON text without surrounding white space.

    Raises:
        Misfit: it is no JSON.
    """
    return bytes(_inside(_WHOLE, text, "JSON"))


def _inside(read: Callable[[bytes], _Read], text: bytes, expected: str) -> _Read:
    try:
        return read(text)
    except (ValueError, RecursionError):
        raise Misfit(expected, text) from None


Leaf: TypeAlias = Callable[[Schema, int], Node]
"""Builds the reader of a primitive schema; the number is a decimal's precision."""

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_NOT_FINITE: Final[Mapping[str, float]] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "+INF": float("inf"),
    "-Infinity": float("-inf"),
    "-INF": float("-inf"),
}
EXACT: Final = Context(prec=10_000_000, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Moves a decimal's point without rounding it."""

LARGEST: Final = 100_000
"""The largest scale and exponent of a decimal that is worked with; more is an attack, not a number."""


def _schemaless_type() -> JsonType:
    """Return msgspec's type for schemaless data: it refuses the rare integers beyond 64 bits, down to some depth."""
    integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    kind: JsonType = str | integer | float | bool | None
    scalar = kind
    for _ in range(8):
        kind = scalar | list[kind] | dict[str, kind]
    return kind


Schemaless: Final = _schemaless_type()


def read_schemaless(text: bytes) -> Value:
    """Return JSON as a schemaless value; an integer beyond 64 bits is a `BigInt`, a number beyond a double an infinity.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        value = json_of(text)
    except msgspec.ValidationError:
        # A number that a double cannot hold; what else would be wrong, json finds as well.
        value = json.loads(text, parse_constant=_refuse)
    return _widened(value)


def _refuse(name: str) -> Value:
    raise ValueError(name)


def _widened(value: Value) -> Value:
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else BigInt(value)
    if type(value) is dict:
        return {key: _widened(item) for key, item in value.items()}
    if type(value) is list:
        return [_widened(item) for item in value]
    return value


def _parsed(text: bytes, expected: str) -> DynamicValue:
    try:
        return json_of(text)
    except (ValueError, RecursionError):
        raise Misfit(expected, text) from None


def _integer(bits: int) -> tuple[JsonType, Slow]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    expected = f"an integer of {bits} bits"

    def slow(text: bytes) -> int:
        value = _parsed(text, expected)
        if type(value) is not int or not low <= value <= high:
            raise Misfit(expected, text)
        return value

    return Annotated[int, msgspec.Meta(ge=low, le=high)], slow


def _single(value: float) -> float:
    return c_float(value).value


def _slow_float(text: bytes) -> float:
    try:
        value = json_of(text)
    except msgspec.ValidationError:
        # Beyond the range of a double; infinity in Java.
        return float(text)
    except (ValueError, RecursionError):
        raise Misfit("a number", text) from None
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) not in (int, float):
        raise Misfit("a number", text)
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _slow_string(text: bytes) -> str:
    """Return a text unchanged, and the JSON of any other value as it is written."""
    if text[:1] == b'"':
        return str(_parsed(text, "a string"))
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Misfit("UTF-8", text) from None


def _slow_boolean(text: bytes) -> bool:
    if text not in (b"true", b"false"):
        raise Misfit("true or false", text)
    return text == b"true"


def _slow_bytes(text: bytes) -> bytes:
    value = _parsed(text, "base64")
    try:
        if type(value) is not str:
            raise Misfit("base64", text)
        return b64decode("".join(value.split()), validate=True)
    except ValueError:
        raise Misfit("base64", text) from None


def _slow_schemaless(text: bytes) -> Value:
    try:
        return read_schemaless(text)
    except (ValueError, RecursionError):
        raise Misfit("JSON", text) from None


def _moment_reader(read: Callable[[str], Moment], expected: str) -> Slow:
    def slow(text: bytes) -> Moment:
        value = _parsed(text, expected)
        try:
            if type(value) is str:
                return read(value)
        except ValueError:
            pass
        raise Misfit(expected, text)

    return slow


def _slow_timestamp(text: bytes) -> Moment:
    """Return a text, or seconds as Spark has them."""
    if text[:1] == b'"':
        moment: Moment = _text_timestamp(text)
        return moment
    value = _parsed(text, "a time")
    if type(value) is not int or not -(2**63) <= value * 1000 < 2**63:
        raise Misfit("a time", text)
    return Moment(value * 1000)


_text_timestamp = _moment_reader(read_timestamp, "a time in ISO 8601")
_slow_date = _moment_reader(read_date, "a date in ISO 8601")


def _decimal(scale: int, digits: int) -> Slow:
    """Return a number, or a text with one, rounded to the scale."""
    expected = f"a decimal of {digits} digits, {scale} of them after the point"
    unit = Decimal(1).scaleb(-scale)
    context = Context(prec=digits, rounding=ROUND_HALF_UP)

    def slow(text: bytes) -> Decimal:
        try:
            number = _number(text)
            if number.adjusted() > digits:
                raise Misfit(expected, text)
            return number.quantize(unit, context=context)
        except (InvalidOperation, ValueError):
            raise Misfit(expected, text) from None

    return slow


def _number(text: bytes) -> Decimal:
    """Return the number that a JSON number is, or a text, which may group its digits by commas."""
    if text[:1] == b'"':
        digits = str(json_of(text)).replace(",", "")
        if "_" in digits or digits != digits.strip():
            raise ValueError(digits)
        number = Decimal(digits)
    else:
        number = msgspec.json.decode(text, type=Decimal)
    if not number.is_finite():
        raise ValueError(text)
    return number


_TEXTS: Final[Mapping[str, tuple[JsonType, Slow]]] = {
    **{name: _integer(bits) for name, bits in _BITS.items()},
    "float64": (float, _slow_float),
    "boolean": (bool, _slow_boolean),
    "string": (str, _slow_string),
    "bytes": (bytes, _slow_bytes),
    ANY: (Schemaless, _slow_schemaless),
}


def _plain(schema: Schema) -> Node:
    """Return the node that both notations share."""
    if schema.type == "float32":
        return Node(float, msgspec.NODEFAULT, each(_single), lambda text: _single(_slow_float(text)), kind="float32")
    strict, slow = _TEXTS[schema.type]
    return Node(strict, msgspec.NODEFAULT, None, slow, kind="" if schema.type in ("bytes", ANY) else schema.type)


def declared_leaf(schema: Schema, digits: int) -> Node:
    """Return a value as a declared type has it: times in ISO 8601, decimals as numbers."""
    if schema.logical == DECIMAL:
        # msgspec's own reader of decimals is more lenient than it may be.
        return slow_node(_decimal(schema.scale, digits))
    if schema.logical == TIMESTAMP:
        return Node(datetime, msgspec.NODEFAULT, each(moment_of), _slow_timestamp)
    if schema.logical == DATE:
        return Node(date, msgspec.NODEFAULT, each(day_of), _slow_date)
    return _plain(schema)


def wire_leaf(schema: Schema, _digits: int) -> Node:
    """Return a value as JsonConverter writes it: times as numbers, decimals as the bytes of their unscaled integer."""
    logical = schema.logical
    if logical == DECIMAL:
        scale = schema.scale
        if abs(scale) > LARGEST:
            raise ValueError(f"expected a decimal's scale of at most {LARGEST}, found {scale}")

        def decimal(unscaled: bytes) -> Decimal:
            return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, EXACT)

        return Node(bytes, msgspec.NODEFAULT, each(decimal), _wire_decimal(decimal))
    if logical in (DATE, TIME, TIMESTAMP):
        strict, slow = _TEXTS[schema.type]
        convert: Callable[[int], Moment] = _of_day if logical == DATE else Moment
        return Node(strict, msgspec.NODEFAULT, each(convert), lambda text: convert(slow(text)))
    return _plain(schema)


def _of_day(days: int) -> Moment:
    return Moment(days * MILLISECONDS_PER_DAY)


def _wire_decimal(decimal: Callable[[bytes], Decimal]) -> Slow:
    def slow(text: bytes) -> Decimal:
        if text[:1] == b'"':
            return decimal(_slow_bytes(text))
        try:
            number = _number(text)
        except ValueError:
            raise Misfit("a decimal", text) from None
        if abs(number.adjusted()) > LARGEST:
            raise Misfit("a decimal", text)
        return number

    return slow
