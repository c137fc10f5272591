"""Connect's JSON: values with their schema, or payloads alone."""

from __future__ import annotations

import base64
import json
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.blocks import ERROR, blocks_of, codec, decoded, encoded, rewritten

from turnout.codecs import EncodeErrors
from turnout.records import Block, Field, Moment, Schema
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP

SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": "Order",
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "price", "type": "bytes", "optional": True, "name": DECIMAL, "version": 1,
         "parameters": {"scale": "2"}},
        {"field": "at", "type": "int64", "optional": True, "name": TIMESTAMP, "version": 1},
        {"field": "day", "type": "int32", "optional": True, "name": DATE, "version": 1},
    ],
}  # fmt: skip
OWN = codec(format="connect-json")
GIVEN = codec(format="connect-json", schema=SCHEMA)


def enveloped(schema: Any, payload: Any, **more: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload, **more}).encode()


def wire(unscaled: int) -> str:
    """A decimal's bytes as JSON has them."""
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


@pytest.mark.parametrize("of", [OWN, GIVEN], ids=["its own schema", "the given one"])
def test_a_value_with_its_schema_is_read_and_written(of: Any) -> None:
    """Logical types become moments and decimals, and go back as the numbers and bytes that carry them."""
    payload = {"id": 7, "price": wire(-1250), "at": 1_000, "day": 1}
    text = enveloped(SCHEMA, payload)

    blocks, errors = blocks_of(of, text, None, b'{"schema": null, "payload": 5}', b"{")

    assert Schema.from_json(SCHEMA) == blocks[0].schema
    value = {"id": 7, "price": Decimal("-12.50"), "at": Moment(1_000), "day": Moment(86_400_000)}
    assert [value] == blocks[0].whole()
    assert [Moment, Moment] == [type(blocks[0].whole()[0][name]) for name in ("at", "day")]
    assert ([3] if of is OWN else [2, 3]) == sorted(errors)
    assert [json.loads(text)] == rewritten(of, text)


def test_decimals_of_any_size_keep_their_bytes() -> None:
    """BigInteger's own bytes, as short as can be, whatever their number."""
    schema = {"type": "bytes", "optional": True, "name": DECIMAL, "version": 1, "parameters": {"scale": "3"}}
    held = [0, 1, -1, 127, 128, -128, -129, 32768, 2**63, -(2**63), -(2**64), 10**38, -(10**38), 2**200, -(2**20_000)]
    payloads = [wire(n) for n in held]
    padded = [base64.b64encode(n.to_bytes(3_000, "big", signed=True)).decode() for n in held]

    records = rewritten(OWN, *[enveloped(schema, payload) for payload in payloads + padded])

    assert payloads * 2 == [record["payload"] for record in records]
    (value,) = decoded(OWN, enveloped(schema, wire(10**38)))
    assert Decimal(10**38).scaleb(-3, Context(prec=40)) == value
    assert [Decimal("1.5")] == decoded(OWN, enveloped(schema, 1.5))


def test_values_of_several_schemas_become_several_blocks() -> None:
    """Each with the schema that came with it; null is a schema, too."""
    small, large = {"type": "int8", "optional": False}, {"type": "int64", "optional": False}

    blocks, errors = blocks_of(
        OWN,
        enveloped(small, 1),
        enveloped(large, 2),
        enveloped(small, 3),
        enveloped(None, {"a": 4}),
        enveloped(large, 5),
    )

    assert not errors
    assert [(block.schema and block.schema.type, block.rows.tolist(), block.whole()) for block in blocks] == [
        ("int8", [0, 2], [1, 3]),
        ("int64", [1, 4], [2, 5]),
        (None, [3], [{"a": 4}]),
    ]


def test_a_schema_is_read_once_for_equal_texts() -> None:
    """This includes alternating texts of several schemas, and several batches."""
    of = codec(format="connect-json")
    small, large = {"type": "int8"}, {"type": "int64"}
    for _ in range(3):
        decoded(of, *[enveloped(small, 1), enveloped(large, 1)] * 5)

    assert of._readers.cache_info().currsize == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    ['{"payload": {"id": 1}}', '{"id": 1}', "{}", "[]", "5", "{", "", "null",
     enveloped(SCHEMA, {"id": 1}, more=1), enveloped({}, 1), enveloped({"type": "int7"}, 1), enveloped(5, 1),
     enveloped({"type": "array"}, []), enveloped({"type": "map", "keys": {"type": "string"}}, {}),
     enveloped({"type": "struct", "fields": 5}, {}), enveloped({"type": "struct", "fields": [5]}, {})],
)  # fmt: skip
def test_what_is_no_envelope_is_an_error(text: str | bytes) -> None:
    """A schema and a payload, nothing more, and the schema has to be one."""
    assert decoded(OWN, text, enveloped({"type": "int8"}, 1)) == [ERROR, 1]


