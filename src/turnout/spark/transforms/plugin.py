"""Transforms of plug-ins: any transform with a method ``columns``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

from pyspark.sql import Column

from turnout.errors import NotCompilableError
from turnout.spark.record import Record
from turnout.spark.typed import Typed

__all__ = ["ColumnTransform", "plugged"]


@runtime_checkable
class ColumnTransform(Protocol):
    """What a plug-in's transform offers beside being a `turnout.transforms.Transform`."""

    def columns(self, record: Mapping[str, Column]) -> Mapping[str, Column]:
        """The parts of the record that change, of topic, partition, timestamp, headers, key and value.

        A new key or value has the type of the old one.
        """
        ...


def plugged(transform: ColumnTransform, record: Record, bind: Callable[[Column], Column]) -> Record:
    """The record after a plug-in's transform; *bind* lets it use its key and value as often as it likes."""
    given = {
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp,
        "headers": record.headers,
        "key": bind(record.key.column),
        "value": bind(record.value.column),
    }
    after = {**given, **transform.columns(given)}
    unknown = after.keys() - given.keys()
    if unknown:
        raise NotCompilableError(transform, f"it changes {', '.join(sorted(unknown))}, which a record does not have")
    return replace(
        record,
        topic=after["topic"],
        partition=after["partition"],
        timestamp=after["timestamp"],
        headers=after["headers"],
        key=record.key if after["key"] is given["key"] else Typed(after["key"], record.key.schema),
        value=record.value if after["value"] is given["value"] else Typed(after["value"], record.value.schema),
    )
