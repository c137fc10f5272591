"""Messages as Connect schemas, by the rules of Confluent's ProtobufData; a recursive message is refused.

The mapping is that of Confluent's ``io.confluent.connect.protobuf.ProtobufData``: unsigned 32 bits and all kinds of 64
bits are int64 (above 2**63 negative, as in Java), an enum is the name of its value, a ``oneof`` is a struct of optional
fields, ``google.protobuf.Timestamp``, ``google.type.Date``, ``google.type.TimeOfDay`` and ``confluent.type.Decimal``
are Connect's logical types, and the schema's parameters keep numbers of fields and kinds of integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from turnout.codecs.protobuf.descriptors import DATE, DECIMAL, TIME_OF_DAY, meta_params
from turnout.codecs.protobuf.kind import ProtobufOptions
from turnout.records import Field, Schema
from turnout.records import schema as logical

_NAMESPACE: Final = "io.confluent.connect.protobuf"
TAG: Final = f"{_NAMESPACE}.Tag"
KIND: Final = f"{_NAMESPACE}.Type"
ENUM: Final = f"{_NAMESPACE}.Enum"
UNION: Final = f"{_NAMESPACE}.Union"
WRAPPER: Final = f"{_NAMESPACE}.Wrapper"

_TAKEN: Final = frozenset(("HasField", "WhichOneof", "IsInitialized", "FindInitializationErrors"))
"""Methods of the library's messages that reading calls; a field of that name would hide them."""

MAX_FIELDS: Final = 10_000
"""Fields of a message and of all messages inside: a few short messages that hold each other twice have millions."""

_TYPES: Final = {
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_SINT32: "int32",
    FieldDescriptor.TYPE_SFIXED32: "int32",
    FieldDescriptor.TYPE_UINT32: "int64",
    FieldDescriptor.TYPE_FIXED32: "int64",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "int64",
    FieldDescriptor.TYPE_SINT64: "int64",
    FieldDescriptor.TYPE_FIXED64: "int64",
    FieldDescriptor.TYPE_SFIXED64: "int64",
    FieldDescriptor.TYPE_FLOAT: "float32",
    FieldDescriptor.TYPE_DOUBLE: "float64",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
}
_KIND_NAMES: Final = {
    FieldDescriptor.TYPE_SINT32: "sint32",
    FieldDescriptor.TYPE_SFIXED32: "sfixed32",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_SINT64: "sint64",
    FieldDescriptor.TYPE_FIXED64: "fixed64",
    FieldDescriptor.TYPE_SFIXED64: "sfixed64",
}
_MESSAGES: Final = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_LOGICAL: Final = {
    DATE: Schema("int32", name=logical.DATE, version=1),
    TIME_OF_DAY: Schema("int32", name=logical.TIME, version=1),
    "google.protobuf.Timestamp": Schema("int64", name=logical.TIMESTAMP, version=1),
    DECIMAL: Schema("bytes", name=logical.DECIMAL, version=1),
}


_DEFAULTS: Final = ProtobufOptions()


@dataclass(frozen=True, slots=True)
class Item:
    """Single value of a field, or of a list or map.

    Attributes:
        kind: the type of the field, as `FieldDescriptor` numbers it.
        schema: its Connect schema.
        enum: its values, where it is one.
        message: the fields inside, where it is a struct.
        logical: the name of the message where it is a logical type.
        wrapped: the value inside a wrapper message.
    """

    kind: int
    schema: Schema
    enum: EnumDescriptor | None = None
    message: Message | None = None
    logical: str | None = None
    wrapped: Item | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """Field of a message.

    Attributes:
        name: in the file, and of the struct's field.
        schema: schema of the struct's field.
        nullable: whether an absent value is null, and not the default of its type.
        has_presence: whether the message knows an absent value from a default.
        shape: ``one``, ``list`` or ``map``.
        item: item of a value of the field, or of its list or map.
        key: key of the keys of a map.
        packed: whether the values of a list are contiguous.
    """

    name: str
    number: int
    schema: Schema
    nullable: bool
    has_presence: bool
    required: bool
    shape: str
    item: Item
    key: Item | None = None
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Union:
    """A ``oneof`` as a struct with one field set.

    Attributes:
        name: name of the struct's field.
        oneof: the name in the file.
    """

    name: str
    oneof: str
    schema: Schema
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """Fields of a message, in the order of the Connect schema.

    Attributes:
        raw: the only value, if a record is a wrapper message for that value alone.
    """

    descriptor: Descriptor
    schema: Schema
    members: tuple[Member | Union, ...]
    raw: Item | None = None


