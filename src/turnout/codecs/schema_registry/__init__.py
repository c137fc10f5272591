"""Schema registries with Confluent's API: client, wire format and subject names, for the codecs that need schemas."""

from turnout.codecs.schema_registry.client import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryUnavailableError,
    SchemaRegistry,
    SchemaText,
    UnknownSchemaError,
    registry_of,
)
from turnout.codecs.schema_registry.codec import Indexes, Position, RegistryCodec
from turnout.codecs.schema_registry.connect import CONVERTER, only, settings_of
from turnout.codecs.schema_registry.files import schema_file, schema_text_of
from turnout.codecs.schema_registry.framing import Framed, frame, unframe
from turnout.codecs.schema_registry.options import REGISTRY, STRATEGIES, SUBJECTS, RegistryOptions, Writing
from turnout.codecs.schema_registry.registering import RegisteringCodec
from turnout.codecs.schema_registry.subjects import subject_of
from turnout.codecs.schema_registry.waiting import answered

__all__ = [
    "CONVERTER",
    "REGISTRY",
    "STRATEGIES",
    "SUBJECTS",
    "Framed",
    "IncompatibleSchemaError",
    "Indexes",
    "Position",
    "RegisteringCodec",
    "RegistryCodec",
    "RegistryError",
    "RegistryOptions",
    "RegistryUnavailableError",
    "SchemaRegistry",
    "SchemaText",
    "UnknownSchemaError",
    "Writing",
    "answered",
    "frame",
    "only",
    "registry_of",
    "schema_file",
    "schema_text_of",
    "settings_of",
    "subject_of",
    "unframe",
]