def test_what_stands_behind_a_payload_is_seen() -> None:
    """This includes a text that begins like the previous one, of which only the payload is read."""
    schema = {"type": "int8", "optional": False}
    head = json.dumps({"schema": schema, "payload": 1}).removesuffix("1}")
    texts = [f"{head}1}}", f"{head}2}}", f'{head}3,"payload":4}}', f'{head}5,"x":6}}', f"{head}7}} ", f"{head}8}}}}"]

    assert decoded(OWN, *texts) == [1, 2, 4, ERROR, 7, ERROR]


def test_nulls_are_read_as_their_defaults_where_that_is_wanted() -> None:
    """KIP-581: in fields, in elements, and of the whole; written likewise."""
    item = {"type": "int32", "optional": True, "default": 5}
    schema = {"type": "struct", "fields": [
        {"field": "a", **item}, {"field": "b", "type": "array", "items": item},
        {"field": "c", "type": "string", "default": "x"},
    ]}  # fmt: skip
    text = enveloped(schema, {"a": None, "b": [None, 1], "c": None})
    kept = codec(format="connect-json", replace__null__with__default=False)

    assert decoded(OWN, text) == [{"a": 5, "b": [5, 1], "c": "x"}]
    assert decoded(kept, text) == [ERROR]
    typed = Schema.from_json(schema)
    (written,) = encoded(OWN, typed, {"a": None, "b": [None], "c": None})
    assert json.loads(written)["payload"] == {"a": 5, "b": [5], "c": "x"}
    (written,) = encoded(kept, typed, {"a": None, "b": [None], "c": "y"})
    assert json.loads(written)["payload"] == {"a": None, "b": [None], "c": "y"}
    assert decoded(OWN, enveloped(item, None), enveloped(item, 7)) == [5, 7]


def test_a_null_has_its_schema_and_a_tombstone_none() -> None:
    """The first is written under it, the second as nothing."""
    text = enveloped({"type": "int8", "optional": True}, None)

    blocks, _ = blocks_of(OWN, text, None)

    assert {("null", "int8"), ("null", None)} == {(block.kind, block.schema and block.schema.type) for block in blocks}
    assert [json.loads(text), None] == rewritten(OWN, text, None)


def test_a_null_that_must_not_be_is_an_error() -> None:
    """When it is read and when it is written, of the record alone."""
    schema = Schema("struct", fields=(Field("a", Schema("int8")),))

    assert decoded(OWN, *[enveloped(schema.to_json(), payload) for payload in ({"a": None}, {}, {"a": 1})]) == [
        ERROR,
        ERROR,
        {"a": 1},
    ]
    texts = encoded(OWN, schema, {"a": 1}, {"a": None})
    assert [text if text == ERROR else json.loads(text)["payload"] for text in texts] == [{"a": 1}, ERROR]
    with pytest.raises(EncodeErrors):
        OWN.encode(Block(np.arange(1), Schema("int8")))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Schema("int32", name=DATE), Moment(1)),
        (Schema("int32", name=TIME), Moment(-1)),
        (Schema("bytes", name=DECIMAL, parameters=(("scale", "2"),)), Decimal("1.5")),
    ],
)
def test_a_logical_value_beyond_its_type_is_not_written(schema: Schema, value: Any) -> None:
    """A day has no time, a time no day, and a decimal the scale of its schema."""
    assert encoded(OWN, schema, value) == [ERROR]


def test_maps_are_objects_only_with_strings_as_keys() -> None:
    """Others are arrays of pairs."""
    numbered = {"type": "map", "optional": False, "keys": {"type": "int32", "optional": False},
                "values": {"type": "string", "optional": True}}  # fmt: skip

    assert decoded(OWN, enveloped(numbered, [[1, "a"], [2, None]])) == [{1: "a", 2: None}]
    assert rewritten(OWN, enveloped(numbered, [[1, "a"], [2, None]]))[0]["payload"] == [[1, "a"], [2, None]]
    assert decoded(OWN, *[enveloped(numbered, one) for one in ({"1": "a"}, [[1]], [1])]) == [ERROR, ERROR, ERROR]
    assert encoded(OWN, None, {1: 2}) == [b'{"schema":null,"payload":[[1,2]]}']


