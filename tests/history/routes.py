"""A small route with every part that a test can reach."""

from __future__ import annotations

from pathlib import Path

from turnout.history import Case, Suite
from turnout.routes import Route

TEXT = """
name: small
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: {format: json}
transforms:
  - {name: old, type: Filter, predicate: {type: HasHeaderKey, name: Old}}
  - {name: rename, type: ReplaceField$Value, renames: "city:town"}
  - {name: mask, type: MaskField$Value, fields: secret, predicate: {when: {key: value.n, ">": 5}}}
mappings:
  "in.*": "mapped.{{wildcard(1)}}"
  "half.x": [{destination: "half.x", weight: 50%}]
  "split.x": [{destination: "a.x", weight: 90%, cluster: east}, {destination: "b.x", weight: 10%, cluster: east}]
subscriptions: {store: "memory://history", metadata: {town: value.town, n: value.n}}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
deadLetter: {topic: dead}
errors: {tolerance: all}
"""

SUBSCRIPTIONS = """
subscriptions:
  - {id: oulu, destinations: out.oulu, when: "town:Oulu"}
  - {id: many, destinations: [out.many, out.more], when: "n>5 AND NOT Kind:odd"}
"""


def route(text: str = TEXT) -> Route:
    return Route.parse(text, {})


def suite(cases: str, *, shared: str = SUBSCRIPTIONS, text: str = TEXT) -> tuple[Case, ...]:
    """The cases of a file beside the route, given as YAML."""
    parsed = Suite.parse(f"{shared}cases:\n{cases}", route(text), Path("small.test.yaml"))
    assert parsed is not None
    return parsed.cases
