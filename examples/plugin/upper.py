"""A transform of one's own: upper-case one field of a typed value, or of a schemaless one.

A package that holds it names it in its pyproject.toml, and chains can then say ``type: UpperField``::

    [project.entry-points."turnout.transforms"]
    UpperField = "upper:UpperField"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.transforms import Option, Transform


@dataclass(frozen=True, slots=True)
class UpperField(Transform):
    summary: ClassVar[str] = "Writes one text field in upper case."
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (Option("field", "STRING", "The field."),)

    field: str = ""

    def columns(self, record: Mapping[str, Column]) -> Mapping[str, Column]:
        value = record["value"]
        return {"value": value.withField(self.field, F.upper(value[self.field]))}
