"""One record on its way through a chain: its parts as columns, with what is known of their schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.typed import Typed
from turnout.transforms.base import Side
from turnout.transforms.schema import Field, Schema

DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"

__all__ = ["DATA_EXCEPTION", "Failure", "Record", "Step", "copied", "names_of_columns", "require"]


@dataclass(frozen=True)
class Failure:
    """One way in which a record can fail a stage.

    Attributes:
        when: true where it fails; never null.
        exception: the class that Kafka throws.
    """

    when: Column
    exception: str
    message: Column


def names_of_columns() -> Iterator[str]:
    """Names that no column of a record has, one after the other."""
    return (f"_made{number}" for number in count())


@dataclass(frozen=True)
class Record:
    """The record before or after a stage.

    Attributes:
        offset: None for records of a source connector.
        names: for columns that hold what is made on the way.
        headers: typed headers carry (key, variant, schema text); the others (key, bytes).
    """

    topic: Column
    partition: Column
    offset: Column | None
    timestamp: Column
    key: Typed
    value: Typed
    headers: Column
    typed_headers: bool = False
    names: Iterator[str] = field(default_factory=names_of_columns, compare=False)

    def side(self, side: Side) -> Typed:
        """The key or the value."""
        return self.key if side is Side.KEY else self.value

    def with_side(self, side: Side, new: Typed) -> Record:
        """The record with another key or value."""
        return replace(self, key=new) if side is Side.KEY else replace(self, value=new)


@dataclass
class Step:
    """What one transform does: the record after it, and the failures it can have, first one first."""

    record: Record
    failures: list[Failure] = field(default_factory=list)
    drops: bool = False
    bound: list[tuple[str, Column]] = field(default_factory=list)

    def bind(self, column: Column) -> Column:
        """The same column under a name, for use in several places: it is computed once, in a projection of its own.

        Without this an expression that uses a part twice, of a part that uses a part twice, doubles at each level.
        Bound columns are computed only where the stage applies, but before its failures are looked at.
        """
        name = next(self.record.names)
        self.bound.append((name, column))
        return F.col(name)

    def fail(self, when: Column, message: str | Column, exception: str = DATA_EXCEPTION) -> None:
        """Note that the record fails where *when* is true; null counts as false."""
        text = F.lit(message) if isinstance(message, str) else message
        self.failures.append(Failure(F.coalesce(when, F.lit(False)), exception, text))


def copied(
    side: Typed, step: Step, keep: Callable[[str], bool] = lambda _: True, *, defaults: bool = True
) -> list[tuple[Field, Column]]:
    """The fields of a struct as a copy of it would store them, with the failures of storing a required null."""
    assert side.schema is not None
    found: list[tuple[Field, Column]] = []
    for one in side.schema.fields:
        if not keep(one.name):
            continue
        column = side.field(one.name, defaults=defaults).column
        require(step, side.present, one.name, column, one.schema)
        found.append((one, column))
    return found


def require(step: Step, present: Column, name: str, column: Column, schema: Schema) -> None:
    """Fail where null would be stored in a field that is not optional, or in its elements."""
    if not schema.optional:
        message = f'Invalid value: null used for required field: "{name}", schema type: {schema.type.upper()}'
        step.fail(present & column.isNull(), message)
    if schema.type == "array" and schema.values is not None and not schema.values.optional:
        message = f'Invalid value: null used for required element of field "{name}"'
        step.fail(present & F.exists(column, lambda item: item.isNull()), message)
    if schema.type == "map" and schema.values is not None and not schema.values.optional:
        message = f'Invalid value: null used for required element of field "{name}"'
        step.fail(present & F.exists(F.map_values(column), lambda item: item.isNull()), message)
