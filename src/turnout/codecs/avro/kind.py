"""Declaration of the format ``avro``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from turnout.codecs.codec import Codec
from turnout.codecs.kind import CodecKind
from turnout.codecs.notation import SchemaNotation
from turnout.codecs.schema_registry import (
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


def _codec(
    *,
    registry: RegistryOptions | None,
    schema: str | None,
    **writing: Any,
) -> Codec:
    from turnout.codecs.avro.codec import AvroFile, AvroRegistry

    if (registry is None) == (schema is None):
        raise ValueError("expected either registry or schema")
    if registry is not None:
        return AvroRegistry(registry, Writing(**writing))
    assert schema is not None
    return AvroFile(schema_text_of(Path(schema)))


KIND: Final = CodecKind(
    "avro",
    AVRO_CONVERTER,
    "Apache Avro: values with a schema of a registry, in Confluent's wire format, or with the one of a file",
    _codec,
    settings=(
        REGISTRY,
        schema_file("the file with the schema of all values, which have no header then"),
        *SUBJECTS,
    ),
    connect=CONVERTER,
    notation=SchemaNotation,
    from_connect=settings_of,
)
