"""Templates of new routes: complete files, to be changed."""

from __future__ import annotations

from typing import Final

_NATS: Final = 'source: {{format: nats, servers: "nats://127.0.0.1:4222", stream: {stream}}}'
_HEAD: Final = f"name: orders\n{_NATS.format(stream='ORDERS')}\nvalue: {{format: json}}\n"
_TAIL: Final = """sink: {format: nats, servers: "nats://127.0.0.1:4222"}
# Failed records go here, with the reason in headers; a stream has to accept this subject.
deadLetter: {topic: dead.orders}
errors: {tolerance: all}
"""

TEMPLATES: Final = {
    "subjects": (
        "New subjects for the records of a stream",
        _HEAD + 'mappings:\n  "orders.*": "shop.{{wildcard(1)}}"\n' + _TAIL,
    ),
    "transforms": (
        "Records changed and filtered",
        _HEAD + "transforms:\n"
        "  - name: no-tests\n    type: Filter\n    predicate: {type: HasHeaderKey, name: Test}\n"
        '  - {name: renamed, type: "ReplaceField$Value", renames: "city:town"}\n' + _TAIL,
    ),
    "subscriptions": (
        "Delivery to stored subscriptions",
        _HEAD
        + "subscriptions:\n  store: sqlite:///subscriptions.db\n  metadata: {town: value.town, amount: value.amount}\n"
        + _TAIL,
    ),
    "kafka": (
        "Kafka to NATS",
        "name: orders\n"
        "source: {format: kafka, servers: 127.0.0.1:9092, topics: orders}\n"
        "value: {format: json}\n" + _TAIL,
    ),
}
"""Title and text by name."""
