"""Route that masks a field after another transform."""

from __future__ import annotations

from turnout.routes import Route

SECRET = "4929000011112222"
ROUTE = """
name: cards
source: {{format: nats, servers: "nats://127.0.0.1:1", stream: S}}
value: {{format: json}}
key: {{format: string}}
transforms:
  - {{name: one, {options}}}
  - {{name: two, type: DropHeaders, headers: Nothing}}
  - {{name: mask, type: MaskField$Value, fields: {masked}}}
sink: {{format: nats, servers: "nats://127.0.0.1:1"}}
deadLetter: {{topic: dead}}
errors: {{tolerance: all}}
"""


def route_of(options: str, masked: str) -> Route:
    return Route.parse(ROUTE.format(options=options, masked=masked), {})
