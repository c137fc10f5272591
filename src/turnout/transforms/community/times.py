"""Transforms of the record's time: ExtractTimestamp, TimestampNow, TimestampNowField."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Moment, Positions, Schema, Shape
from turnout.records.schema import DATE, TIME, TIMESTAMP
from turnout.records.types import Column, NewColumn, NewColumns
from turnout.transforms.base import Errors, NamedField, Step, Transform, flat_fields, unchanged
from turnout.transforms.fields import copied, fields_on, read_map, read_struct, require_object
from turnout.transforms.options import LIST, LONG, STRING, Option, non_empty, non_empty_list, one_of

_JEREMYS: Final = "com.github.jcustenborder.kafka.connect.transform.common."
_PURPOSE: Final = "timestamp extraction"
_MAX: Final = (1 << 63) - 1
_SECONDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "SECONDS": 1,
        "MINUTES": 60,
        "HOURS": 3_600,
        "HALF_DAYS": 43_200,
        "DAYS": 86_400,
        "WEEKS": 604_800,
        "MONTHS": 2_629_746,
        "YEARS": 31_556_952,
        "DECADES": 315_569_520,
        "CENTURIES": 3_155_695_200,
    }
)
"""Seconds of Java's ChronoUnits."""


def now() -> int:
    """Return the machine's time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ExtractTimestamp(Transform):
    """See ``summary``. Jeremy Custenborder's transform, and Aiven's, which has paths and a resolution."""

    summary: ClassVar[str] = "Takes the record's timestamp from a field: a whole number, or a date object."
    java_names: ClassVar[tuple[str, ...]] = (
        _JEREMYS + "ExtractTimestamp",
        "io.aiven.kafka.connect.transforms.ExtractTimestamp",
    )
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    sets_time: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("field.name", STRING, "The field; with dots a path, if no field is named so.", check=non_empty),
        Option(
            "timestamp.resolution",
            STRING,
            "The unit of whole numbers.",
            default="milliseconds",
            check=one_of("milliseconds", "seconds"),
            valid="milliseconds, seconds",
        ),
    )

    field_name: str = ""
    timestamp_resolution: str = "milliseconds"

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        yield NamedField("field.name", self.side, tuple(self.field_name.split(".")))

    def plan(self, shape: Shape) -> Step:
        """Find the field."""
        require_object(shape, _PURPOSE)
        read = self._of_maps if shape.schema is None else self._of_structs(shape.schema)

        def run(block: Block, where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
            times: NewColumn = list(batch.timestamps)
            rows = block.rows.tolist()
            for index, value in enumerate(read(block, errors)):
                if (where is None or where[index]) and index not in errors:
                    try:
                        times[rows[index]] = self._time(value)
                    except RecordError as error:
                        errors[index] = error
            batch.timestamps = times
            return block

        return Step(run, in_place=True)

    def _of_structs(self, schema: Schema) -> Callable[[Block, Errors], Column]:
        path = self._path(schema.field(self.field_name) is not None)
        fields = fields_on(schema, path)
        if fields is None:
            raise RecordError(f"the schema has no field {self.field_name!r}")
        last = fields[-1].schema
        if last.type != "int64" and last.logical not in (DATE, TIME):
            raise RecordError(f"expected {self.field_name!r} to be an int64 or a date, found {last.type}")
        return lambda block, _errors: read_struct(block, fields, defaults=True)

    def _of_maps(self, block: Block, errors: Errors) -> Column:
        path = self._path(self.field_name in block.columns)
        return read_map(block, path, _PURPOSE, errors) or [None] * len(block)

    def _path(self, is_name: bool) -> tuple[str, ...]:
        return (self.field_name,) if is_name else tuple(self.field_name.split("."))

    def _time(self, value: object) -> int:
        if value is None:
            raise RecordError(f"Field '{self.field_name}' cannot be null.")
        if isinstance(value, Moment):
            return int(value)
        if type(value) is not int:
            raise RecordError(f"expected {self.field_name!r} to be an int64 or a date, found {type(value).__name__}")
        if self.timestamp_resolution == "milliseconds":
            return value
        return max(-_MAX - 1, min(value * 1000, _MAX))


@dataclass(frozen=True, slots=True)
class TimestampNow(Transform):
    """See ``summary``. Jeremy Custenborder's transform."""

    summary: ClassVar[str] = "Sets the record's timestamp to the time at which it is processed."
    java_names: ClassVar[tuple[str, ...]] = (_JEREMYS + "TimestampNow",)
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    sets_time: ClassVar[bool] = True

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Set the time of these records; those of a batch have one."""
        times: NewColumn = list(batch.timestamps)
        time_ms = now()
        for row in rows.tolist():
            times[row] = time_ms
        batch.timestamps = times
        return {}


@dataclass(frozen=True, slots=True)
class TimestampNowField(Transform):
    """See ``summary``. Jeremy Custenborder's transform, which adds one unit whatever the amount is."""

    summary: ClassVar[str] = "Sets fields to the time at which the record is processed."
    java_names: ClassVar[tuple[str, ...]] = (_JEREMYS + "TimestampNowField",)
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("fields", LIST, "The fields; one that is missing is added.", check=non_empty_list, distinct=True),
        Option("add.amount", LONG, "Number of units to add to the time; below 1 none.", default=0),
        Option(
            "add.chronounit", STRING, "The unit.", default="DAYS", check=one_of(*_SECONDS), valid=", ".join(_SECONDS)
        ),
        Option(
            "target.type",
            STRING,
            "A date object, or seconds since 1970.",
            default="Date",
            check=one_of("Date", "Unix"),
            valid="Date, Unix",
        ),
    )

    fields: tuple[str, ...] = ()
    add_amount: int = 0
    add_chronounit: str = "DAYS"
    target_type: str = "Date"

    def named_fields(self) -> Iterator[NamedField]:
        """None: a field that is missing is added."""
        return flat_fields("fields", self.side, ())

    def plan(self, shape: Shape) -> Step:
        """Set the fields; null stays null."""
        if shape.kind == "null":
            return Step(unchanged)
        require_object(shape, "timestamp field")
        schema = None if shape.schema is None else self._schema(shape.schema)

        def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
            columns: NewColumns = dict(
                block.columns if schema is None else copied(block, errors, without=set(self.fields))
            )
            columns.update(dict.fromkeys(self.fields, [self._time()] * len(block)))
            if schema is not None:
                columns = {field.name: columns[field.name] for field in schema.fields}
            return block.with_columns(schema, columns)

        return Step(run)

    def _schema(self, schema: Schema) -> Schema:
        """Return the schema with the fields; one of another type loses its place to a new one at the end."""
        new = Schema("int64") if self.target_type == "Unix" else Schema("int64", name=TIMESTAMP, version=1)
        kept = [field for field in schema.fields if field.name not in self.fields or self._fits(field.schema)]
        names = {field.name for field in kept}
        added = [Field(name, new) for name in self.fields if name not in names]
        return schema.with_(fields=(*kept, *added), default=None)

    def _fits(self, schema: Schema) -> bool:
        return schema.type == "int64" and (self.target_type == "Unix" or schema.name == TIMESTAMP)

    def _time(self) -> int:
        added = _SECONDS[self.add_chronounit] * 1000 * max(self.add_amount, 0)
        time_ms = now() + added
        return time_ms // 1000 if self.target_type == "Unix" else Moment(time_ms)
