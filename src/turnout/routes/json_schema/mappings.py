"""A route's ``mappings`` as JSON Schema: ADR-30's subject mappings as nats-server's configuration has them."""

from __future__ import annotations

from turnout.routes.json_schema.models import JsonSchema
from turnout.routes.json_schema.options import any_case

_FIELDS: dict[str, JsonSchema] = {
    "destination": {"type": "string", "description": "what the subject becomes: eu.{{wildcard(1)}}"},
    "dest": {"type": "string", "description": "the same as destination"},
    "weight": {"type": ["string", "number"], "description": "its share: 40, or 40%"},
    "cluster": {"type": "string", "description": "the cluster that it is for; the default destinations without it"},
}


def mappings_schema() -> JsonSchema:
    """The forms: source subjects with destinations, or the name of a nats-server configuration file."""
    target = {"$ref": "#/$defs/destination"}
    text = {"type": "string", "description": "what the subject becomes"}
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
