"""Requests of a route's endpoint to Spark, without Spark."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import SparkSession

__all__ = ["RecordedReads"]


class RecordedReads:
    """Stands in for a session and its reader: keeps the format and the options that it is given."""

    def __init__(self) -> None:
        self.format_name = ""
        self.given: dict[str, str] = {}
        self.dataSource = self.read = self.readStream = self

    @property
    def session(self) -> SparkSession:
        """This, as what the code under test takes."""
        return cast("SparkSession", self)

    def register(self, _: type) -> None:
        """Spark would note the format."""

    def format(self, name: str) -> RecordedReads:
        self.format_name = name
        return self

    def options(self, **options: str) -> RecordedReads:
        self.given.update(options)
        return self

    def option(self, name: str, value: str) -> RecordedReads:
        self.given[name] = value
        return self

    def load(self) -> RecordedReads:
        return self

    def select(self, *_: Any) -> RecordedReads:
        return self
