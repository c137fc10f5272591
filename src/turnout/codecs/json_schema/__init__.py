"""JSON with a JSON Schema, from a registry or a file, typed as Confluent's JsonSchemaConverter types it."""

from turnout.codecs.json_schema.kind import KIND

__all__ = ["KIND"]
