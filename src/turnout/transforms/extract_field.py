"""ExtractField: put one field in the place of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.transforms.base import REPLACE_NULL, Side, Transform, mistake
from turnout.transforms.checks import one_of
from turnout.transforms.options import Option, Options
from turnout.transforms.paths import PathError, parse_path

__all__ = ["ExtractField"]


@dataclass(frozen=True, slots=True)
class ExtractField(Transform):
    """See ``summary``.

    Attributes:
        path: the steps to the field; no steps at all make every record fail (KIP-821, an empty V2 path).
        field: the option's text.
    """

    summary: ClassVar[str] = "Replaces the key or value by one of its fields, which may be nested (KIP-821)."
    options: ClassVar[tuple[Option, ...]] = (
        Option("field", "STRING", "The field's name, or its path where the syntax version is V2."),
        Option(
            "field.syntax.version",
            "STRING",
            "V1: the text is one name. V2: steps between dots, a step with dots inside backticks.",
            default="V1",
            check=one_of("V1", "V2", any_case=True),
            valid="V1, V2, in any case",
        ),
        REPLACE_NULL,
    )

    field: str = ""
    path: tuple[str, ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the path."""
        field = options["field"] or ""
        try:
            path = parse_path(field, options["field.syntax.version"])
        except PathError as error:
            raise mistake("field", str(error)) from None
        return cls(side, field, path, options["replace.null.with.default"])
