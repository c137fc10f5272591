"""A route's ``key`` and ``value`` as JSON Schema: formats and their settings."""

from __future__ import annotations

from typing import Any

from turnout.codecs.format import DECIMAL_FORMATS, FORMATS, SETTINGS, plugins
from turnout.routes.json_schema.models import when
from turnout.routes.json_schema.options import any_case

_SWITCH = {
    "default": True,
    "anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^(?:[Tt]rue|[Ff]alse|TRUE|FALSE)$"}],
}
_SCHEMAS = {
    "json": {"type": ["string", "null"], "description": "the columns of a struct: carrier STRING, delay DOUBLE"},
    "connect-json": {
        "type": ["object", "null"],
        "description": "the schema that every value has, in the JSON of Connect's JsonConverter",
    },
}
_NO_SCHEMA = {"type": "null", "description": "the format has its own"}
_DECIMALS = {
    "description": "of connect-json: how decimals are written (KIP-481)",
    "default": DECIMAL_FORMATS[0],
    "anyOf": [{"enum": list(DECIMAL_FORMATS)}, {"pattern": f"^(?:{'|'.join(map(any_case, DECIMAL_FORMATS))})$"}],
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "schemas.enable": {"description": "of connect-json: whether each value comes with its schema", **_SWITCH},
    "replace.null.with.default": {
        "description": "of connect-json: whether a null that has a default is that default",
        **_SWITCH,
    },
    "decimal.format": _DECIMALS,
}


def codec_schema(side: str) -> dict[str, Any]:
    """Return the schema of a codec for the *side*, keys or values."""
    text = f"how {side}s are decoded, and encoded again; as the bytes that they are if not given"
    return {"description": text, "anyOf": [{"$ref": "#/$defs/codec"}, {"type": "null"}]}


def codec_definitions() -> dict[str, Any]:
    """Return the definitions that `codec_schema` refers to; settings of other packages' formats are not checked."""
    plain = [name for name in FORMATS if name not in _SCHEMAS]
    bare = {"if": {"not": {"required": ["format"]}}, "then": _settings(_NO_SCHEMA)}
    rules = [when("format", [name], _settings(schema)) for name, schema in _SCHEMAS.items()]
    formats = {"enum": [*FORMATS, *sorted(plugins())], "default": "raw", "description": "what the bytes are"}
    codec = {
        "type": "object",
        "properties": {"format": formats},
        "allOf": [*rules, when("format", plain, _settings(_NO_SCHEMA)), bare],
    }
    return {"codec": codec}


def _settings(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the settings that a format allows: by Connect's name, or in camelCase."""
    by_letters = {name.replace(".", ""): setting for name, setting in _SETTINGS.items()}
    others = {name: by_letters[name.replace(".", "").lower()] for name in SETTINGS if name != "schema"}
    return {"properties": {"format": True, "schema": schema, **others}, "additionalProperties": False}
