"""Schema registries with Confluent's API: client, wire format and subject names, for the codecs that need schemas.

A route without a registry needs the declarations of options alone: the other names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from turnout.base.startup import names_at_first_use
from turnout.codecs.schema_registry.options import (
    CONVERSION,
    CONVERTER,
    LATEST,
    REGISTRY,
    STRATEGIES,
    SUBJECTS,
    RegistryOptions,
    Writing,
    only,
    schema_file,
    schema_text_of,
    settings_of,
)

if TYPE_CHECKING:
    from turnout.codecs.schema_registry.client import (
        IncompatibleSchemaError,
        RegistryError,
        RegistryUnavailableError,
        SchemaRegistry,
        SchemaText,
        UnknownSchemaError,
        answered,
        registry_of,
    )
    from turnout.codecs.schema_registry.codec import (
        Framed,
        Indexes,
        Position,
        RegisteringCodec,
        RegistryCodec,
        frame,
        subject_of,
        unframe,
    )

__all__ = [
    "CONVERSION",
    "CONVERTER",
    "LATEST",
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

__getattr__ = names_at_first_use(
    __name__,
    {
        "Framed": "turnout.codecs.schema_registry.codec",
        "IncompatibleSchemaError": "turnout.codecs.schema_registry.client",
        "Indexes": "turnout.codecs.schema_registry.codec",
        "Position": "turnout.codecs.schema_registry.codec",
        "RegisteringCodec": "turnout.codecs.schema_registry.codec",
        "RegistryCodec": "turnout.codecs.schema_registry.codec",
        "RegistryError": "turnout.codecs.schema_registry.client",
        "RegistryUnavailableError": "turnout.codecs.schema_registry.client",
        "SchemaRegistry": "turnout.codecs.schema_registry.client",
        "SchemaText": "turnout.codecs.schema_registry.client",
        "UnknownSchemaError": "turnout.codecs.schema_registry.client",
        "answered": "turnout.codecs.schema_registry.client",
        "frame": "turnout.codecs.schema_registry.codec",
        "registry_of": "turnout.codecs.schema_registry.client",
        "subject_of": "turnout.codecs.schema_registry.codec",
        "unframe": "turnout.codecs.schema_registry.codec",
    },
)
