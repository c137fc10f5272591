"""ValueToKey: make the key of fields of the value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.transforms.base import REPLACE_NULL, Transform
from turnout.transforms.checks import non_empty_list
from turnout.transforms.options import Option

__all__ = ["ValueToKey"]


@dataclass(frozen=True, slots=True)
class ValueToKey(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Replaces the key by a struct or map of fields of the value."
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("fields", "LIST", "The fields, in the order they get in the key.", check=non_empty_list),
        REPLACE_NULL,
    )

    fields: tuple[str, ...] = ()
    replace_null_with_default: bool = True
