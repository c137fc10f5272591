"""TimezoneConverter: times of change events in another time zone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from datetime import timezone as fixed_zone
from datetime import tzinfo as time_zone
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from turnout.errors import RecordError
from turnout.records import Batch, Block, Moment, Positions, Schema
from turnout.records.schema import TIMESTAMP
from turnout.records.types import DynamicValue, NewColumns
from turnout.transforms.base import Errors, Side, Transform, change_rows
from turnout.transforms.debezium.extract_new_record_state import PACKAGE, is_envelope
from turnout.transforms.fields import default_value
from turnout.transforms.options import LIST, STRING, Option, OptionError, Options

_TIME: Final = "io.debezium.time."
_UNITS: Final = {f"{_TIME}Timestamp": 10**3, f"{_TIME}MicroTimestamp": 10**6, f"{_TIME}NanoTimestamp": 10**9}
"""Units in a second of schemas of numbers."""

_EPOCHS: Final = {"ts_ms": 10**3, "ts_us": 10**6, "ts_ns": 10**9}
_ZONED_TIMESTAMP: Final = f"{_TIME}ZonedTimestamp"
_ZONED_TIME: Final = f"{_TIME}ZonedTime"
_OFFSET: Final = re.compile(r"([+-])([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?")
_RULES: Final = re.compile(r'\[["\w\s.]+:(?:["\w\s.]+(?::["\w\s.]+)?(?:,|\]$))+', re.ASCII)
"""Rules as Debezium takes them: only the first may have three parts where others follow."""

_CLOCK: Final = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?(Z|[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)"
_ZONED: Final = re.compile(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})T{_CLOCK}", re.IGNORECASE)
_DAY_TIME: Final = re.compile(_CLOCK, re.IGNORECASE)
_PARTS: Final = ("before", "after", "source")
_EPOCH: Final = datetime(1970, 1, 1)
_LIMIT: Final = 1 << 63

Names: TypeAlias = frozenset[str]


class _Rules(NamedTuple):
    """Fields by the topic, the table, or either, that an option lists; no fields stand for all."""

    topics: Mapping[str, Names]
    tables: Mapping[str, Names]
    either: Mapping[str, Names]

    @classmethod
    def parse(cls, texts: tuple[str, ...]) -> _Rules:
        """Read the rules; one without a prefix has that of the rules before it, as in Debezium."""
        found: tuple[dict[str, set[str]], ...] = ({}, {}, {})
        prefix = ""
        for text in texts:
            parts = text.split(":")
            if len(parts) > 1 and parts[0].lower() in ("source", "topic"):
                prefix, parts = parts[0], parts[1:]
            fields = found[0 if prefix == "topic" else 1 if prefix == "source" else 2].setdefault(parts[0], set())
            fields.update(parts[1:2])
        return cls(*({name: frozenset(fields) for name, fields in rules.items()} for rules in found))

    def fields(self, topic: str | None, table: str | None) -> Names | None:
        """Return the listed fields of an event; None if it is not listed."""
        for rules, name in ((self.topics, topic), (self.tables, table), (self.either, topic), (self.either, table)):
            if name is not None and name in rules:
                return rules[name]
        return None


@dataclass(frozen=True, slots=True)
class TimezoneConverter(Transform):
    """See ``summary``. Debezium's transform; other records than change events are unchanged."""

    summary: ClassVar[str] = "Converts times in change events to another time zone."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "TimezoneConverter",)
    sided: ClassVar[bool] = False
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("converted.timezone", STRING, "The zone: `America/Los_Angeles` or `+08:00`.", valid="a zone"),
        Option(
            "include.list",
            LIST,
            "What to convert: `source:TABLE`, `source:TABLE:FIELD`, `topic:TOPIC`, `topic:TOPIC:FIELD`, `NAME:FIELD`; "
            "a field may begin with `before.`, `after.` or `source.`.",
            default=(),
        ),
        Option("exclude.list", LIST, "What to leave, in the same form.", default=()),
    )

    converted_timezone: str = "UTC"
    include_list: tuple[str, ...] = ()
    exclude_list: tuple[str, ...] = ()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check the zone and the rules."""
        if options["include.list"] and options["exclude.list"]:
            raise OptionError("exclude.list", "expected one of include.list and exclude.list, found both")
        for name in ("include.list", "exclude.list"):
            if options[name] and not _RULES.fullmatch(f"[{', '.join(options[name])}]"):
                expected = "rules as source:TABLE:FIELD, topic:TOPIC:FIELD or NAME:FIELD, as Debezium takes them"
                raise OptionError(name, f"expected {expected}, found {','.join(options[name])!r}")
        if _zone(options["converted.timezone"] or "") is None:
            found = options["converted.timezone"]
            raise OptionError(
                "converted.timezone", f"expected a zone as America/Los_Angeles, or an offset as +08:00, found {found!r}"
            )
        return super(TimezoneConverter, cls).from_options(options, side)

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE,)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Convert the times in the events of these rows."""
        errors: Errors = {}
        rules = _Rules.parse(self.include_list or self.exclude_list)

        def change(block: Block, wrong: Errors) -> Block:
            if not is_envelope(block):
                return block
            if block.schema is None:
                raise RecordError("the event has no schema, which would say what fields are times, and of what unit")
            columns: NewColumns = dict(block.columns)
            nulls = [None] * len(block)
            parts = {part: list(columns.get(part) or nulls) for part in _PARTS if part in columns}
            sources = parts.get("source", nulls)
            for index, row in enumerate(block.rows.tolist()):
                chosen = self._chosen(rules, batch.topics[row], _table_of(sources[index]))
                if chosen is None:
                    continue
                try:
                    for part, values in parts.items():
                        values[index] = self._converted(part, values[index], _field(block.schema, part), chosen)
                except RecordError as error:
                    wrong[index] = error
            return block.with_columns(block.schema, columns | parts, checked=block.checked)

        change_rows(batch.value, rows, errors, change)
        return errors

    def _chosen(self, rules: _Rules, topic: str | None, table: str | None) -> _Choice | None:
        """Return the fields to convert in an event; None for none."""
        fields = rules.fields(topic, table)
        if self.exclude_list:
            if fields is None:
                return _ALL if table is not None or topic is not None else None
            return _Choice(fields, excluded=True) if fields else None
        if self.include_list:
            return None if fields is None else _Choice(fields, excluded=False) if fields else _ALL
        return _ALL if table is not None or topic is not None else None

    def _converted(self, part: str, value: DynamicValue, schema: Schema | None, choice: _Choice) -> DynamicValue:
        """Return a row or the source with its times converted."""
        if not isinstance(value, dict) or schema is None or schema.type != "struct" or not choice.reaches(part):
            return value
        converted = dict(value)
        for field in schema.fields:
            convert = _CONVERSIONS.get(field.schema.name or "")
            if part == "source" and field.schema.name is None and field.name in _EPOCHS:
                convert = _epoch(_EPOCHS[field.name])
            if convert is None or not choice.takes(part, field.name):
                continue
            old = value.get(field.name)
            old = default_value(field.schema) if old is None else old
            if old is not None:
                converted[field.name] = convert(old, _known_zone(self.converted_timezone))
        return converted


