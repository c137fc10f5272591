"""Settings of ProtobufConverter that change which Connect schema a message has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProtobufOptions:
    """Settings of Connect's ProtobufData, with its defaults.

    Attributes:
        enhanced_protobuf_schema_support: whether schemas are named by full names, with their package.
        int_for_enums: whether enums are their numbers, and not their names.
        optional_for_nullables: whether fields are optional only where the file says ``optional``.
        optional_for_proto2: whether an absent ``optional`` field of proto2 is null, and not its default.
        wrapper_for_nullables: whether ``google.protobuf.Int32Value`` and its like are optional values, not structs.
        wrapper_for_raw_primitives: whether a record that is such a message is the value alone.
        generate_struct_for_nulls: whether an absent message is a struct of defaults, and not null.
        generate_index_for_unions: whether the name of a ``oneof`` ends in its index.
        flatten_unions: whether members of a ``oneof`` are fields of the message itself.
    """

    enhanced_protobuf_schema_support: bool = False
    int_for_enums: bool = False
    optional_for_nullables: bool = False
    optional_for_proto2: bool = True
    wrapper_for_nullables: bool = False
    wrapper_for_raw_primitives: bool = True
    generate_struct_for_nulls: bool = False
    generate_index_for_unions: bool = True
    flatten_unions: bool = False
