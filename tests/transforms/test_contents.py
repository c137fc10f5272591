"""Transforms that put another form in the place of values: what vectors cannot say."""

from __future__ import annotations

import pytest
from tests.transforms.chains import route_chain

from turnout.history.masking import hidden_by_stage
from turnout.records import Failure, Record, Schema
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
