"""Declaration of the format ``avro``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from turnout.codecs.codec import Codec, CodecKind, SchemaNotation
from turnout.codecs.schema_registry import (
    CONVERSION,
    CONVERTER,
    REGISTRY,
    SUBJECTS,
    RegistryOptions,
    Writing,
    schema_file,
    schema_text_of,
    settings_of,
)

AVRO_CONVERTER: Final = "io.confluent.connect.avro.AvroConverter"


def _codec(*, registry: RegistryOptions | None, schema: str | Mapping[str, object] | None, **others: object) -> Codec:
    from turnout.codecs.avro.codec import AvroFile, AvroRegistry

    if registry is None and schema is None:
        raise ValueError("expected either registry or schema")
    writing = Writing.of(others)
    text = None if schema is None else schema_text_of(schema)
    if registry is not None:
        return AvroRegistry(registry, writing, text)
    assert text is not None
    return AvroFile(text, drops_unknown=writing.drops_unknown)


KIND: Final = CodecKind(
    "avro",
    AVRO_CONVERTER,
    "Apache Avro: values with a schema of a registry, in Confluent's wire format, or with the one of a file",
    _codec,
    settings=(
        REGISTRY,
        schema_file(
            "the schema of all values, which have no header then, as a file's name or in place; with a registry, the "
            "schema that values are written with"
        ),
        *SUBJECTS,
        *CONVERSION,
    ),
    connect=CONVERTER,
    notation=SchemaNotation,
    from_connect=settings_of,
)