def plan_of(descriptor: Descriptor, options: ProtobufOptions = _DEFAULTS, version: int | None = None) -> Message:
    """Return the plan of a message.

    Args:
        descriptor: the message.
        options: as ProtobufConverter has them.
        version: version of the schema, where a registry has several.

    Raises:
        ValueError: the message contains itself, or has too many fields.
    """
    planner = _Planner(options)
    if options.wrapper_for_raw_primitives and descriptor.full_name in _WRAPPERS:
        raw = planner.wrapped(descriptor)
        return Message(descriptor, raw.schema.with_(version=version), (), raw)
    plan = planner.message(descriptor)
    return plan if version is None else Message(descriptor, plan.schema.with_(version=version), plan.members)


class _Planner:
    """Makes plans of messages within messages."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._around: list[str] = []
        self._fields = 0

    def message(self, descriptor: Descriptor) -> Message:
        """Return the plan of a message that may be inside others."""
        name = descriptor.full_name
        if name in self._around:
            cycle = " in ".join([name, *reversed(self._around[self._around.index(name) :])])
            raise ValueError(
                f"the message {name} contains itself ({cycle}): recursive messages have no Connect schema here"
            )
        self._around.append(name)
        optional_words = _optional_words(descriptor)
        members = tuple(self._members(descriptor, optional_words))
        self._around.pop()
        fields = tuple(Field(member.name, member.schema) for member in members)
        return Message(descriptor, Schema("struct", name=self._name(descriptor), fields=fields), members)

    def _name(self, named: Descriptor | EnumDescriptor | OneofDescriptor) -> str:
        return str(named.full_name if self._options.enhanced_protobuf_schema_support else named.name)

    def _members(self, descriptor: Descriptor, optional_words: frozenset[str]) -> Iterator[Member | Union]:
        synthetic = {
            field.containing_oneof.name
            for field in descriptor.fields
            if field.containing_oneof and field.name in optional_words
        }
        unions = [oneof for oneof in descriptor.oneofs if oneof.name not in synthetic]
        for index, oneof in enumerate(unions):
            members = tuple(self._member(field, optional_words, in_union=True) for field in oneof.fields)
            if self._options.flatten_unions:
                yield from members
                continue
            name = f"{oneof.name}_{index}" if self._options.generate_index_for_unions else oneof.name
            schema = Schema(
                "struct",
                optional=True,
                name=f"{UNION}.{self._name(oneof)}",
                fields=tuple(Field(member.name, member.schema) for member in members),
            )
            yield Union(name, oneof.name, schema, members)
        for field in descriptor.fields:
            if field.containing_oneof is None or field.containing_oneof.name in synthetic:
                yield self._member(field, optional_words)

    def _member(self, field: FieldDescriptor, optional_words: frozenset[str], *, in_union: bool = False) -> Member:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise ValueError(
                f"the message {self._around[0]} has more than {MAX_FIELDS:,} fields with those of the messages inside"
            )
        if field.name in _TAKEN:
            owner = field.containing_type.full_name
            raise ValueError(f"the message {owner} has a field {field.name}, a name that cannot be used here")
        said_optional = field.name in optional_words
        if field.is_repeated and field.type in _MESSAGES and field.message_type.GetOptions().map_entry:
            return self._map(field)
        item = self._item(field)
        schema = item.schema
        if field.is_repeated:
            schema = Schema("array", optional=True, values=schema.with_(optional=True))
        elif in_union:
            schema = schema.with_(optional=True)
            if self._options.wrapper_for_nullables and item.wrapped is not None:
                schema = _with_parameter(schema, WRAPPER, "true")
        elif self._options.optional_for_nullables:
            schema = schema.with_(optional=schema.optional or said_optional)
        elif not self._options.wrapper_for_nullables:
            schema = schema.with_(optional=True)
        is_message = field.type in _MESSAGES
        nullable = in_union or (not field.is_repeated and (
            not self._options.generate_struct_for_nulls if is_message else said_optional and self._nulls(field)
        ))  # fmt: skip
        return Member(
            field.name,
            field.number,
            _with_parameter(schema, TAG, str(field.number)),
            nullable and not field.is_required,
            field.has_presence,
            field.is_required,
            "list" if field.is_repeated else "one",
            item,
            packed=field.is_repeated and field.is_packed,
        )

    def _nulls(self, field: FieldDescriptor) -> bool:
        """Return True if an absent field with the word ``optional`` is null."""
        return self._options.optional_for_proto2 or _syntax(field.containing_type) != "proto2"

    def _map(self, field: FieldDescriptor) -> Member:
        entry = field.message_type
        key, value = (self._member(entry.fields_by_name[name], frozenset()) for name in ("key", "value"))
        name = f"{self._name(entry).removesuffix('Entry')}"
        head, dot, last = name.rpartition(".")
        schema = Schema(
            "map",
            optional=True,
            name=head + dot + re.sub(r"(?<!^)(?=[A-Z])", "_", last).lower(),
            keys=key.schema,
            values=value.schema,
            parameters=((TAG, str(field.number)),),
        )
        return Member(
            field.name, field.number, schema, False, False, False, "map", value.item, key.item
        )  # fmt: skip

    def _item(self, field: FieldDescriptor) -> Item:
        if field.type == FieldDescriptor.TYPE_ENUM:
            return self._enum(field)
        if field.type in _MESSAGES:
            return self._inner(field)
        kind = _TYPES[field.type]
        if kind == "int32":
            kind = {"int8": "int8", "int16": "int16"}.get(meta_params(field).get("connect.type", ""), kind)
        schema = Schema(kind)
        if field.type in _KIND_NAMES and kind in ("int32", "int64"):
            schema = _with_parameter(schema, KIND, _KIND_NAMES[field.type])
        return Item(field.type, schema)

    def _enum(self, field: FieldDescriptor) -> Item:
        enum = field.enum_type
        values = tuple((f"{ENUM}.{value.name}", str(value.number)) for value in enum.values)
        schema = Schema(
            "int32" if self._options.int_for_enums else "string",
            optional=True,
            name=self._name(enum),
            parameters=((ENUM, enum.name), *values),
        )
        return Item(field.type, schema, enum)

    def _inner(self, field: FieldDescriptor) -> Item:
        descriptor = field.message_type
        name = descriptor.full_name
        if name in _LOGICAL:
            schema = _decimal(field) if name == DECIMAL else _LOGICAL[name]
            return Item(field.type, schema.with_(optional=True), logical=name)
        if self._options.wrapper_for_nullables and name in _WRAPPERS:
            wrapped = self.wrapped(descriptor)
            return Item(field.type, wrapped.schema.with_(optional=True), wrapped=wrapped)
        inner = self.message(descriptor)
        return Item(field.type, inner.schema.with_(optional=True), message=inner)

    def wrapped(self, descriptor: Descriptor) -> Item:
        """Return the value inside a wrapper message."""
        field = descriptor.fields_by_name["value"]
        return Item(field.type, Schema(_TYPES[field.type]))


def _decimal(field: FieldDescriptor) -> Schema:
    params = meta_params(field)
    parameters = [("scale", _number(params.get("scale")) or "0")]
    precision = _number(params.get("precision"))
    if precision is not None:
        parameters.append(("connect.decimal.precision", precision))
    return _LOGICAL[DECIMAL].with_(parameters=tuple(parameters))


def _number(text: str | None) -> str | None:
    return text if text is not None and re.fullmatch(r"-?\d{1,6}", text, re.ASCII) else None


def _with_parameter(schema: Schema, name: str, value: str) -> Schema:
    return schema.with_(parameters=(*schema.parameters, (name, value)))


def _optional_words(descriptor: Descriptor) -> frozenset[str]:
    """Return the fields that the file calls ``optional``, in proto3 or proto2."""
    proto = DescriptorProto()
    descriptor.CopyToProto(proto)
    proto2 = _syntax(descriptor) == "proto2"
    return frozenset(
        field.name
        for field in proto.field
        if field.proto3_optional
        or (proto2 and field.label == field.LABEL_OPTIONAL and not field.HasField("oneof_index"))
    )


def _syntax(descriptor: Descriptor) -> str:
    proto = FileDescriptorProto()
    descriptor.file.CopyToProto(proto)
    return proto.syntax or "proto2"
