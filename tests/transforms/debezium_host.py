"""Debezium's own transforms in a JVM, and change events of the shapes that PostgreSQL's and MySQL's connectors write.

``python -m tests.transforms.debezium`` writes the vectors: what Debezium's classes make of these events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.transforms.kafka_host import KAFKA, KafkaHost, jars

__all__ = ["VECTORS", "VERSION", "DebeziumHost", "made_vectors", "read_vectors"]

VERSION = "3.6.1.Final"
VECTORS = Path(__file__).parents[1] / "vectors" / "connect"
_PACKAGE = "io.debezium.transforms."
_ARTIFACTS = (("io.debezium", "debezium-connect-plugins", VERSION), *KAFKA)

Json = dict[str, Any]


class DebeziumHost(KafkaHost):
    """A JVM with Debezium's transforms."""

    def class_path(self) -> list[Path]:
        return jars(f"debezium-{VERSION}", _ARTIFACTS)

    def answers(self, config: Json, record: Json) -> Json:
        """Return the results of Debezium's class for a record, in the form of the vectors."""
        stage = {"transform": config, "predicate": None, "negate": False}
        answer = self._ask({"stages": [stage], "records": [record]})
        if "error" in answer:
            return {"config_error": True}
        (outcome,) = answer["outcomes"]
        if outcome is None:
            return {"dropped": True}
        return {"record_error": True} if "error" in outcome else {"kind": "sink", **_short(outcome)}


def _short(given: Any) -> Any:
    """Return a record without what its schemas do not say."""
    if isinstance(given, list):
        return [_short(item) for item in given]
    if not isinstance(given, dict):
        return given
    empty: tuple[Any, ...] = (None, False, {}, []) if "type" in given else ()
    return {name: _short(item) for name, item in given.items() if item not in empty}


def _plain(kind: str, *, optional: bool = False, default: Any = None, name: str | None = None) -> Json:
    short: Json = _short({"type": kind, "optional": optional, "default": default, "name": name})
    return short


def _struct(name: str, fields: dict[str, Json], *, optional: bool = False) -> Json:
    named = [{"name": field, "schema": schema} for field, schema in fields.items()]
    short: Json = _short({"type": "struct", "optional": optional, "name": name, "fields": named})
    return short


_INT, _LONG, _TEXT = _plain("int32"), _plain("int64"), _plain("string")
_NO_LONG, _NO_TEXT = _plain("int64", optional=True), _plain("string", optional=True)
_COMMON = {"version": _TEXT, "connector": _TEXT, "name": _TEXT, "ts_ms": _LONG, "snapshot": _NO_TEXT, "db": _TEXT}
_SOURCES = {
    "postgresql": {**_COMMON, "schema": _TEXT, "table": _TEXT, "txId": _NO_LONG, "lsn": _NO_LONG},
    "mysql": {**_COMMON, "table": _NO_TEXT, "server_id": _LONG, "gtid": _NO_TEXT, "file": _TEXT, "pos": _LONG},
}
_VALUES = {
    "version": VERSION,
    "name": "server",
    "ts_ms": 1559033904863,
    "snapshot": None,
    "db": "inventory",
    "schema": "public",
    "table": "customers",
    "txId": 556,
    "lsn": 24023128,
    "server_id": 223344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
}
_ROW = {
    "id": _INT,
    "name": _NO_TEXT,
    "state": _plain("string", optional=True, default="new"),
    "region": _TEXT,
    "seen": _plain("int64", optional=True, name="io.debezium.time.MicroTimestamp"),
}
_TRANSACTION = {"id": _TEXT, "total_order": _LONG, "data_collection_order": _LONG}
_ANNE: Json = {"id": 1004, "name": "Anne", "state": None, "region": "eu", "seen": 1559033904863000}
_BOB: Json = {"id": 1005, "name": None, "state": "old", "region": "us", "seen": None}


