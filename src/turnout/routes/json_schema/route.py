"""JSON schema of a route file: the schemas of its models, codecs and mappings."""

from __future__ import annotations

from turnout.codecs.kind import CodecKind, Setting
from turnout.codecs.registry import NULLABLE, format_names, kinds
from turnout.routes.document import RouteDocument
from turnout.routes.endpoints.base import FORMAT_BLOCK
from turnout.routes.json_schema.chain import chain_definitions, chain_schema
from turnout.routes.json_schema.models import DIALECT, JsonSchema, model_schema, when
from turnout.routes.json_schema.options import any_case


def codec_schema(side: str) -> JsonSchema:
    """Return the schema of a codec for the *side*, keys or values."""
    text = f"how {side}s are decoded, and encoded again; as the bytes that they are if not given"
    return {"description": text, "anyOf": [{"$ref": "#/$defs/codec"}, {"type": "null"}]}


def _with_codecs(definitions: JsonSchema) -> JsonSchema:
    """Return the definitions of sinks and webhooks with the formats that they write."""
    for definition in definitions.values():
        for name, schema in definition.get("properties", {}).items():
            if schema.get("$comment") == FORMAT_BLOCK:
                definition["properties"][name] = {
                    "description": schema["description"],
                    "anyOf": [{"$ref": "#/$defs/codec"}, {"type": "null"}],
                }
    return definitions


def codec_definitions() -> JsonSchema:
    """Return the definitions that `codec_schema` refers to; open settings of other packages are not checked."""
    all_kinds = kinds()
    bare = {"if": {"not": {"required": ["format"]}}, "then": _settings(all_kinds["raw"])}
    alike: dict[str, list[str]] = {}
    for kind in all_kinds.values():
        if kind.settings is not None:
            alike.setdefault(repr(kind.settings), []).append(kind.name)
    rules = [when("format", names, _settings(all_kinds[names[0]])) for names in alike.values()]
    formats = {"enum": list(format_names()), "default": "raw", "description": "format of the bytes"}
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


_FIELDS: dict[str, JsonSchema] = {
    "destination": {"type": "string", "description": "the new subject: eu.{{wildcard(1)}}"},
    "dest": {"type": "string", "description": "the same as destination"},
    "weight": {"type": ["string", "number"], "description": "its share: 40, or 40%"},
    "cluster": {"type": "string", "description": "the cluster that it is for; the default destinations without it"},
}


def mappings_schema() -> JsonSchema:
    """Return the forms: source subjects with destinations, or the name of a nats-server configuration file."""
    target = {"$ref": "#/$defs/destination"}
    text = {"type": "string", "description": "the new subject"}
    return {
        "description": "nats-server's subject mappings (ADR-30): the first source that matches decides",
        "anyOf": [
            {
                "type": "object",
                "description": "source subject: destinations; or {file: nats-server.conf, account: ORDERS}",
                "additionalProperties": {"anyOf": [text, target, {"type": "array", "items": target}]},
            },
            {"type": "string", "description": "the name of a nats-server configuration file"},
            {"type": "null"},
        ],
    }


def mappings_definitions() -> JsonSchema:
    """Return the definitions that `mappings_schema` refers to; field names are case-insensitive, as in nats-server."""
    return {
        "destination": {
            "type": "object",
            "properties": _FIELDS,
            "patternProperties": {f"^{any_case(name)}$": {"type": field["type"]} for name, field in _FIELDS.items()},
            "additionalProperties": False,
        }
    }


def route_schema(tests: JsonSchema | None = None) -> JsonSchema:
    """Return the schema of route files, with the transforms, predicates and formats installed here.

    It takes everything that ``turnout check`` takes. The other way round it does not: it knows names, types and words,
    and not what subjects, patterns, addresses and fields mean.

    Args:
        tests: the schema of the route's tests, which are read by another package; anything if not given.
    """
    document = model_schema(RouteDocument)
    definitions = _with_codecs(document.pop("$defs"))
    suite = dict(tests or {})
    definitions |= {**chain_definitions(), **codec_definitions(), **mappings_definitions(), **suite.pop("$defs", {})}
    document["properties"] |= {
        "key": codec_schema("key"),
        "value": codec_schema("value"),
        "transforms": chain_schema(),
        "mappings": mappings_schema(),
        "tests": {**suite, "description": document["properties"]["tests"]["description"]},
    }
    needed = {"anyOf": [{"required": ["sink"]}, {"required": ["sinks"]}]}
    return {"$schema": DIALECT, "title": "A route of turnout", **document, **needed, "$defs": definitions}
