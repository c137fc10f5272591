"""Record batches for tests of the engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from turnout.engine import Messages, Program
from turnout.nats.wire.records import SCHEMA
from turnout.records.headers import headers_type
from turnout.routes import Route

ROUTE = """
name: test
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: {format: json, schema: "n INT, city STRING, secret STRING"}
transforms:
  - {name: old, type: Filter, predicate: {type: HasHeaderKey, name: Old}}
  - {name: rename, type: ReplaceField$Value, renames: "city:town"}
  - {name: mask, type: MaskField$Value, fields: secret, replacement: "*"}
mappings:
  "in.*.*": "mapped.{{wildcard(2)}}.{{wildcard(1)}}"
  "half.x": [{destination: "half.x", weight: 50%}]
"""
SINK = 'sink: {format: nats, servers: "nats://127.0.0.1:4222"}\n'
DEAD = "deadLetter: {topic: dead}\nerrors: {tolerance: all}\n"
WANTED = 'subscriptions: {store: "memory://engine", metadata: {n: value.n, town: value.town}}\n'


def program(*parts: str, text: str = ROUTE) -> Program:
    return Program.of(Route.parse(text + "".join(parts or (SINK, DEAD)), {}))


def batch(records: Sequence[dict[str, Any]], *, stream: str | None = "S", first: int = 1) -> Any:
    """Records as a batch off a stream; what one does not say is as it usually is."""
    columns: dict[str, list[Any]] = {field.name: [] for field in SCHEMA}
    for offset, record in enumerate(records, start=first):
        value = record.get("value")
        columns["topic"].append(record.get("topic", "in.a.b"))
        columns["partition"].append(0)
        columns["offset"].append(record.get("offset", offset))
        columns["key"].append(record.get("key"))
        columns["value"].append(value if value is None or isinstance(value, bytes) else json.dumps(value).encode())
        columns["headers"].append(
            [{"key": k, "value": v if isinstance(v, bytes) else v.encode()} for k, v in record.get("headers", ())]
        )
        columns["timestamp"].append(record.get("timestamp", 1_700_000_000_000_000))
    arrays = [
        pa.array(columns[field.name], headers_type() if field.name == "headers" else field.type) for field in SCHEMA
    ]
    names = list(SCHEMA.names)
    if stream is not None:
        arrays.append(pa.array([stream] * len(records), pa.string()))
        names.append("stream")
    return pa.RecordBatch.from_arrays(arrays, names=names)


def sent(messages: Messages) -> list[tuple[str, str | None, bytes | None, list[tuple[str, bytes]]]]:
    """Each message: topic, id, value, headers."""
    return [
        (topic, id_, value, [(header["key"], header["value"]) for header in headers or ()])
        for topic, id_, value, headers in zip(
            messages.topics.to_pylist(),
            messages.ids.to_pylist(),
            messages.column("value").to_pylist(),
            messages.column("headers").to_pylist(),
            strict=True,
        )
    ]