def event(connector: str, op: str, *, before: Json | None = None, after: Json | None = None) -> Json:
    """A change event as a sink record."""
    topic = "server.public.customers" if connector == "postgresql" else "server.inventory.customers"
    row = _struct(f"{topic}.Value", _ROW, optional=True)
    source = _struct(f"io.debezium.connector.{connector}.Source", _SOURCES[connector])
    envelope = {
        "before": row, "after": row, "source": source, "op": _TEXT, "ts_ms": _NO_LONG, "ts_us": _NO_LONG,
        "transaction": _struct("event.block", _TRANSACTION, optional=True),
    }  # fmt: skip
    value = {
        "before": before, "after": after, "op": op, "ts_ms": 1559033904900, "ts_us": None,
        "source": {**{name: _VALUES.get(name) for name in _SOURCES[connector]}, "connector": connector},
        "transaction": {"id": "571", "total_order": 1, "data_collection_order": 1} if op == "u" else None,
    }  # fmt: skip
    value = {name: value[name] for name in envelope}
    found = {"schema": _struct(f"{topic}.Envelope", envelope), "value": value}
    key = {"schema": _struct(f"{topic}.Key", {"id": _INT}), "value": {"id": (after or before or {"id": 0})["id"]}}
    return {
        "kind": "sink", "topic": topic, "partition": 0, "offset": 7, "timestamp": 1559033905000, "key": key,
        "value": found, "headers": [["trace", {"schema": _TEXT, "value": "x"}]],
    }  # fmt: skip


def _events(*connectors: str) -> Iterator[tuple[str, Json]]:
    """Yield events of some connectors, and two records that are none."""
    for connector in connectors:
        yield f"{connector}: created", event(connector, "c", after=_ANNE)
        yield f"{connector}: updated", event(connector, "u", before=_BOB, after=_ANNE)
        yield f"{connector}: deleted", event(connector, "d", before=_BOB)
        yield f"{connector}: truncated", event(connector, "t")
    yield "a tombstone", event("mysql", "d") | {"value": {"schema": None, "value": None}}
    other = {"schema": _struct("server.other", {"before": _NO_TEXT, "op": _TEXT}), "value": {"before": None, "op": "c"}}
    yield "no event", event("mysql", "c") | {"value": other}


_OUTBOX = {
    "id": _TEXT, "aggregatetype": _NO_TEXT, "aggregateid": _NO_TEXT, "type": _TEXT, "payload": _NO_TEXT,
    "version": _plain("int32", optional=True), "shard": _plain("int32", optional=True), "count": _plain("int32"),
    "made": _plain("int64", optional=True, name="io.debezium.time.MicroTimestamp"),
    "nanos": _plain("int64", optional=True, name="io.debezium.time.NanoTimestamp"),
    "millis": _plain("int64", optional=True, name="io.debezium.time.Timestamp"),
    "bare": _plain("int64", optional=True),
}  # fmt: skip
_MESSAGE: Json = {
    "id": "da8d6de6", "aggregatetype": "Order", "aggregateid": "17", "type": "OrderCreated", "payload": '{"total": 20}',
    "version": 2, "shard": 3, "count": 5, "made": 1559033904863123, "nanos": -1, "millis": 1559033904863, "bare": 5,
}  # fmt: skip
_PAYLOADS = {
    "a null": None,
    "blank": "  ",
    "a text": "plain",
    "broken JSON": '{"a": ',
    "numbers": '{"a": 1, "b": 3000000000, "c": 1.5, "d": 1e3, "e": -2147483648}',
    "nested": '{"a": {"b": {"c": true}}, "list": [{"x": 1}, {"y": "z", "x": 2}], "no": []}',
    "nulls": '{"a": null, "b": [1, null, 2], "c": {"d": null}}',
    "nulls alone": '{"a": [null]}',
    "mixed": '{"a": [1, "x"]}',
    "mixed numbers": '{"a": [1, 2.5]}',
    "arrays": '{"a": [[1], [2, 3]]}',
    "empty": "{}",
}


def outbox(op: str = "c", *, before: Json | None = None, after: Json | None = None) -> Json:
    """An event of an outbox table as a sink record."""
    record = event("postgresql", op, before=None, after=None)
    row = _struct("server.public.outbox.Value", _OUTBOX, optional=True)
    envelope = record["value"]["schema"]
    for field in envelope["fields"]:
        if field["name"] in ("before", "after"):
            field["schema"] = row
    envelope["name"] = "server.public.outbox.Envelope"
    record["value"]["value"].update({"before": before, "after": after, "transaction": None})
    key = {"schema": _struct("server.public.outbox.Key", {"id": _TEXT}), "value": {"id": "da8d6de6"}}
    return {**record, "topic": "server.public.outbox", "key": key}


