"""Route files as JSON Schema (draft 2020-12), for editors: derived from the models and registries that read them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from turnout.base import options
from turnout.base.options import REQUIRED, any_case, attribute_texts
from turnout.base.untrusted import JsonObject
from turnout.codecs.codec import CodecKind, camel_name
from turnout.codecs.format import NULLABLE, format_names, kinds
from turnout.records.types import DynamicValue
from turnout.routes.document import RouteDocument
from turnout.routes.endpoints import FORMATS, kind_of
from turnout.routes.endpoints.base import FORMAT_BLOCK
from turnout.transforms.base import PACKAGE
from turnout.transforms.config import OPTIONS as POLICY
from turnout.transforms.options import LIST, STRING, OneOf, Option, OptionError
from turnout.transforms.registry import predicate_names, predicates, transform_names, transforms

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_VARIABLE = r"\$\{"
_WORDS = r"^\s*(?:[Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF|[TtFfYyNn01])\s*$"

JsonSchema: TypeAlias = JsonObject
"""A JSON Schema, or a part of one."""


def model_schema(model: type[BaseModel]) -> JsonSchema:
    """Return the schema of a model with the names used in files, with its parts under ``$defs``.

    Numbers and switches may be texts, too: pydantic reads ``"100"``, and ``${NAME}`` is a placeholder.
    """
    schema: JsonSchema = _plain(model.model_json_schema(by_alias=True, schema_generator=_Generator))
    return schema


def _plain(schema: DynamicValue) -> DynamicValue:
    """Return a schema without titles that repeat names and without null defaults."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _plain(inner) for key, inner in value.items()}
        if name in ("properties", "$defs", "patternProperties")
        else _plain(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str)) and not (name == "default" and value is None)
    }


