"""JSON that is read into values and fields, and written again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transforms.chains import outcome_values, route_chain

from turnout.errors import ConfigError
from turnout.records import Field, Record, Schema

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
