"""Values of many shapes on their way to a codec: each codec gets blocks that it can write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.engine.batches import SINK, batch, program, sent

ROUTE = """
name: shapes
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: %s
transforms:
  - {name: rename, type: ReplaceField$Value, renames: "city:town"}
"""


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("form", "write", "read"),
    [
        ("{format: json}", to_json, json.loads),
        ("{format: connect-json, schemas.enable: false}", to_json, json.loads),
        ("{format: msgpack}", msgspec.msgpack.encode, msgspec.msgpack.decode),
    ],
)
def test_values_of_own_shapes_are_written_by_every_codec(
    form: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any]
) -> None:
    """Each record has a shape of its own, and its value is the renamed one, in any format."""
    values = [{f"n{number}": number, "city": "Oulu"} for number in range(5)]

    result = program(SINK, text=ROUTE % form).run(batch([{"value": write(value)} for value in values]))

    expected = [[(f"n{number}", number), ("town", "Oulu")] for number in range(5)]
    assert expected == [list(read(value or b"").items()) for _, _, value, _ in sent(result.messages)]


@pytest.mark.parametrize(
    ("transforms", "given", "expected"),
    [
        ("FromJson$Value", b'{"a": [1, null], "b": {"c": "x"}}', b'{"a":[1,null],"b":{"c":"x"}}'),
        ("FromJson$Value", b'[1, {"a": 2}]', b'[1,{"a":2}]'),
        ("FromJson$Value", b'"x"', b"x"),
        ("FromJson$Value", b"1.50", b"1.5"),
        ("HoistField$Value, field: f", b"x", b'{"f":"x"}'),
    ],
)
@pytest.mark.parametrize("copies", [1, 20])
def test_objects_are_json_where_values_are_texts(transforms: str, given: bytes, expected: bytes, copies: int) -> None:
    """No reader takes what Java prints of a map; plain values are their texts."""
    text = f"""
name: texts
source: {{format: nats, servers: "nats://127.0.0.1:4222", stream: S}}
value: {{format: string}}
transforms: [{{type: {transforms}}}]
"""

    result = program(SINK, text=text).run(batch([{"value": given}] * copies))

    assert [expected] * copies == [value for _, _, value, _ in sent(result.messages)]
