"""Flatten: nested fields become fields of the top, under joined names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.transforms.base import Transform
from turnout.transforms.options import Option

__all__ = ["Flatten"]


@dataclass(frozen=True, slots=True)
class Flatten(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Makes one flat struct or map of nested ones; names are joined by the delimiter."
    options: ClassVar[tuple[Option, ...]] = (
        Option("delimiter", "STRING", "What stands between the names; may be empty.", default="."),
    )

    delimiter: str = "."
