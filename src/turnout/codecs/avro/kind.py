"""Declaration of the format ``avro``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from turnout.codecs.avro.codec import AVRO_CONVERTER, AvroFile, AvroRegistry
from turnout.codecs.codec import Codec
from turnout.codecs.kind import CodecKind, Setting
from turnout.codecs.notation import SchemaNotation
from turnout.codecs.schema_registry import CONVERTER, REGISTRY, SUBJECTS, RegistryOptions, Writing, settings_of
from turnout.file_reading import read_file

_LARGEST_FILE: Final = 1 << 20


def _schema(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected the name of a file, found {value!r}")
    return value


def _codec(
    *,
    registry: RegistryOptions | None,
    schema: str | None,
    **writing: Any,
) -> Codec:
    if (registry is None) == (schema is None):
        raise ValueError("expected either registry or schema")
    if registry is not None:
        return AvroRegistry(registry, Writing(**writing))
    assert schema is not None
    try:
        return AvroFile(read_file(Path(schema), max_bytes=_LARGEST_FILE).decode())
    except UnicodeDecodeError:
        raise ValueError(f"schema: {schema} is no text in UTF-8") from None
    except OSError as failure:
        raise ValueError(f"schema: {schema}: {failure.strerror}") from failure


KIND: Final = CodecKind(
    "avro",
    AVRO_CONVERTER,
    "Apache Avro: values with a schema of a registry, in Confluent's wire format, or with the one of a file",
    _codec,
    settings=(
        REGISTRY,
        Setting(
            "schema",
            "the file with the schema of all values, which have no header then",
            _schema,
            json_schema={"type": ["string", "null"]},
            file=True,
        ),
        *SUBJECTS,
    ),
    connect=CONVERTER,
    notation=SchemaNotation,
    from_connect=settings_of,
)
