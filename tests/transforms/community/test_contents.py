"""Base64, FromJson, GzipDecompress and ToJson."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transforms.chains import outcome_values, route_chain

from turnout.errors import ConfigError
from turnout.history.masking import hidden_by_stage
from turnout.records import Failure, Field, Record, Schema
from turnout.transforms.registry import TRANSFORMS, find_transform


def test_views_hide_what_is_masked_in_another_form() -> None:
    """A text of JSON in which a later stage masks a field, and the text that a header became."""
    opened = route_chain({"type": "FromJson$Value", "fields": "a"}, {"type": "MaskField$Value", "fields": "a"})
    taken = route_chain(
        {"type": "HeaderToField$Value", "header.mappings": "Pan:STRING:card"},
        {"type": "MaskField$Value", "fields": "card"},
    )

    assert hidden_by_stage(opened)[0].masked(Record("t", {"a": "[17]"}))["value"] == {"a": "***"}
    assert hidden_by_stage(taken)[0].hides(("headers", "Pan"))


def test_connectors_name_released_classes() -> None:
    """Each is found by its class, with a side where it has one, and named so in errors; a worker of Kafka has none."""
    for kind in TRANSFORMS.values():
        for name in kind.java_names:
            found = find_transform(f"{name}$Key" if kind.sided else name)

            assert found.kind is kind
            with pytest.raises(LookupError):
                find_transform(f"{name}$Key" if kind.sided else name, strict=True)
    drop = route_chain({"type": "io.confluent.connect.transforms.Drop$Value", "schema.behavior": "validate"})
    (failure,) = drop.apply([Record("t", "x", value_schema=Schema("string"))])

    assert isinstance(failure, Failure)
    assert failure.class_name == "io.confluent.connect.transforms.Drop$Value"


@given(st.lists(st.binary(), min_size=1))
def test_base64_is_read_again(contents: list[bytes]) -> None:
    """Any bytes."""
    stages = [{"type": "Base64$Value", "operation": operation} for operation in ("encode", "decode")]

    assert outcome_values(route_chain(*stages), *contents) == contents


_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(), _PLAIN), min_size=1))
def test_json_is_read_again(objects: list[Any]) -> None:
    """Any object, also with integers beyond 64 bits; by whole values and by fields."""
    assert outcome_values(route_chain({"type": "ToJson$Value"}, {"type": "FromJson$Value"}), *objects) == objects
    fields = ",".join({name for one in objects for name in one if name and name.isidentifier()}) or "x"
    stages = [{"type": f"{name}$Value", "fields": fields} for name in ("ToJson", "FromJson")]
    assert outcome_values(route_chain(*stages), *objects) == objects


def test_a_json_field_of_a_struct_is_schemaless_data() -> None:
    """Inside the struct, as Spark's variants are."""
    schema = Schema("struct", fields=(Field("a", Schema("string", True)), Field("b", Schema("string"))))
    (record,) = route_chain({"type": "FromJson$Value", "fields": "a"}).apply(
        [Record("t", {"a": '{"n": 1}', "b": "x"}, value_schema=schema)]
    )

    assert isinstance(record, Record)
    assert record.value == {"a": {"n": 1}, "b": "x"}
    assert record.value_schema == schema.basics((Field("a", Schema("variant", True)), schema.fields[1]))


def test_an_option_of_the_released_class_that_there_is_not_here_is_named() -> None:
    """Every option of a connector is either supported or a mistake."""
    with pytest.raises(ConfigError, match=r"json\.schema\.location: unknown option"):
        route_chain(
            {"type": "com.github.jcustenborder.kafka.connect.json.FromJson$Value", "json.schema.location": "Url"}
        )


@given(st.binary(), st.binary(max_size=30))
def test_any_bytes_are_decompressed_or_refused(content: bytes, noise: bytes) -> None:
    """Output of gzip is decompressed unchanged; any other input fails alone."""
    good, other = outcome_values(route_chain({"type": "GzipDecompress$Value"}), gzip.compress(content), noise)

    assert good == content
    assert isinstance(other, Failure)


def test_a_bomb_is_not_unpacked() -> None:
    """Of a gigabyte that fits into a megabyte no more is kept than may be."""
    member = gzip.compress(bytes(1 << 20))
    bomb, small = outcome_values(
        route_chain({"type": "GzipDecompress$Value", "max.bytes": 1000}), member * 1000, gzip.compress(b"x")
    )

    assert isinstance(bomb, Failure)
    assert "more than 1,000 bytes" in bomb.message
    assert small == b"x"


def test_many_small_members_are_decompressed() -> None:
    """Files of gzip one after the other, also across the pieces in which they are read, up to an incomplete one."""
    members = [bytes([number % 251]) * (number % 5000) for number in range(0, 90_000, 7)]
    whole = b"".join(map(gzip.compress, members))
    options = {"type": "GzipDecompress$Value", "max.bytes": 1 << 30}
    good, cut = outcome_values(route_chain(options), whole, whole[:-1])

    assert good == b"".join(members)
    assert isinstance(cut, Failure)
    assert "ends too early" in cut.message
