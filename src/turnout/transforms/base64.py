"""Base64: bytes as texts, and back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Schema
from turnout.records.types import DynamicValue
from turnout.transforms.checks import one_of
from turnout.transforms.contents import FIELDS, Contents, refused
from turnout.transforms.options import Option


@dataclass(frozen=True, slots=True)
class Base64(Contents):
    """See ``summary``. Not part of Connect."""

    summary: ClassVar[str] = "Writes bytes, or the UTF-8 of texts, in base64 (RFC 4648), or reads base64 as bytes."
    options: ClassVar[tuple[Option, ...]] = (
        FIELDS,
        Option(
            "operation",
            "STRING",
            "Direction.",
            check=one_of("encode", "decode"),
            valid="encode, decode",
        ),
    )

    operation: str = "encode"

    def schema_of(self, schema: Schema) -> Schema:
        """See `Contents.schema_of`."""
        if schema.type not in ("string", "bytes") or schema.logical:
            raise RecordError(f"expected a text or bytes, found {schema.logical or schema.type}")
        return Schema("string" if self.operation == "encode" else "bytes", optional=schema.optional)

    def converted(self, value: DynamicValue, schema: Schema | None) -> DynamicValue:  # noqa: ARG002 - as the others
        """See `Contents.converted`."""
        if not isinstance(value, str | bytes):
            raise refused(value, "a text or bytes")
        content = value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)
        if self.operation == "encode":
            return b64encode(content).decode("ascii")
        try:
            return b64decode(content, validate=True)
        except ValueError as failure:
            raise RecordError(f"the value is not base64: {failure}") from failure
