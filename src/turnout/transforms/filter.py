"""Filter: drop the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, Transform


@dataclass(frozen=True, slots=True)
class Filter(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Drops every record that reaches it: guard it with a predicate."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop them."""
        batch.filter(rows)
        return {}
