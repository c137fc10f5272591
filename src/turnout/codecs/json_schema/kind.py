"""Declaration of the format ``jsonSchema``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from turnout.base.options import option, options_of
from turnout.codecs.codec import FLAG, Codec, CodecKind, SchemaNotation, dotted, words
from turnout.codecs.schema_registry import (
    CONVERTER,
    LATEST,
    REGISTRY,
    SUBJECTS,
    RegistryOptions,
    Writing,
    only,
    schema_file,
    schema_text_of,
    settings_of,
)
from turnout.records.block import rows_of
from turnout.records.types import Value


@dataclass(frozen=True, slots=True)
class JsonSchemaOptions:
    """Settings of Confluent's JsonSchemaData and its serializers, with their defaults.

    Attributes:
        use_optional_for_nonrequired: whether properties that are not required are optional.
        object_additional_properties: whether schemas that are written allow other properties than theirs.
        decimal_format: how decimals are written (KIP-481).
        json_fail_invalid_schema: whether values are validated by their schema, when they are read and when they are
            written.
    """

    use_optional_for_nonrequired: bool = option(FLAG, False)
    object_additional_properties: bool = option(FLAG, True)
    decimal_format: str = option(words("BASE64", "NUMERIC"), "BASE64")
    json_fail_invalid_schema: bool = option(FLAG, False)


JSON_SCHEMA_CONVERTER: Final = "io.confluent.connect.json.JsonSchemaConverter"
_OPTIONS: Final = options_of(JsonSchemaOptions, dotted)
_UNSUPPORTED: Final = (
    *(only(name, False) for name in ("generalized.sum.type.support", "ignore.default.for.nullables")),
    *(only(name, True) for name in ("json.fail.unknown.properties", "json.oneof.for.nullables")),
)


def _codec(*, registry: RegistryOptions | None, schema: str | Mapping[str, object] | None, **others: Any) -> Codec:
    from turnout.codecs.json_schema.codec import JsonSchemaFile, JsonSchemaRegistry

    if registry is None and schema is None:
        raise ValueError("expected either registry or schema")
    options = JsonSchemaOptions(**{name: others[name] for name in _OPTIONS})
    text = None if schema is None else schema_text_of(schema)
    if registry is not None:
        return JsonSchemaRegistry(registry, options, Writing.of(others), text)
    assert text is not None
    return JsonSchemaFile(text, options)


class _JsonNotation(SchemaNotation):
    """Notation of values of a file's JSON Schema: their own JSON, as any program writes it.

    A value that the codec does not read so is in the notation of its schema, with times in ISO 8601; so is every value
    with the schema of a registry.
    """

    def encode(self, plain: Value) -> bytes | None:
        """See `turnout.codecs.codec.Notation.encode`."""
        from turnout.codecs.json_schema.codec import JsonSchemaFile

        if plain is not None and isinstance(self.codec, JsonSchemaFile):
            try:
                text = json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
            except (TypeError, ValueError):
                text = b""
            if not self.codec.decode(rows_of(1), [text])[1]:
                return text
        return SchemaNotation.encode(self, plain)


def _of_connect(properties: Mapping[str, object]) -> dict[str, object]:
    names = {one.name for one in _OPTIONS.values()}
    return settings_of(properties) | {name: value for name, value in properties.items() if name in names}


KIND: Final = CodecKind(
    "jsonSchema",
    JSON_SCHEMA_CONVERTER,
    "JSON with a JSON Schema of a registry, in Confluent's wire format, or with the one of a file",
    _codec,
    settings=(
        REGISTRY,
        schema_file(
            "the JSON Schema of all values, as a file's name or in place; with a registry, the schema that values are "
            "written with"
        ),
        *SUBJECTS,
        LATEST,
        *_OPTIONS.values(),
    ),
    connect=(*CONVERTER, *_OPTIONS.values(), *_UNSUPPORTED),
    notation=_JsonNotation,
    from_connect=_of_connect,
)