def when(name: str, values: list[str], then: JsonSchema) -> JsonSchema:
    """Return a rule for blocks in which *name* has one of these values.

    Editors report more for one rule that applies than for alternatives that do not.
    """
    condition = {"properties": {name: {"enum": values}}, "required": [name]}
    return {"if": condition, "then": then}


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, with texts of docstrings, and with all input types that pydantic accepts."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a block; its docstring describes it, and fields without a description."""
        kind: type[BaseModel] = schema["cls"]
        definition = super().model_schema(schema)
        definition["description"] = first_sentence(kind)
        texts = attribute_texts(kind)
        for name, field in kind.model_fields.items():
            text = field.description or texts.get(name)
            if text:
                definition["properties"][field.alias or name]["description"] = text
        return definition

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Return the schema of a source or sink; its format determines the other keys."""
        rules = [
            when("format", [name for name in FORMATS if kind_of({"format": name}) == tag], self.generate_inner(choice))
            for tag, choice in schema["choices"].items()
        ]
        formats = {"enum": list(FORMATS), "description": "format of the endpoint"}
        return {"type": "object", "required": ["format"], "properties": {"format": formats}, "allOf": rules}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """Return the schema of an integer, or of its text."""
        text = {"type": "string", "pattern": rf"^\s*[+-]?\d+\s*$|{_VARIABLE}"}
        return {"anyOf": [super().int_schema(schema), text]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Return the schema of a number, or of its text."""
        text = {"type": "string", "pattern": rf"^\s*[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*$|{_VARIABLE}"}
        return {"anyOf": [super().float_schema(schema), text]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        """Return the schema of a boolean, or of a text or number that is read as one."""
        return {"anyOf": [super().bool_schema(schema), {"type": "string", "pattern": f"{_WORDS}|{_VARIABLE}"},
                          {"enum": [0, 1]}]}  # fmt: skip


def first_sentence(kind: type) -> str:
    """Return the first line of a class's own docstring."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]


_SCALAR = ["string", "number", "boolean"]


def options_schema(options: Sequence[Option], other_names: Sequence[str]) -> JsonSchema:
    """Return the schema of a block with these options and the names *other_names*, described elsewhere."""
    return {
        "properties": {option.name: option_schema(option) for option in options} | dict.fromkeys(other_names, True),
        "required": [option.name for option in options if option.default is REQUIRED],
        "additionalProperties": False,
    }


def option_schema(option: Option) -> JsonSchema:
    """Return the schema of one option.

    Whatever the check of the option refuses for null and for the empty text is not allowed; other checks show in the
    description alone.
    """
    schemas = _schemas(option)
    if _takes(option, None):
        schemas.append({"type": "null"})
    valid = f" Valid: {option.valid}." if option.valid else ""
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    defaults = {} if default is REQUIRED or default is None else {"default": default}
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"description": option.doc + valid, **defaults, **schema}


def _schemas(option: Option) -> list[JsonSchema]:
    if isinstance(option.check, OneOf):
        return _words(option.check)
    least = 0 if _takes(option, "") else 1
    if option.kind is STRING:
        block: list[JsonSchema] = [{"type": ["object", "array"]}] if option.block else []
        return [{"type": _SCALAR, **_length(least)}, *block]
    if option.kind is LIST:
        items = {"type": "array", "items": {"type": _SCALAR}, **({"minItems": least} if least else {})}
        return [{"type": _SCALAR, **_length(least)}, items]
    return list(option.kind.json_schema["anyOf"])


def _length(least: int) -> JsonSchema:
    return {"minLength": least} if least else {}


def _words(check: OneOf) -> list[JsonSchema]:
    words: list[JsonSchema] = [{"enum": list(check.words)}]
    if check.any_case:
        words.append({"type": "string", "pattern": f"^(?:{'|'.join(map(any_case, check.words))})$"})
    return words


def _takes(option: Option, text: str | None) -> bool:
    try:
        option.parse(text)
    except OptionError:
        return False
    return True


_OF_THE_STAGE = ("name", "type", "predicate", "negate")
_OF_THE_PREDICATE = ("type", "negate")
_SWITCH = {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": r"^\s*(?:[Tt]rue|[Ff]alse|TRUE|FALSE)\s*$"}]}


def chain_schema() -> JsonSchema:
    """Return the three forms: a list of stages, Connect's properties, and the name of a connector's file."""
    return {
        "description": "Kafka Connect's transforms with their predicates, in order (KIP-585)",
        "anyOf": [
            {"type": "array", "items": {"$ref": "#/$defs/stage"}},
            {"$ref": "#/$defs/connector"},
            {"type": "string", "description": "the name of a connector's .json or .properties file"},
            {"type": "null"},
        ],
    }


def chain_definitions() -> JsonSchema:
    """Return the definitions that `chain_schema` refers to."""
    items = sorted(transforms().items())
    kinds = {
        f"transform.{name}": {"description": kind.summary, **options_schema(kind.options, _OF_THE_STAGE)}
        for name, kind in items
    }
    guards = {
        f"predicate.{name}": {"description": kind.summary, **options_schema(kind.options, _OF_THE_PREDICATE)}
        for name, kind in sorted(predicates().items())
    }
    return {"stage": _stage(), "predicate": _predicate(), "connector": _connector(), **kinds, **guards}


def _stage() -> JsonSchema:
    predicate = {"$ref": "#/$defs/predicate"}
    rules = [
        when("type", transform_names(name), {"$ref": f"#/$defs/transform.{name}"}) for name in sorted(transforms())
    ]
    types = _short_first([name for simple in sorted(transforms()) for name in transform_names(simple)])
    return {
        "description": "a transform, with the predicate that says which records it is for",
        "type": "object",
        "required": ["type"],
        "properties": {
            "name": {"description": "name of the stage in errors and reports"},
            "type": {"description": "which transform", "enum": types},
            "predicate": {
                "description": "which records the transform is for; of several all have to hold",
                "anyOf": [predicate, {"type": "array", "items": predicate}, {"type": "null"}],
            },
            "negate": {"description": "for those records that the predicate is false of", **_SWITCH},
        },
        "dependentRequired": {"negate": ["predicate"]},
        "allOf": rules,
    }


def _predicate() -> JsonSchema:
    rules = [
        when("type", predicate_names(name), {"$ref": f"#/$defs/predicate.{name}"}) for name in sorted(predicates())
    ]
    bare = {"if": {"not": {"required": ["type"]}}, "then": {"$ref": "#/$defs/predicate.Condition"}}
    types = _short_first([name for simple in sorted(predicates()) for name in predicate_names(simple)])
    return {
        "description": "true or false of a record as the stages before have left it",
        "type": "object",
        "properties": {
            "type": {"description": "which predicate; Condition where there is a when", "enum": types},
            "negate": {"description": "turn the answer around", **_SWITCH},
        },
        "allOf": [*rules, bare],
    }


def _connector() -> JsonSchema:
    """Return the schema of Connect's properties; options of aliases depend on the type and are open."""
    aliases = {"type": "string", "description": "aliases, in order, with commas between them"}
    converter = {"type": "string", "description": "the class of a converter"}
    converters = dict.fromkeys(("key.converter", "value.converter", "header.converter"), converter)
    text = {"type": ["string", "number", "boolean", "null", "object", "array"]}
    return {
        "description": "the properties of a connector",
        "type": "object",
        "required": ["transforms"],
        "properties": {
            "transforms": aliases,
            "predicates": aliases,
            **converters,
            **{option.name: option_schema(option) for option in POLICY},
        },
        "patternProperties": {
            r"^(?:transforms|predicates)\..+\..+$": text,
            r"^(?:key|value|header)\.converter\..+$": text,
        },
        "additionalProperties": False,
    }


def _short_first(names: list[str]) -> list[str]:
    """Return simple names before names with a package, as editors suggest them in this order."""
    return sorted(names, key=lambda name: name.startswith((PACKAGE, "org.")))


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
            alike.setdefault(repr(_settings(kind)), []).append(kind.name)
    rules = [when("format", names, _settings(all_kinds[names[0]])) for names in alike.values()]
    formats = {"enum": list(format_names()), "default": "raw", "description": "format of the bytes"}
    return {"codec": {"type": "object", "properties": {"format": formats}, "allOf": [*rules, bare]}}


def _settings(kind: CodecKind) -> JsonSchema:
    """Return the schema of the settings that a format allows: by Connect's name, or in camelCase."""
    own = kind.settings or ()
    schemas = {name: _setting(setting) for setting in own for name in (setting.name, camel_name(setting))}
    nulls = {name: {"type": "null", "description": "the format has none"} for name in sorted(NULLABLE - schemas.keys())}
    return {"properties": {"format": True, **nulls, **schemas}, "additionalProperties": False}


def _setting(setting: options.Option) -> JsonSchema:
    default = {} if setting.default is None else {"default": setting.default}
    return {"description": setting.doc, **default, **setting.kind.json_schema}


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
