"""ToJson: values as JSON texts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Schema
from turnout.records.text import json_of
from turnout.records.types import DynamicValue
from turnout.transforms.checks import one_of
from turnout.transforms.contents import FIELDS, Contents
from turnout.transforms.options import Option


def _without_schemas(value: DynamicValue) -> str | None:
    return "JSON with its schema is not written here; take the format connect-json" if value else None


@dataclass(frozen=True, slots=True)
class ToJson(Contents):
    """See ``summary``. Jeremy Custenborder's ``ToJSON``; whole texts and bytes stay as they are, as there."""

    summary: ClassVar[str] = "Writes maps, structs and arrays as JSON; of fields also texts and numbers."
    java_names: ClassVar[tuple[str, ...]] = ("com.github.jcustenborder.kafka.connect.transform.common.ToJSON",)
    options: ClassVar[tuple[Option, ...]] = (
        FIELDS,
        Option(
            "output.schema.type",
            "STRING",
            "Whether the JSON is a text or bytes.",
            default="STRING",
            check=one_of("STRING", "BYTES"),
            valid="STRING, BYTES",
        ),
        Option("schemas.enable", "BOOLEAN", "Only false.", default=False, check=_without_schemas, valid="false"),
    )

    output_schema_type: str = "STRING"
    schemas_enable: bool = False

    def schema_of(self, schema: Schema) -> Schema:
        """See `Contents.schema_of`."""
        if not self.fields and schema.type in ("string", "bytes") and not schema.logical:
            return schema
        return Schema(self.output_schema_type.lower(), optional=True)

    def converted(self, value: DynamicValue, schema: Schema | None) -> DynamicValue:
        """See `Contents.converted`."""
        if not self.fields and isinstance(value, str | bytes):
            return value
        try:
            text = json.dumps(json_of(value, schema), ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as failure:
            raise RecordError(f"the value cannot be written as JSON: {failure}") from failure
        return text if self.output_schema_type == "STRING" else text.encode("utf-8", "replace")
