"""Declaration of the format ``protobuf``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from turnout.codecs.codec import Codec
from turnout.codecs.kind import CodecKind, Setting, flag
from turnout.codecs.notation import SchemaNotation
from turnout.codecs.protobuf.options import ProtobufOptions
from turnout.errors import MissingExtraError

CONVERTER: Final = "io.confluent.connect.protobuf.ProtobufConverter"


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a name, found {value!r}")
    return value


def _codec(schema: str | None, message: str | None, **options: bool) -> Codec:
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise MissingExtraError("protobuf", "protobuf")
    from turnout.codecs.protobuf.codec import Protobuf
    from turnout.codecs.protobuf.descriptors import file_of
    from turnout.codecs.protobuf.plan import plan_of

    if schema is None:
        raise ValueError("expected schema, the name of a .proto file or of a descriptor set, found none")
    return Protobuf(plan_of(file_of(Path(schema)).message(message), ProtobufOptions(**options)))


OPTIONS: Final = (
    flag(
        "enhanced.protobuf.schema.support", "whether schemas are named by full names, with their package", default=False
    ),
    flag("int.for.enums", "whether enums are their numbers, and not their names", default=False),
    flag("optional.for.nullables", "whether only fields that the file calls `optional` are optional", default=False),
    flag("optional.for.proto2", "whether an absent `optional` field of proto2 is null, and not its default"),
    flag(
        "wrapper.for.nullables",
        "whether a `google.protobuf.Int32Value` and its like are optional values",
        default=False,
    ),
    flag("wrapper.for.raw.primitives", "whether a record that is such a message is the value alone"),
    flag("generate.struct.for.nulls", "whether an absent message is a struct of defaults, and not null", default=False),
    flag("generate.index.for.unions", "whether the name of a `oneof` ends in its index"),
    flag("flatten.unions", "whether members of a `oneof` are fields of the message", default=False),
)
"""Those of ProtobufConverter that change which Connect schema a message has."""

KIND: Final = CodecKind(
    "protobuf",
    CONVERTER,
    "Protobuf: messages as structs of the types that Connect's ProtobufConverter gives them",
    _codec,
    settings=(
        Setting(
            "schema",
            "a .proto file, or a descriptor set of `protoc --descriptor_set_out --include_imports`",
            _name,
            json_schema={"type": ["string", "null"]},
            file=True,
        ),
        Setting(
            "message",
            "the full name of the message, the first of the file by default",
            _name,
            json_schema={"type": ["string", "null"]},
        ),
        *OPTIONS,
    ),
    notation=SchemaNotation,
)
