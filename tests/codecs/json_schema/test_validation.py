"""Validation by JSON Schemas that would take exponential time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnout.codecs.json_schema.validation import validator_of
from turnout.errors import RecordError


def doubled(word: str, levels: int, *, anchors: bool = False) -> dict[str, Any]:
    """A schema of levels of a keyword, each with the next one twice."""
    names = {f"a{at}": f"#n{at}" if anchors else f"#/$defs/a{at}" for at in range(levels + 1)}
    parts: dict[str, Any] = {
        f"a{at}": {word: [{"$ref": names[f"a{at + 1}"]}, {"$ref": names[f"a{at + 1}"]}]} for at in range(levels)
    }
    parts[f"a{levels}"] = {"type": "string"}
    if anchors:
        parts = {name: {"$anchor": names[name][1:], **part} for name, part in parts.items()}
    return {"$defs": parts, "$ref": names["a0"]}


@pytest.mark.parametrize("anchors", [False, True])
@pytest.mark.parametrize("word", ["anyOf", "allOf", "oneOf"])
def test_schemas_that_double_at_each_level_are_refused(word, anchors) -> None:
    """They are refused when they are loaded; a few levels are not."""
    with pytest.raises(ValueError, match="more than 20,000 schemas"):
        validator_of(json.dumps(doubled(word, 22, anchors=anchors)), ())
    validate = validator_of(json.dumps(doubled("anyOf", 8)), ())
    validate(b'"x"')
    with pytest.raises(RecordError, match="not valid"):
        validate(b"1")


def test_schemas_that_double_at_each_property_are_refused() -> None:
    """The part of a value is the same, by whichever way it is reached."""
    parts: dict[str, Any] = {
        f"a{at}": {"anyOf": [{"properties": {"n": {"$ref": f"#/$defs/a{at + 1}"}}, "minProperties": n} for n in (1, 2)]}
        for at in range(22)
    }
    parts["a22"] = {"type": "string"}
    with pytest.raises(ValueError, match="more than 20,000 schemas"):
        validator_of(json.dumps({"$defs": parts, "$ref": "#/$defs/a0"}), ())


def test_a_recursive_schema_bounds_the_depth_of_values() -> None:
    """Where it doubles at each level of a value, values of many levels are refused; others are validated."""
    node = {"anyOf": [{"required": ["n"], "properties": {"n": {"$ref": "#"}}, "minProperties": n} for n in (1, 2)]}
    validate = validator_of(json.dumps({"anyOf": [*node["anyOf"], {"type": "string"}]}), ())

    validate(b'{"n":{"n":"x"}}')
    with pytest.raises(RecordError, match="nests deeper than 14 levels"):
        validate(b'{"n":' * 25 + b"1" + b"}" * 25)


def test_usual_recursive_schemas_have_no_bound() -> None:
    """A tree has each part validated once."""
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "n": {"type": "integer"}}}
    validator_of(json.dumps(tree), ())(b'{"left":' * 60 + b'{"n":1}' + b"}" * 60)


def test_a_schema_that_refers_to_itself() -> None:
    """It is refused where the validator would not end."""
    with pytest.raises(ValueError, match="refers to itself"):
        validator_of(json.dumps({"anyOf": [{"$ref": "#"}, {"type": "string"}]}), ())
