"""A route's ``key`` and ``value`` as JSON Schema, made of the registry: formats and their settings."""

from __future__ import annotations

from turnout.codecs.kind import CodecKind, Setting
from turnout.codecs.registry import NULLABLE, format_names, kinds
from turnout.routes.json_schema.models import JsonSchema, when


def codec_schema(side: str) -> JsonSchema:
    """Return the schema of a codec for the *side*, keys or values."""
    text = f"how {side}s are decoded, and encoded again; as the bytes that they are if not given"
    return {"description": text, "anyOf": [{"$ref": "#/$defs/codec"}, {"type": "null"}]}


def codec_definitions() -> JsonSchema:
    """Return the definitions that `codec_schema` refers to; open settings of other packages are not checked."""
    known = kinds()
    bare = {"if": {"not": {"required": ["format"]}}, "then": _settings(known["raw"])}
    alike: dict[str, list[str]] = {}
    for kind in known.values():
        if kind.settings is not None:
            alike.setdefault(repr(kind.settings), []).append(kind.name)
    rules = [when("format", names, _settings(known[names[0]])) for names in alike.values()]
    formats = {"enum": list(format_names()), "default": "raw", "description": "what the bytes are"}
    return {"codec": {"type": "object", "properties": {"format": formats}, "allOf": [*rules, bare]}}


def _settings(kind: CodecKind) -> JsonSchema:
    """Return the schema of the settings that a format allows: by Connect's name, or in camelCase."""
    own = kind.settings or ()
    schemas = {name: _setting(setting) for setting in own for name in (setting.name, setting.camel)}
    nulls = {name: {"type": "null", "description": "the format has none"} for name in sorted(NULLABLE - schemas.keys())}
    return {"properties": {"format": True, **nulls, **schemas}, "additionalProperties": False}


def _setting(setting: Setting) -> JsonSchema:
    default = {} if setting.default is None else {"default": setting.default}
    return {"description": setting.doc, **default, **setting.json_schema}
