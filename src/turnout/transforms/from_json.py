"""FromJson: JSON texts as values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from turnout.errors import RecordError
from turnout.records import BigInt, Schema
from turnout.records.types import DynamicValue
from turnout.transforms.contents import FIELDS, Contents, refused
from turnout.transforms.options import Option

_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")


@dataclass(frozen=True, slots=True)
class FromJson(Contents):
    """See ``summary``. Not part of Connect."""

    summary: ClassVar[str] = "Reads texts or bytes that are JSON as schemaless values."
    java_names: ClassVar[tuple[str, ...]] = ("com.github.jcustenborder.kafka.connect.json.FromJson",)
    options: ClassVar[tuple[Option, ...]] = (FIELDS,)

    def schema_of(self, schema: Schema) -> None:
        """See `Contents.schema_of`."""
        if schema.type not in ("string", "bytes") or schema.logical:
            raise RecordError(f"expected a text or bytes of JSON, found {schema.logical or schema.type}")

    def converted(self, value: DynamicValue, schema: Schema | None) -> DynamicValue:  # noqa: ARG002 - as the others
        """See `Contents.converted`."""
        if not isinstance(value, str | bytes):
            raise refused(value, "a text or bytes of JSON")
        text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
        try:
            read: DynamicValue = msgspec.json.decode(text)
        except (ValueError, RecursionError) as failure:
            raise RecordError(f"the value is not JSON: {failure}") from failure
        return _with_big_integers(read) if _LONG_NUMBER.search(text) else read


def _with_big_integers(value: DynamicValue) -> DynamicValue:
    """Return a value in which integers beyond 64 bits are `BigInt`."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else BigInt(value)
    if type(value) is dict:
        return {name: _with_big_integers(item) for name, item in value.items()}
    if type(value) is list:
        return [_with_big_integers(item) for item in value]
    return value
