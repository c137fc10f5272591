"""Parameters that Confluent's ``field_meta`` option gives a field: scale of a decimal, width of an integer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

_NUMBER = 1088
"""Of the extension ``confluent.field_meta``."""


def meta_params(field: FieldDescriptor) -> Mapping[str, str]:
    """Return the ``params`` of a field's ``confluent.field_meta``; none where the file does not set them."""
    if not field.has_options:
        return {}
    try:
        options = _options_class().FromString(field.GetOptions().SerializeToString())
    except DecodeError:
        # Another company's extension of the same number.
        return {}
    return {entry.key: entry.value for entry in options.field_meta.params}


@cache
def _options_class() -> Any:
    """Options of a field, of which only the parameters are read."""
    kinds = FieldDescriptorProto
    file = FileDescriptorProto(name="turnout/field_meta.proto", package="turnout.field_meta", syntax="proto3")
    for name, fields in (
        ("Param", (("key", 1, kinds.TYPE_STRING, None), ("value", 2, kinds.TYPE_STRING, None))),
        ("Meta", (("params", 2, kinds.TYPE_MESSAGE, "Param"),)),
        ("Options", (("field_meta", _NUMBER, kinds.TYPE_MESSAGE, "Meta"),)),
    ):
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            label = kinds.LABEL_REPEATED if field == "params" else kinds.LABEL_OPTIONAL
            message.field.add(
                name=field, number=number, type=kind, label=label, type_name=of and f".turnout.field_meta.{of}"
            )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("turnout.field_meta.Options"))