def _outbox_events(*, payloads: bool) -> Iterator[tuple[str, Json]]:
    """Yield events of an outbox; with *payloads* one for each kind of JSON text."""
    yield "inserted", outbox(after=_MESSAGE)
    if payloads:
        for name, payload in _PAYLOADS.items():
            yield f"payload {name}", outbox(after={**_MESSAGE, "payload": payload})
        return
    yield "read in a snapshot", outbox("r", after=_MESSAGE)
    yield "updated", outbox("u", before=_MESSAGE, after=_MESSAGE)
    yield "deleted", outbox("d", before=_MESSAGE)
    yield "truncated", outbox("t")
    yield "no topic", outbox(after={**_MESSAGE, "aggregatetype": None})
    yield (
        "no key, no payload, no times",
        outbox(
            after={**_MESSAGE, **dict.fromkeys(("aggregateid", "payload", "made", "nanos", "millis", "bare", "shard"))}
        ),
    )
    yield "a tombstone", outbox("d") | {"value": {"schema": None, "value": None}}
    yield "no event", dict(_events("mysql"))["no event"]


_STATE = {"type": _PACKAGE + "ExtractNewRecordState"}
_ROUTER = {"type": _PACKAGE + "ByLogicalTableRouter", "topic.regex": "(.*)customers(.*)"}
_TO = {**_ROUTER, "topic.replacement": "$1customers_all_shards"}
_EVENTS = {"type": _PACKAGE + "outbox.EventRouter"}
_PLACED = "table.fields.additional.placement"
_ADDED = "op,table,lsn,source.ts_ms,pos,ts_ms"
CONFIGS: dict[str, dict[str, Json]] = {
    "ExtractNewRecordState": {
        "as by default": _STATE,
        **{
            mode: {**_STATE, "delete.tombstone.handling.mode": mode}
            for mode in ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
        },
        "added fields": {**_STATE, "delete.tombstone.handling.mode": "rewrite", "add.fields": _ADDED},
        "added headers": {**_STATE, "add.headers": _ADDED, "delete.tombstone.handling.mode": "rewrite-with-tombstone"},
        "added under other names": {
            **_STATE, "add.fields": "op:OPERATION, source.table:T", "add.fields.prefix": "x.", "add.headers": "op,name",
            "add.headers.prefix": "",
        },
        "of the transaction": {**_STATE, "add.fields": "transaction.id,total_order", "add.headers": "transaction.id"},
        "of no part": {**_STATE, "add.fields": "nothing.id"},
        "a struct": {**_STATE, "add.fields": "source"},
        "a name twice": {**_STATE, "add.fields": "op:id", "add.fields.prefix": ""},
        "routed by a field": {**_STATE, "route.by.field": "region"},
        "routed by a number": {**_STATE, "route.by.field": "id"},
        "routed by a null": {**_STATE, "route.by.field": "name", "delete.tombstone.handling.mode": "rewrite"},
        "nulls stay": {**_STATE, "delete.tombstone.handling.mode": "rewrite", "replace.null.with.default": "false"},
    },
    "EventRouter": {
        "as by default": _EVENTS,
        "other columns": {
            **_EVENTS, "table.field.event.id": "type", "table.field.event.key": "id",
            "table.field.event.payload": "type", "route.by.field": "id",
            "route.topic.replacement": "out.${routedByValue}",
        },
        "another topic": {**_EVENTS, "route.topic.regex": "O(.*)", "route.topic.replacement": "o$1"},
        "no match": {**_EVENTS, "route.topic.regex": "x"},
        "microseconds": {**_EVENTS, "table.field.event.timestamp": "made"},
        "nanoseconds": {**_EVENTS, "table.field.event.timestamp": "nanos"},
        "milliseconds": {**_EVENTS, "table.field.event.timestamp": "millis"},
        "no unit": {**_EVENTS, "table.field.event.timestamp": "bare"},
        "a text as the time": {**_EVENTS, "table.field.event.timestamp": "type"},
        "no such time": {**_EVENTS, "table.field.event.timestamp": "nothing"},
        "headers": {**_EVENTS, _PLACED: "type:header,count:header:n, shard:partition"},
        "an envelope": {**_EVENTS, _PLACED: "type:envelope:eventType,count:envelope,id:header:again"},
        "a version": {**_EVENTS, _PLACED: "type:envelope:kind", "table.field.event.schema.version": "version"},
        "a column that is missing": {**_EVENTS, _PLACED: "nothing:header"},
        "one that may be missing": {
            **_EVENTS, _PLACED: "nothing:header,none:envelope,type:envelope:kind",
            "table.field.additional.missing": "ignore",
        },
        "a partition that is a text": {**_EVENTS, _PLACED: "type:partition"},
        "no such key": {**_EVENTS, "table.field.event.key": "nothing"},
        "no such id": {**_EVENTS, "table.field.event.id": "nothing"},
        "no such payload": {**_EVENTS, "table.field.event.payload": "nothing"},
        "no such route": {**_EVENTS, "route.by.field": "nothing"},
        "routed by a number": {**_EVENTS, "route.by.field": "count"},
        "an empty payload is a tombstone": {**_EVENTS, "route.tombstone.on.empty.payload": "true"},
        "the same in an envelope": {
            **_EVENTS, "route.tombstone.on.empty.payload": "true", _PLACED: "type:envelope:kind"
        },
        "updates fail": {**_EVENTS, "table.op.invalid.behavior": "fatal"},
        "a bad treatment": {**_EVENTS, "table.op.invalid.behavior": "ignore"},
        "a bad placement": {**_EVENTS, _PLACED: "type"},
        "a bad expression": {**_EVENTS, "route.topic.regex": "("},
        "payloads as they are": _EVENTS,
        "payloads expanded": {**_EVENTS, "table.expand.json.payload": "true"},
        "payloads expanded, with nulls": {
            **_EVENTS, "table.expand.json.payload": "true", "table.json.payload.null.behavior": "optional_bytes"
        },
        "payloads expanded in an envelope": {
            **_EVENTS, "table.expand.json.payload": "true", _PLACED: "type:envelope:kind",
            "route.tombstone.on.empty.payload": "true",
        },
    },
    "ByLogicalTableRouter": {
        "to one topic": _TO,
        "without a field in the key": {**_TO, "key.enforce.uniqueness": "false"},
        "a field of another name": {
            **_TO, "key.field.name": "shard", "key.field.regex": "server\\.(.*)\\.customers",
            "key.field.replacement": "$1",
        },
        "an expression that does not match": {**_TO, "key.field.regex": "x", "key.field.replacement": "y"},
        "a field that there is": {**_TO, "key.field.name": "id"},
        "another topic": {**_TO, "topic.regex": "orders"},
        "no topic": {**_ROUTER, "topic.replacement": "$2"},
        "names for Avro": {**_ROUTER, "topic.replacement": "1a-b", "schema.name.adjustment.mode": "avro"},
        "no replacement of the key": {**_TO, "key.field.regex": "(.*)"},
        "no replacement": _ROUTER,
        "no expression": {**_TO, "topic.regex": "("},
    },
}  # fmt: skip
"""Options for each class, by what they show."""


def made_vectors(host: DebeziumHost, name: str) -> list[Json]:
    """The vectors of a class, as it answers now."""
    made = []
    for shows, config in CONFIGS[name].items():
        both = shows in ("as by default", "added fields", "to one topic")
        if name == "EventRouter":
            records = _outbox_events(payloads=shows.startswith("payloads"))
        else:
            records = _events("postgresql", *(["mysql"] if both else []))
        for kind, record in records:
            expect = host.answers(config, record)
            vector = {"name": f"{shows}; {kind}", "basis": f"Debezium {VERSION}", "schemaless": False, "config": config}
            made.append({**vector, "record": None if "config_error" in expect else record, "expect": expect})
            if "config_error" in expect:
                break
    return made


def read_vectors(name: str) -> list[Json]:
    """The vectors of a class, as they were written."""
    vectors: list[Json] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return vectors


def _write() -> None:
    with DebeziumHost() as host:
        for name in CONFIGS:
            lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in made_vectors(host, name))
            (VECTORS / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
