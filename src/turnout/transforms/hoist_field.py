"""HoistField: wrap the whole as the one field of a struct or map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.transforms.base import Transform
from turnout.transforms.options import Option

__all__ = ["HoistField"]


@dataclass(frozen=True, slots=True)
class HoistField(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Wraps the key or value, null too, as the only field of a struct or map."
    options: ClassVar[tuple[Option, ...]] = (Option("field", "STRING", "The field's name, flat."),)

    field: str = ""
