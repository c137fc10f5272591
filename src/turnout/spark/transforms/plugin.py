"""Transforms of plug-ins: any transform with a method ``columns``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

from pyspark.sql import Column

from turnout.spark.record import Record, Typed

__all__ = ["ColumnTransform", "plugged"]

PARTS = ("topic", "partition", "timestamp", "headers")


@runtime_checkable
class ColumnTransform(Protocol):
    """What a plug-in's transform offers beside being a `turnout.transforms.Transform`."""

    def columns(self, record: Mapping[str, Column]) -> Mapping[str, Column]:
        """The parts of the record that change, of topic, partition, timestamp, headers, key and value.

        A new key or value has the type of the old one.
        """
        ...


def plugged(transform: ColumnTransform, record: Record) -> Record:
    """The record after a plug-in's transform."""
    parts = {name: getattr(record, name) for name in PARTS}
    given = {**parts, "key": record.key.column, "value": record.value.column}
    changed = dict(transform.columns(given))
    sides = {
        name: Typed(changed.pop(name), getattr(record, name).schema) for name in ("key", "value") if name in changed
    }
    return replace(record, **changed, **sides)
