"""Messages in Protobuf's JSON mapping and back, by the library's own json_format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from tests.codecs.blocks import decoded
from tests.codecs.protobuf.schemas import WIDE, class_of, codec_of_text

from turnout.codecs import Codec, EncodeErrors, Format, codec_of
from turnout.codecs.conversion import writing_codec
from turnout.codecs.protobuf.json_mapping import ProtobufJson, json_name
from turnout.records import Field, Schema, group
from turnout.records.block import rows_of


def filled() -> Any:
    """A message with a value in every field but the oneof's others, none of them finer than a millisecond."""
    message = class_of(WIDE)(
        i32=1, s32=-2, u32=2**32 - 1, f32=7, i64=2**60, s64=-5, u64=2**64 - 1, f64=2**63, single=0.1,
        twice=float("nan"), flag=True, text="ä", raw=b"\xff\x00", size=2, maybe=0, packed=[1, -1], texts=["a"],
        counts={"a": 2**53 + 1}, by_number={3: {"name": "l"}}, line={"weight": 1.5}, number=5, tiny=3,
        sizes=[0, 2, -1], numbers=[1.5, float("-inf")],
    )  # fmt: skip
    message.at.FromMilliseconds(1_700_000_000_123)
    message.wrapped.value = 9
    message.day.year, message.day.month, message.day.day = 2026, 1, 2
    message.time.hours, message.time.nanos = 3, 5_000_000
    message.price.value, message.price.scale, message.price.precision = b"\x04\xd2", 2, 4
    return message


def written(reader: Codec, writer: Codec, content: bytes) -> Any:
    (block,), errors = reader.decode(rows_of(1), [content])
    assert not errors
    (text,) = writer.encode(block)
    assert text is not None
    return json.loads(text)


@pytest.mark.parametrize("names", [False, True], ids=["lowerCamelCase", "original"])
@pytest.mark.parametrize("message", [filled(), class_of(WIDE)()], ids=["filled", "empty"])
def test_json_of_messages(message: Any, names: bool) -> None:
    """It is that of json_format with all fields that have no presence."""
    text = json_format.MessageToJson(
        message, always_print_fields_with_no_presence=True, preserving_proto_field_name=names
    )

    found = written(codec_of_text(WIDE), ProtobufJson(original_names=names), message.SerializeToString())
    assert found == json.loads(text)


def test_a_message_of_durations_and_masks() -> None:
    """Both are texts, and a message around them is an object."""
    text = """
syntax = "proto3";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
message Task {
  google.protobuf.Duration short_time = 1;
  google.protobuf.Duration before = 2;
  google.protobuf.FieldMask mask = 3;
}
"""
    message = class_of(text)()
    message.short_time.seconds, message.short_time.nanos = 1, 500_000_000
    message.before.seconds, message.before.nanos = -1, -1
    message.mask.paths.extend(["a_b", "c"])

    assert written(codec_of_text(text), ProtobufJson(), message.SerializeToString()) == {
        "shortTime": "1.500s", "before": "-1.000000001s", "mask": "aB,c"
    }  # fmt: skip


def test_values_that_were_no_messages() -> None:
    """A schema of another format has the same rules, and schemaless values are plain JSON."""
    schema = Schema("struct", fields=(Field("order_id", Schema("int64")), Field("n", Schema("int32", True))))
    (block,) = group(rows_of(1), schema, [{"order_id": 7, "n": None}])
    (plain,) = group(rows_of(1), None, [{"order_id": 7, "n": None}])

    assert ProtobufJson().encode(block) == [b'{"orderId":"7"}']
    assert [json.loads(text or b"") for text in ProtobufJson().encode(plain)] == [{"order_id": 7, "n": None}]
    assert json_name("_x_1a__b") == "X1aB"


@pytest.fixture
def writer(tmp_path: Path) -> Codec:
    """The codec of messages that are written where JSON is read."""
    (tmp_path / "wide.proto").write_text(WIDE)
    json_ = Format("json")
    return writing_codec(
        Format("protobuf", schema=str(tmp_path / "wide.proto"), message="shop.Order"), json_, codec_of(json_)
    )


def encoded_json(writer: Codec, *texts: str) -> list[Any]:
    """The bytes of each text, or the reason against it."""
    blocks, errors = codec_of(Format("json")).decode(rows_of(len(texts)), [text.encode() for text in texts])
    assert not errors
    found: dict[int, Any] = {}
    for block in blocks:
        try:
            bodies: list[Any] = list(writer.encode(block))
        except EncodeErrors as failed:
            bodies = [str(failed.errors[at]) if at in failed.errors else body for at, body in enumerate(failed.texts)]
        found |= dict(zip(block.rows.tolist(), bodies, strict=True))
    return [found[row] for row in range(len(texts))]


def test_messages_of_json(writer: Codec) -> None:
    """Both spellings of names are read, integers of 64 bits as texts or numbers; what does not fit is refused."""
    message = filled()
    camel, own = (json_format.MessageToJson(message, preserving_proto_field_name=names) for names in (False, True))

    found = encoded_json(
        writer, camel, own, '{"nope": 1}', '{"lines": [{"nope": 1}]}', '{"i32": "x"}', "5", '{"i64": 9007199254740993}'
    )

    assert found[:2] == [message.SerializeToString(deterministic=True)] * 2
    assert found[2].startswith("nope: the message shop.Order has no such field; leave it out by ReplaceField")
    assert found[3].startswith("lines[0].nope: the message shop.Order.Line has no such field")
    assert found[4].startswith("Failed to parse i32 field")
    assert found[5] == "expected the fields of a message, found 5"
    assert class_of(WIDE).FromString(found[6]).i64 == 2**53 + 1


def test_round_trip(writer: Codec) -> None:
    """A message in JSON by the mapping is the same message when it is read again."""
    reader = codec_of_text(WIDE)
    (block,), _ = reader.decode(rows_of(1), [filled().SerializeToString(deterministic=True)])
    (text,) = ProtobufJson().encode(block)
    assert text is not None

    assert encoded_json(writer, text.decode()) == [filled().SerializeToString(deterministic=True)]
    assert decoded(ProtobufJson(), text)[0]["i64"] == str(2**60)