class _Choice(NamedTuple):
    """Fields to convert, or to leave; none stand for all."""

    fields: Names
    excluded: bool

    def reaches(self, part: str) -> bool:
        """Return whether anything in a part of the event is converted: in the source only what is named."""
        return part != "source" or any(name.startswith("source.") for name in self.fields)

    def takes(self, part: str, name: str) -> bool:
        """Return whether a field of a part is converted."""
        if not self.fields:
            return True
        listed = f"{part}.{name}" in self.fields or (part != "source" and name in self.fields)
        return listed != self.excluded


_ALL: Final = _Choice(frozenset(), excluded=False)


def _table_of(source: DynamicValue) -> str | None:
    table = source.get("table") if isinstance(source, dict) else None
    return table if isinstance(table, str) else None


def _field(schema: Schema | None, name: str) -> Schema | None:
    return None if schema is None else schema.field(name)


@lru_cache(maxsize=16)
def _zone(name: str) -> time_zone | None:
    """Return the zone of a name or an offset; None if there is none."""
    found = _OFFSET.fullmatch(name)
    if found is None:
        return ZoneInfo(name) if name in available_timezones() else None
    sign, hours, minutes, seconds = found[1], int(found[2]), int(found[3]), int(found[4] or 0)
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if minutes > 59 or seconds > 59 or offset > timedelta(hours=18):
        return None
    return fixed_zone(-offset if sign == "-" else offset)


