"""Tests of a route as JSON Schema (draft 2020-12), for editors."""

from __future__ import annotations

from turnout.engine.sample_records import PARTS
from turnout.history.suite import STORE
from turnout.history.suite_document import SuiteDocument
from turnout.routes.json_schema import DIALECT, model_schema
from turnout.untrusted import JsonObject

_TEXT = {"type": ["string", "null"]}
_PARTS: dict[str, JsonObject] = {
    "topic": {"type": "string", "description": "the subject, or the topic"},
    "partition": {"type": "integer", "default": 0, "description": "of Kafka"},
    "offset": {"type": "integer", "default": 0, "description": "or the sequence; weighted mappings draw by it"},
    "key": {"description": "a text stands for its bytes, anything else for its JSON"},
    "keyBase64": {**_TEXT, "description": "a key that is no text"},
    "value": {"description": "a text stands for its bytes, anything else for its JSON"},
    "valueBase64": {**_TEXT, "description": "a value that is no text"},
    "headers": {"type": ["object", "array", "null"], "description": "name: text, or a list of texts"},
    "timestamp": {"type": ["string", "integer", "null"], "description": "ISO 8601, or milliseconds since 1970"},
    "stream": {**_TEXT, "description": "the JetStream stream that it is from"},
}


def test_file_schema() -> JsonObject:
    """Return the schema of ``NAME.test.yaml``."""
    suite = suite_schema()
    definitions = suite.pop("$defs")
    return {"$schema": DIALECT, "title": "Tests of a route of turnout", **suite, "$defs": definitions}


def suite_schema() -> JsonObject:
    """Return the schema of a file of tests, or of ``tests`` in a route: an object, or a list of cases."""
    suite = model_schema(SuiteDocument)
    definitions = suite.pop("$defs")
    subscriptions = suite["properties"]["subscriptions"]
    subscriptions["anyOf"].append({"const": STORE, "description": "those of the route's store"})
    definitions["CasePart"]["properties"]["record"] = _record()
    exact = definitions["ExpectPart"]["properties"]["exact"]
    description = exact.pop("description")
    definitions["ExpectPart"]["properties"]["exact"] = {
        "description": description,
        "anyOf": [{"type": "boolean"}, exact],
    }
    delivery = definitions["DeliveryPart"]
    definitions["DeliveryPart"] = {"anyOf": [delivery, {"type": "string", "description": "a destination"}]}
    cases = {"type": "array", "items": {"$ref": "#/$defs/CasePart"}}
    return {"anyOf": [{"$ref": "#/$defs/Suite"}, cases], "$defs": {**definitions, "Suite": suite}}


def _record() -> JsonObject:
    return {
        "description": "the input record",
        "type": "object",
        "required": ["topic"],
        "properties": {part: _PARTS[part] for part in PARTS},
        "additionalProperties": False,
    }
