"""Shared helpers for tests of Protobuf: schemas, and a codec of their messages."""

from __future__ import annotations

from typing import Any

from google.protobuf.message_factory import GetMessageClass

from turnout.codecs.protobuf.codec import Protobuf
from turnout.codecs.protobuf.connect_schema import plan_of
from turnout.codecs.protobuf.descriptors import text_of_registry
from turnout.codecs.protobuf.kind import ProtobufOptions

WIDE = """
syntax = "proto3";
package shop;

import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";

enum Size { SMALL = 0; LARGE = 2; BIG = -1; }

message Order {
  int32 i32 = 1;
  sint32 s32 = 2;
  sfixed32 sf32 = 3;
  uint32 u32 = 4;
  fixed32 f32 = 5;
  int64 i64 = 6;
  sint64 s64 = 7;
  sfixed64 sf64 = 8;
  uint64 u64 = 9;
  fixed64 f64 = 10;
  float single = 11;
  double twice = 12;
  bool flag = 13;
  string text = 14;
  bytes raw = 15;
  Size size = 16;
  optional int32 maybe = 17;
  repeated sint32 packed = 18;
  repeated string texts = 19;
  repeated Line lines = 20;
  map<string, int64> counts = 21;
  map<int32, Line> by_number = 22;
  Line line = 23;
  oneof choice {
    string word = 24;
    uint64 number = 25;
    Line other = 26;
  }
  google.protobuf.Timestamp at = 27;
  google.protobuf.Int64Value wrapped = 28;
  google.protobuf.Any any = 29;
  google.type.Date day = 30;
  google.type.TimeOfDay time = 31;
  confluent.type.Decimal price = 32 [(confluent.field_meta) = {
    params: [{key: "scale", value: "2"}, {key: "precision", value: "8"}]
  }];
  int32 tiny = 33 [(confluent.field_meta) = {params: [{key: "connect.type", value: "int8"}]}];
  repeated Size sizes = 34;
  repeated double numbers = 2000;

  message Line {
    string name = 1;
    optional double weight = 2;
  }
}

message Other {
  message Deep { int32 n = 1; }
  map<string, Deep> deep = 1;
  message Deeper { int32 n = 1; }
}
"""

OLD = """
syntax = "proto2";
package old;

message Thing {
  required int32 id = 1;
  optional string name = 2 [default = "none"];
  optional group Inner = 3 { required bool open = 1; }
  repeated int32 loose = 4;
  enum Kind { A = 1; B = 2; }
  optional Kind kind = 5;
}
"""


def codec_of_text(text: str, message: str | None = None, **options: bool) -> Protobuf:
    """The codec of a message of a schema."""
    return Protobuf(plan_of(text_of_registry(text).message(message), ProtobufOptions(**options)))


def class_of(text: str, message: str | None = None) -> Any:
    """The library's class of a message."""
    return GetMessageClass(text_of_registry(text).message(message))
