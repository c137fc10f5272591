"""SetSchemaMetadata: give the struct's schema a name or a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.transforms.base import REPLACE_NULL, Side, Transform, mistake
from turnout.transforms.options import Option, Options

__all__ = ["SetSchemaMetadata"]


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Sets the name, the version or both of a struct's schema."
    options: ClassVar[tuple[Option, ...]] = (
        Option("schema.name", "STRING", "The name.", default=None),
        Option("schema.version", "INT", "The version.", default=None),
        REPLACE_NULL,
    )

    schema_name: str | None = None
    schema_version: int | None = None
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that there is something to set."""
        if options["schema.name"] is None and options["schema.version"] is None:
            raise mistake("", "expected schema.name, schema.version or both")
        return super(SetSchemaMetadata, cls).from_options(options, side)
