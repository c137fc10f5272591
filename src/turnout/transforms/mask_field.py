"""MaskField: put a null-like value, or a replacement, in the place of named fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.transforms.base import REPLACE_NULL, Transform
from turnout.transforms.checks import non_empty, non_empty_list
from turnout.transforms.options import Option

__all__ = ["MaskField"]


@dataclass(frozen=True, slots=True)
class MaskField(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Replaces fields by the zero of their type, or by a replacement for numbers and strings."
    options: ClassVar[tuple[Option, ...]] = (
        Option("fields", "LIST", "The fields, flat names.", check=non_empty_list, valid="not empty"),
        Option("replacement", "STRING", "What to put there.", default=None, check=non_empty, valid="not empty"),
        REPLACE_NULL,
    )

    fields: tuple[str, ...] = ()
    replacement: str | None = None
    replace_null_with_default: bool = True
