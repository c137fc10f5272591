"""JSON Schema of a route's ``transforms``, made from the registry: Kafka's, turnout's own, and plug-ins'."""

from __future__ import annotations

from turnout.routes.json_schema.models import JsonSchema, when
from turnout.routes.json_schema.options import option_schema, options_schema
from turnout.transforms.base import PACKAGE
from turnout.transforms.config import OPTIONS as POLICY
from turnout.transforms.registry import predicate_names, predicates, transform_names, transforms

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
