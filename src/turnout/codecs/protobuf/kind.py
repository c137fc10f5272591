"""Declaration of the format ``protobuf``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from turnout.base.options import Kind, Option, option, options_of
from turnout.codecs.codec import FLAG, Codec, CodecKind, SchemaNotation, dotted, flag
from turnout.codecs.schema_registry import (
    CONVERSION,
    LATEST,
    REGISTRY,
    SUBJECTS,
    RegistryOptions,
    Writing,
    only,
    settings_of,
)
from turnout.codecs.schema_registry import CONVERTER as REGISTRY_PROPERTIES
from turnout.errors import MissingExtraError


@dataclass(frozen=True, slots=True)
class ProtobufOptions:
    """Settings of Connect's ProtobufData, with its defaults.

    Attributes:
        enhanced_protobuf_schema_support: whether schemas are named by full names, with their package.
        int_for_enums: whether enums are their numbers, and not their names.
        optional_for_nullables: whether only fields that the file calls `optional` are optional.
        optional_for_proto2: whether an absent `optional` field of proto2 is null, and not its default.
        wrapper_for_nullables: whether a `google.protobuf.Int32Value` and its like are optional values.
        wrapper_for_raw_primitives: whether a record that is such a message is the value alone.
        generate_struct_for_nulls: whether an absent message is a struct of defaults, and not null.
        generate_index_for_unions: whether the name of a `oneof` ends in its index.
        flatten_unions: whether members of a `oneof` are fields of the message.
    """

    enhanced_protobuf_schema_support: bool = option(FLAG, False)
    int_for_enums: bool = option(FLAG, False)
    optional_for_nullables: bool = option(FLAG, False)
    optional_for_proto2: bool = option(FLAG, True)
    wrapper_for_nullables: bool = option(FLAG, False)
    wrapper_for_raw_primitives: bool = option(FLAG, True)
    generate_struct_for_nulls: bool = option(FLAG, False)
    generate_index_for_unions: bool = option(FLAG, True)
    flatten_unions: bool = option(FLAG, False)


CONVERTER: Final = "io.confluent.connect.protobuf.ProtobufConverter"


_NAME_SCHEMA: Final = {"type": ["string", "null"]}


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a name, found {value!r}")
    return value


def _codec(*, registry: RegistryOptions | None, schema: str | None, message: str | None, **others: Any) -> Codec:
    if (registry is None) == (schema is None):
        raise ValueError("expected either registry, or schema: the name of a .proto file or of a descriptor set")
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise MissingExtraError("protobuf", "protobuf")
    from turnout.codecs.protobuf.codec import Protobuf
    from turnout.codecs.protobuf.connect_schema import plan_of
    from turnout.codecs.protobuf.descriptors import file_of

    options = ProtobufOptions(**{name: others[name] for name in options_of(ProtobufOptions, dotted)})
    writing = Writing.of(others)
    if registry is not None:
        if message is not None:
            raise ValueError("message: values of a registry say themselves which message they are")
        from turnout.codecs.protobuf.codec import ProtobufRegistry

        return ProtobufRegistry(registry, options, writing)
    assert schema is not None
    return Protobuf(plan_of(file_of(Path(schema)).message(message), options), drops_unknown=writing.drops_unknown)


OPTIONS: Final = tuple(options_of(ProtobufOptions, dotted).values())
"""Those of ProtobufConverter that change which Connect schema a message has."""

_SUBJECTS: Final = tuple(setting for setting in SUBJECTS if setting.name != "auto.register.schemas")
_WRITING: Final = ("auto.register.schemas", "use.latest.version")
_CONNECT: Final = (
    *(setting for setting in REGISTRY_PROPERTIES if setting.name not in _WRITING),
    flag("use.latest.version", "a value of a changed schema is written as the subject's last version in any case"),
)


_UNSUPPORTED: Final = tuple(
    only(name, False) for name in ("auto.register.schemas", "scrub.invalid.names", "generalized.sum.type.support")
)


def _of_connect(properties: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that a converter's properties stand for."""
    names = {setting.name for setting in OPTIONS}
    own = {name: value for name, value in properties.items() if name in names}
    registered = {name: value for name, value in properties.items() if name not in _WRITING}
    return settings_of(registered) | own


KIND: Final = CodecKind(
    "protobuf",
    CONVERTER,
    "Protobuf: messages as structs of the types that Connect's ProtobufConverter gives them",
    _codec,
    settings=(
        REGISTRY,
        Option(
            "schema",
            Kind(_name, _NAME_SCHEMA, file=True),
            "without a registry, a .proto file, or a descriptor set of `protoc --descriptor_set_out --include_imports`",
            None,
        ),
        Option(
            "message",
            Kind(_name, _NAME_SCHEMA),
            "the full name of the message, the first of the file by default",
            None,
        ),
        *_SUBJECTS,
        *(setting for setting in CONVERSION if setting is not LATEST),
        *OPTIONS,
    ),
    connect=(*_CONNECT, *OPTIONS, *_UNSUPPORTED),
    from_connect=_of_connect,
    notation=SchemaNotation,
)