def _known_zone(name: str) -> time_zone:
    zone = _zone(name)
    assert zone is not None
    return zone


_Conversion: TypeAlias = Callable[[DynamicValue, time_zone], DynamicValue]


def _offset_seconds(local: datetime, zone: time_zone) -> int:
    """Return the zone's offset at a local time; in a gap, or where it is there twice, the one before the change."""
    offset = local.replace(tzinfo=zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _utc(seconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise RecordError(f"a time {seconds:,} s from 1970 is outside of the years 1 to 9999") from None


def _whole(value: object) -> int:
    if type(value) is bool or not isinstance(value, int):
        raise RecordError(f"expected a whole number as the time, found {value!r:.60}")
    return int(value)


def _local(units: int) -> _Conversion:
    """Return the conversion of numbers that are times of a clock without a zone: it is taken for the zone's."""

    def convert(value: object, zone: time_zone) -> int:
        number = _whole(value)
        converted = number - _offset_seconds(_utc(number // units), zone) * units
        if not -_LIMIT <= converted < _LIMIT:
            raise RecordError(f"the time {number} is out of range in that zone")
        return Moment(converted) if isinstance(value, Moment) else converted

    return convert


def _epoch(units: int) -> _Conversion:
    """Return the conversion of the times of the source, to which the zone's offset is added."""

    def convert(value: object, zone: time_zone) -> int:
        number = _whole(value)
        offset = _utc(number // units).replace(tzinfo=UTC).astimezone(zone).utcoffset() or timedelta()
        return number + int(offset.total_seconds()) * units

    return convert


def _zoned_timestamp(value: object, zone: time_zone) -> str:
    """Convert a text; the offset is that of its own date and clock in the zone, as in Debezium."""
    found = _ZONED.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise RecordError(f"expected a time as 2020-01-31T10:15:00Z, found {value!r:.60}")
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    try:
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0))
        seconds = _offset_seconds(local, zone)
        moved = local + timedelta(seconds=seconds - _seconds_of(offset))
    except (ValueError, OverflowError) as problem:
        raise RecordError(f"the time {value!r:.60} is none: {problem}") from None
    return f"{moved:%Y-%m-%d}".rjust(10, "0") + f"T{moved:%H:%M:%S}" + _fraction(fraction) + _offset_text(seconds)


def _zoned_time(value: object, zone: time_zone) -> str:
    """Convert the text of a time of day; the offset is the zone's at present, as in Debezium."""
    found = _DAY_TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise RecordError(f"expected a time as 10:15:00Z, found {value!r:.60}")
    hour, minute, second, fraction, offset = found.groups()
    try:
        day_time = time_of_day(int(hour), int(minute), int(second or 0))
    except ValueError as problem:
        raise RecordError(f"the time {value!r:.60} is none: {problem}") from None
    present = datetime.fromtimestamp(time.time(), UTC).astimezone(zone).utcoffset() or timedelta()
    seconds = int(present.total_seconds())
    moved = datetime.combine(_EPOCH, day_time) + timedelta(seconds=seconds - _seconds_of(offset))
    return f"{moved:%H:%M:%S}" + _fraction(fraction) + _offset_text(seconds)


def _seconds_of(offset: str) -> int:
    if offset in "Zz":
        return 0
    hours, minutes, seconds = (int(part) for part in [*offset[1:].split(":"), "0"][:3])
    if minutes > 59 or seconds > 59 or hours * 3600 + minutes * 60 + seconds > 64_800:
        raise RecordError(f"expected an offset of at most 18:00, found {offset}")
    total = hours * 3600 + minutes * 60 + seconds
    return -total if offset[0] == "-" else total


def _offset_text(seconds: int) -> str:
    if not seconds:
        return "Z"
    minutes, rest = divmod(abs(seconds), 60)
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" + (f":{rest:02}" if rest else "")


def _fraction(digits: str | None) -> str:
    kept = (digits or "").rstrip("0")
    return f".{kept}" if kept else ""


_CONVERSIONS: Final[Mapping[str, _Conversion]] = {
    **{name: _local(units) for name, units in _UNITS.items()},
    TIMESTAMP: _local(10**3),
    _ZONED_TIMESTAMP: _zoned_timestamp,
    _ZONED_TIME: _zoned_time,
}
