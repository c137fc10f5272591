"""Built-in files that a .proto file may import: types with a meaning in Connect.

protoc itself brings those below ``google/protobuf``. These are the interfaces of the others, without comments.
"""

from __future__ import annotations

from typing import Final

DECIMAL: Final = "confluent.type.Decimal"
DATE: Final = "google.type.Date"
TIME_OF_DAY: Final = "google.type.TimeOfDay"

META: Final = "confluent/meta.proto"

_HEAD: Final = 'syntax = "proto3";\npackage {};\n'

KNOWN_FILES: Final = {
    "google/type/date.proto": _HEAD.format("google.type")
    + "message Date {int32 year = 1; int32 month = 2; int32 day = 3;}",
    "google/type/timeofday.proto": _HEAD.format("google.type")
    + "message TimeOfDay {int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4;}",
    "confluent/type/decimal.proto": _HEAD.format("confluent.type")
    + "message Decimal {bytes value = 1; uint32 precision = 2; int32 scale = 3;}",
    META: _HEAD.format("confluent")
    + 'import "google/protobuf/descriptor.proto";\n'
    + "message Meta {string doc = 1; map<string, string> params = 2; repeated string tags = 3;"
    + " repeated Rule rules = 4;}\n"
    + "message Rule {string name = 1; string doc = 2; string expr = 3; string sql = 4;}\n"
    + "".join(
        f"extend google.protobuf.{kind}Options {{Meta {kind_name}_meta = 1088;}}\n"
        for kind, kind_name in (
            ("File", "file"),
            ("Message", "message"),
            ("Field", "field"),
            ("Enum", "enum"),
            ("EnumValue", "enum_value"),
        )
    ),
}
"""Name as imports write it → text."""
