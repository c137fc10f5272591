"""HeaderFrom: copy or move fields into headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.transforms.base import REPLACE_NULL, Side, Transform, mistake
from turnout.transforms.checks import non_empty_list, one_of
from turnout.transforms.options import Option, Options

__all__ = ["HeaderFrom"]


@dataclass(frozen=True, slots=True)
class HeaderFrom(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Appends a header for each listed field; move also removes the fields."
    options: ClassVar[tuple[Option, ...]] = (
        Option("fields", "LIST", "The fields, flat names.", check=non_empty_list, valid="not empty"),
        Option("headers", "LIST", "The header for each of them.", check=non_empty_list, valid="as many as fields"),
        Option("operation", "STRING", "What happens to the fields.", check=one_of("move", "copy"), valid="move, copy"),
        REPLACE_NULL,
    )

    fields: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    operation: str = "copy"
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that there is a header for every field."""
        if len(options["fields"]) != len(options["headers"]):
            counts = f"{len(options['headers'])} headers for {len(options['fields'])} fields"
            raise mistake("headers", f"expected one header for each field, found {counts}")
        return super(HeaderFrom, cls).from_options(options, side)