def test_without_schemas_payloads_stand_alone() -> None:
    """They are schemaless, or have the given schema; which is not written."""
    bare = codec(format="connect-json", schemas__enable=False)
    typed = codec(format="connect-json", schemas__enable=False, schema=SCHEMA)

    assert decoded(bare, '{"a":[1.5]}', "null", None) == [{"a": [1.5]}, None, None]
    assert encoded(bare, None, {"a": [1.5]}) == [b'{"a":[1.5]}']
    (value,) = decoded(typed, '{"id":1,"at":5}')
    assert {"id": 1, "price": None, "at": Moment(5), "day": None} == value
    assert encoded(typed, typed.schema(), value) == [b'{"id":1,"price":null,"at":5,"day":null}']
    assert decoded(typed, "x") == [ERROR]


def test_numbers_that_are_none_are_texts() -> None:
    """They are written as by Jackson; single precision has its own shortest digits."""
    schema = Schema("struct", fields=(Field("d", Schema("float64")), Field("f", Schema("float32"))))
    value = {"d": float("inf"), "f": 0.10000000149011612}

    (text,) = encoded(OWN, schema, value)

    assert text.endswith(b'"payload":{"d":"Infinity","f":0.1}}')
    assert [value] == decoded(OWN, text)


def bits(n: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1)


KINDS: dict[Any, st.SearchStrategy[Any]] = {
    "int8": bits(8), "int16": bits(16), "int32": bits(32), "int64": bits(64),
    "boolean": st.booleans(), "string": st.text(),
    "float64": st.floats(allow_nan=False), "float32": st.floats(width=32, allow_nan=False), "bytes": st.binary(),
    ("int64", TIMESTAMP): bits(64).map(Moment), ("int32", TIME): st.integers(0, 86_399_999).map(Moment),
    ("int32", DATE): bits(31).map(lambda day: Moment(day * 86_400_000)),
    ("bytes", DECIMAL): bits(200).map(lambda n: Decimal(n).scaleb(-2, Context(prec=100))),
}  # fmt: skip
PARAMETERS = {DECIMAL: (("scale", "2"),)}
LEAVES = st.sampled_from(list(KINDS)).map(
    lambda kind: (
        Schema(kind)
        if isinstance(kind, str)
        else Schema(kind[0], name=kind[1], parameters=PARAMETERS.get(kind[1], ())),
        KINDS[kind],
    )
)


def optional(pair: tuple[Schema, st.SearchStrategy[Any]]) -> tuple[Schema, st.SearchStrategy[Any]]:
    return pair[0].with_(optional=True), st.none() | pair[1]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    either = inner | inner.map(optional)
    return (
        either.map(lambda pair: (Schema("array", values=pair[0]), st.lists(pair[1], max_size=3)))
        | either.map(
            lambda pair: (
                Schema("map", keys=Schema("string"), values=pair[0]),
                st.dictionaries(st.text(), pair[1], max_size=3),
            )
        )
        | st.dictionaries(st.text(max_size=3), either, max_size=4).map(struct_of)
    )


def struct_of(pairs: dict[str, Any]) -> tuple[Schema, st.SearchStrategy[Any]]:
    fields = tuple(Field(name, schema) for name, (schema, _) in pairs.items())
    values = st.tuples(*[values for _, values in pairs.values()])
    return Schema("struct", fields=fields), values.map(lambda row: dict(zip(pairs, row, strict=True)))


@given(st.recursive(LEAVES, nested, max_leaves=6), st.data())
def test_what_is_written_is_read_again(pair: tuple[Schema, st.SearchStrategy[Any]], data: st.DataObject) -> None:
    """Schema and values, for any schema."""
    schema, strategy = pair
    values = data.draw(st.lists(strategy, min_size=1, max_size=10))

    blocks, errors = blocks_of(OWN, *encoded(OWN, schema, *values))

    assert not errors
    assert {schema} == {block.schema for block in blocks}
    assert values == decoded(OWN, *encoded(OWN, schema, *values))


def test_decimals_are_written_as_numbers() -> None:
    """With `NUMERIC` a decimal is a number with all its digits, also as a default in the schema (KIP-481)."""
    of = codec(format="connect-json", decimal__format="NUMERIC")
    schema = Schema("bytes", True, name=DECIMAL, version=1, parameters=(("scale", "2"),), default=Decimal("1.50"))
    texts = encoded(of, schema, Decimal("12.10"), Decimal("-0.00"), Decimal("1E+3"), None)
    head = texts[0].partition(b'"payload":')[0]

    assert b'"default":1.50' in head
    assert [text.removeprefix(head) for text in texts] == [
        b'"payload":12.10}',
        b'"payload":0.00}',
        b'"payload":1E+3}',
        b'"payload":1.50}',
    ]
