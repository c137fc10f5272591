"""The schema of a whole route file."""

from __future__ import annotations

from turnout.routes.document import RouteDocument
from turnout.routes.json_schema.chain import chain_definitions, chain_schema
from turnout.routes.json_schema.codecs import codec_definitions, codec_schema
from turnout.routes.json_schema.mappings import mappings_definitions, mappings_schema
from turnout.routes.json_schema.models import DIALECT, JsonSchema, model_schema


def route_schema(tests: JsonSchema | None = None) -> JsonSchema:
    """Return the schema of route files, with the transforms, predicates and formats installed here.

    It takes everything that ``turnout check`` takes. The other way round it does not: it knows names, types and words,
    and not what subjects, patterns, addresses and fields mean.

    Args:
        tests: the schema of the route's tests, which are read by another package; anything if not given.
    """
    document = model_schema(RouteDocument)
    definitions = document.pop("$defs")
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
