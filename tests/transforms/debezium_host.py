"""Debezium's own transforms in a JVM, and change events of the shapes that PostgreSQL's and MySQL's connectors write.

``python -m tests.transforms.debezium`` writes the vectors: what Debezium's classes make of these events.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.transforms.kafka_host import KAFKA, KafkaHost, jars

__all__ = ["VECTORS", "VERSION", "DebeziumHost", "made_vectors", "read_vectors"]

VERSION = "3.6.1.Final"
VECTORS = Path(__file__).parents[1] / "vectors" / "connect"
_PACKAGE = "io.debezium.transforms."
_CONNECTORS = ("debezium-connect-plugins", "debezium-connector-mongodb", "debezium-connector-postgres")
_ARTIFACTS = (*(("io.debezium", name, VERSION) for name in _CONNECTORS), *KAFKA)

Json = dict[str, Any]


class DebeziumHost(KafkaHost):
    """A JVM with Debezium's transforms."""

    def class_path(self) -> list[Path]:
        return jars(f"debezium-{VERSION}-connectors", _ARTIFACTS)

    def answers(self, config: Json, record: Json) -> Json:
        """Return the results of Debezium's class for a record, in the form of the vectors."""
        stage = {"transform": config, "predicate": None, "negate": False}
        answer = self._ask({"stages": [stage], "records": [record]})
        if "error" in answer:
            return {"config_error": True}
        (outcome,) = answer["outcomes"]
        if outcome is None:
            return {"dropped": True}
        return {"record_error": True} if "error" in outcome else {"kind": record["kind"], **_short(outcome)}


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
    key = {"schema": _struct(f"{topic}.Key", {"id": _INT}), "value": {"id": (after or before or {}).get("id", 0)}}
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


_HEADERS = {
    "n": ({"type": "int32"}, 5),
    "words": (_short({"type": "array", "optional": True, "name": "w", "values": _NO_TEXT}), ["a", "b"]),
    "none": (_NO_TEXT, None),
    "seen": (_NO_LONG, 7),
}


def _with_headers(config: Json) -> Iterator[tuple[str, Json]]:
    """Yield events with more headers; one is there twice, but for new structs, in which Debezium takes it once."""
    for name, record in _events("postgresql"):
        headers = [[key, {"schema": schema, "value": value}] for key, (schema, value) in _HEADERS.items()]
        again = [] if "." in config["fields"] else [["n", {"schema": _INT, "value": 6}]]
        yield name, record | {"headers": [*record["headers"], *headers, *again]}
    yield "other headers", {**event("postgresql", "c", after=_ANNE), "headers": []}


def _schema_changes(_: Json) -> Iterator[tuple[str, Json]]:
    """Yield schema change events, and records that are none."""
    change = _struct("io.debezium.connector.schema.Change", {"type": _TEXT, "id": _TEXT})
    changes = _short({"type": "array", "optional": True, "values": change})
    fields = {"databaseName": _NO_TEXT, "ddl": _NO_TEXT, "tableChanges": changes}
    schema = _struct("io.debezium.connector.mysql.SchemaChangeValue", fields)
    tables: dict[str, Any] = {kind: [{"type": kind, "id": "t"}] for kind in ("CREATE", "ALTER", "DROP", "TRUNCATE")}
    tables |= {"none": None, "DATABASE": [], "two": [{"type": "ALTER", "id": "t"}, {"type": "DROP", "id": "u"}]}
    for name, found in tables.items():
        value = {"databaseName": "d", "ddl": "…", "tableChanges": found}
        yield name, event("mysql", "c") | {"value": {"schema": schema, "value": value}}
    other = {"schema": _struct("a.SchemaChangeValue", {"ddl": _NO_TEXT}), "value": {"ddl": ""}}
    yield "no tables", event("mysql", "c") | {"value": other}
    yield from list(_events("mysql"))[-2:]


_TIMES = {
    "ms": _plain("int64", optional=True, name="io.debezium.time.Timestamp"),
    "us": _plain("int64", optional=True, name="io.debezium.time.MicroTimestamp"),
    "ns": _plain("int64", optional=True, name="io.debezium.time.NanoTimestamp", default=1577880000000000001),
    "zoned": _plain("string", optional=True, name="io.debezium.time.ZonedTimestamp"),
    "clock": _plain("string", optional=True, name="io.debezium.time.ZonedTime"),
    "connect": _plain("int64", optional=True, name="org.apache.kafka.connect.data.Timestamp"),
    "day": _plain("int32", optional=True, name="io.debezium.time.Date"),
    "other": _NO_LONG,
}
_MOMENTS = (
    (1529507596945, 1529507596945104, 1529507596945104123, "2018-06-20T15:13:16.945104Z", "15:13:16.5+02:00"),
    (-1001, -1000001, -1000000001, "1969-12-31T23:59:58.9+01:30:15", "00:00:00Z"),
    # Within the hours that Los Angeles leaves out in March and has twice in November.
    (1552185000000, 1572745800000000, 1552185000000000000, "2019-03-10T02:30:00-08:00", "23:59:59.999999999-18:00"),
    (None, None, None, None, None),
    (0, 0, 0, "2019-11-03T01:30:00Z", "12:00Z"),
    (0, 0, 0, "2019-11-03", None),
    (0, 0, 0, "2019-02-30T00:00:00Z", None),
)


def _timed(config: Json) -> Iterator[tuple[str, Json]]:
    """Yield events with times of all kinds; times of day only for an offset: those of zones depend on the season."""
    for number, (millis, micros, nanos, zoned, clock) in enumerate(_MOMENTS):
        clock = clock if config.get("converted.timezone", "").startswith("+") else None
        row: Json = {"ms": millis, "us": micros, "ns": nanos, "zoned": zoned, "clock": clock, "day": 3, "other": 4}
        row["connect"] = None if millis is None else {"$timestamp": millis}
        row = {name: row[name] for name in _TIMES}
        record = event("postgresql", "u", before=row if number < 3 else None, after=row)
        envelope = record["value"]["schema"]
        for field in envelope["fields"]:
            if field["name"] in ("before", "after"):
                field["schema"] = _struct("t.Value", _TIMES, optional=True)
        record["value"]["value"]["source"]["ts_ms"] = millis or 0
        yield f"times {number}", record
    yield from list(_events("mysql"))[-2:]


def _chunks(_: Json) -> Iterator[tuple[str, Json]]:
    """Yield events of chunks of TimescaleDB."""
    tables = ("_hyper_1_2_chunk", "_hyper_2_7_chunk", "bgw_job", "own_chunk")
    for schema, table in (*(("_timescaledb_internal", table) for table in tables), ("public", "_hyper_1_2_chunk")):
        record = event("postgresql", "c", after=_ANNE)
        record["value"]["value"]["source"] |= {"schema": schema, "table": table}
        yield f"{schema}.{table}", record
    yield "no event", dict(_events("mysql"))["no event"]


_CHANGE = _struct(
    "io.debezium.connector.mongodb.changestream.updatedescription",
    {
        "removedFields": _short({"type": "array", "optional": True, "values": _TEXT}),
        "updatedFields": _plain("string", optional=True, name="io.debezium.data.Json"),
    },
    optional=True,
)
_JSON = _plain("string", optional=True, name="io.debezium.data.Json")
_MONGO = {**_COMMON, "collection": _TEXT, "ord": _INT}
_DOCUMENTS = {
    "plain": '{"_id": {"$oid": "596e275826f08b2730779e1f"}, "name": "Anne", "n": 1, "big": {"$numberLong": "7"}, '
    '"bigger": 3000000000, "d": 1.5, "t": true, "no": null}',
    "types": '{"_id": 1, "date": {"$date": 1529507596945}, "iso": {"$date": "2018-06-20T15:13:16.945Z"}, '
    '"dec": {"$numberDecimal": "1.50"}, "bin": {"$binary": "AAEC", "$type": "00"}, '
    '"ts": {"$timestamp": {"t": 1529507596, "i": 1}}, "re": {"$regex": "a.*", "$options": "si"}, '
    '"code": {"$code": "x()"}, "un": {"$undefined": true}, "nan": {"$numberDouble": "NaN"}, '
    '"bin2": {"$binary": {"base64": "AAEC", "subType": "00"}}}',
    "nested": '{"_id": 1, "a": {"b": {"c": 1}, "e": {}}, "l": [1, 2], "no": [], "s": ["x", null], '
    '"docs": [{"x": 1}, {"y": "z", "x": 2}]}',
    "arrays of arrays": '{"_id": 1, "l": [[1, 2], [3]], "d": [[{"x": 1}], [{"x": 2}]]}',
    "documents inside of arrays": '{"_id": 1, "l": [{"d": {"x": 1}}, {"d": {"x": 1, "y": 2}}], "o": [{"k": [1]}]}',
    "mixed numbers": '{"_id": 1, "l": [1, 2.5]}',
    "mixed": '{"_id": 1, "l": [1, {"x": 1}]}',
    "null among numbers": '{"_id": 1, "l": [{"x": 1}, {"x": null}]}',
    "smallest key": '{"_id": 1, "m": {"$minKey": 1}}',
    "broken": '{"_id": 1',
    "no document": "[1]",
    "a name twice": '{"_id": 1, "__op": "x"}',
}  # fmt: skip


def _mongo(op: str, *, key: str = "1", before: str | None = None, after: str | None = None, change: Any = None) -> Json:
    """A change event of MongoDB."""
    record = event("mysql", op)
    envelope = {
        "before": _JSON, "after": _JSON, "updateDescription": _CHANGE, "op": _NO_TEXT, "ts_ms": _NO_LONG,
        "source": _struct("io.debezium.connector.mongo.Source", _MONGO),
        "transaction": _struct("event.block", _TRANSACTION, optional=True),
    }  # fmt: skip
    value = {
        "before": before, "after": after, "updateDescription": change, "op": op, "ts_ms": 1559033904900,
        "source": {**{name: _VALUES.get(name) for name in _COMMON}, "collection": "people", "ord": 3,
                   "connector": "mongodb"}, "transaction": None,
    }  # fmt: skip
    key_schema = _struct("server.db.people.Key", {"id": _TEXT})
    return {
        **record, "topic": "server.db.people", "key": {"schema": key_schema, "value": {"id": key}},
        "value": {"schema": _struct("server.db.people.Envelope", envelope), "value": value},
    }  # fmt: skip


def _documents(config: Json) -> Iterator[tuple[str, Json]]:
    """Yield events of a collection; without what Debezium does not take as documents, and turnout does."""
    taken = ("mixed", "arrays of arrays") if config.get("array.encoding") == "document" else ()
    for name, document in _DOCUMENTS.items():
        if name in taken:
            continue
        yield name, _mongo("c", after=document)
    for number, key in enumerate(('{"$oid": "596e275826f08b2730779e1f"}', '"a"', '{"a": 1, "b": {"c": "d"}}', "x")):
        yield f"key {number}", _mongo("r", key=key, after='{"_id": 1}')
    updated = '{"name": "Bob", "address.city": "Oulu", "gone": 1}'
    yield "changed in part", _mongo("u", change={"removedFields": ["gone", "other"], "updatedFields": updated})
    yield "fields removed", _mongo("u", change={"removedFields": ["gone"], "updatedFields": None})
    yield "deleted", _mongo("d")
    yield "deleted, with its image", _mongo("d", before='{"_id": 1, "name": "Anne"}')
    tombstone = {"value": {"schema": None, "value": None}}
    yield "a tombstone", _mongo("d") | tombstone
    yield "another key", {**_mongo("c", after="{}"), "key": {"schema": _TEXT, "value": "k"}}
    yield "no event", _mongo("d") | {"value": dict(_events("mysql"))["no event"]["value"]}


_STATE = {"type": _PACKAGE + "ExtractNewRecordState"}
_PARTITION = {"type": _PACKAGE + "partitions.PartitionRouting", "partition.topic.num": "7"}
_FIELDS = "partition.payload.fields"
_TO_VALUE = {"type": _PACKAGE + "HeaderToValue"}
_CHANGED = {"type": _PACKAGE + "ExtractChangedRecordState"}
_SCHEMA_FILTER = {"type": _PACKAGE + "SchemaChangeEventFilter"}
_EXCLUDED = "schema.change.event.exclude.list"
_ZONE = {"type": _PACKAGE + "TimezoneConverter", "converted.timezone": "America/Los_Angeles"}
_TIMESCALE = {
    "type": "io.debezium.connector.postgresql.transforms.timescaledb.TimescaleDb",
    "hypertables": "1:public.conditions,2:_timescaledb_internal._materialized_hypertable_2",
}
_DOCUMENT = {"type": "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"}
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
    "PartitionRouting": {
        "by a text": {**_PARTITION, _FIELDS: "change.name"},
        "by both rows": {**_PARTITION, _FIELDS: "after.region, before.id"},
        "by parts of the event": {**_PARTITION, _FIELDS: "source.table,op,ts_ms,nothing,source.nothing"},
        "by MurmurHash3": {**_PARTITION, _FIELDS: "change.region,change.id", "partition.hash.function": "murmur"},
        "by a long text and MurmurHash3": {
            **_PARTITION, _FIELDS: "source.name,source.version", "partition.hash.function": "MURMUR",
            "partition.topic.num": "1000003",
        },
        "by a number of 64 bits": {**_PARTITION, _FIELDS: "change.seen,source.ts_ms", "partition.topic.num": "1000003"},
        "by a default": {**_PARTITION, _FIELDS: "change.state"},
        "inside of no object": {**_PARTITION, _FIELDS: "op.name"},
        "no fields": _PARTITION,
        "no partitions": {**_PARTITION, _FIELDS: "op", "partition.topic.num": "0"},
    },
    "HeaderToValue": {
        "one": {**_TO_VALUE, "headers": "n", "fields": "count", "operation": "copy"},
        "moved": {**_TO_VALUE, "headers": "words,n", "fields": "changed,count", "operation": "move"},
        "inside": {**_TO_VALUE, "headers": "n,words", "fields": "source.count,source.words", "operation": "move"},
        "inside of new ones": {
            **_TO_VALUE, "headers": "n,none,words", "fields": "meta.count,meta.none,top", "operation": "copy"
        },
        "in place of a field": {**_TO_VALUE, "headers": "seen", "fields": "ts_ms", "operation": "copy"},
        "of another type": {**_TO_VALUE, "headers": "seen", "fields": "op", "operation": "copy"},
        "inside of a text": {**_TO_VALUE, "headers": "n", "fields": "op.count", "operation": "copy"},
        "too few fields": {**_TO_VALUE, "headers": "n,words", "fields": "count", "operation": "copy"},
        "a space": {**_TO_VALUE, "headers": "n n", "fields": "count", "operation": "copy"},
        "no such operation": {**_TO_VALUE, "headers": "n", "fields": "count", "operation": "take"},
    },
    "ExtractChangedRecordState": {
        "both": {**_CHANGED, "header.changed.name": "Changed", "header.unchanged.name": "Unchanged"},
        "changed": {**_CHANGED, "header.changed.name": "Changed"},
    },
    "SchemaChangeEventFilter": {
        "two": {**_SCHEMA_FILTER, _EXCLUDED: "DROP, ALTER"},
        "databases": {**_SCHEMA_FILTER, _EXCLUDED: "DATABASE"},
        "no such type": {**_SCHEMA_FILTER, _EXCLUDED: "drop"},
        "none": _SCHEMA_FILTER,
    },
    "TimezoneConverter": {
        "all": _ZONE,
        "an offset": {**_ZONE, "converted.timezone": "+05:30"},
        "included fields": {**_ZONE, "include.list": "source:customers:us"},
        "an included field of one row": {**_ZONE, "include.list": "topic:server.public.customers:after.ns"},
        "an included table": {**_ZONE, "include.list": "source:customers"},
        "another table": {**_ZONE, "include.list": "source:orders"},
        "several": {**_ZONE, "include.list": "source:orders,customers:ms,customers:us"},
        "the source": {**_ZONE, "include.list": "customers:source.ts_ms"},
        "excluded fields": {**_ZONE, "exclude.list": "customers:us"},
        "an excluded table": {**_ZONE, "exclude.list": "source:customers"},
        "an excluded other table": {**_ZONE, "exclude.list": "topic:orders:ms"},
        "no such zone": {**_ZONE, "converted.timezone": "Mars/Olympus"},
        "no zone": {"type": _ZONE["type"]},
        "both lists": {**_ZONE, "include.list": "source:a", "exclude.list": "source:b"},
        "no rule": {**_ZONE, "include.list": "customers"},
        "three parts twice": {**_ZONE, "include.list": "source:a:b,source:c:d"},
    },
    "TimescaleDb": {
        "hypertables": _TIMESCALE,
        "an aggregate": {
            **_TIMESCALE, "target.topic.prefix": "ts",
            "aggregates": "_timescaledb_internal._materialized_hypertable_2:public.daily",
        },
        "a chunk by its name": {
            **_TIMESCALE, "hypertables": _TIMESCALE["hypertables"] + ",_timescaledb_internal.own_chunk:public.own"
        },
    },
    "ExtractNewDocumentState": {
        "as by default": _DOCUMENT,
        "arrays as documents": {**_DOCUMENT, "array.encoding": "document"},
        "flattened": {**_DOCUMENT, "flatten.struct": "true", "flatten.struct.delimiter": "-"},
        **{
            mode: {**_DOCUMENT, "delete.tombstone.handling.mode": mode}
            for mode in ("drop", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
        },
        "rewritten with the id": {
            **_DOCUMENT, "delete.tombstone.handling.mode": "rewrite",
            "delete.tombstone.handling.mode.rewrite-with-id": "true",
        },
        "added fields": {**_DOCUMENT, "add.fields": "op,source.collection,ord", "add.headers": "op,ts_ms"},
        "no such encoding": {**_DOCUMENT, "array.encoding": "list"},
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


def _of_sources(_: Json) -> Iterator[tuple[str, Json]]:
    """Yield events as the records of a source, which some of the classes need."""
    return ((name, record | {"kind": "source", "offset": None}) for name, record in _events("postgresql", "mysql"))


_RECORDS = {
    "ExtractNewDocumentState": _documents,
    "HeaderToValue": _with_headers,
    "PartitionRouting": _of_sources,
    "SchemaChangeEventFilter": _schema_changes,
    "TimescaleDb": _chunks,
    "TimezoneConverter": _timed,
}


def made_vectors(host: DebeziumHost, name: str) -> list[Json]:
    """The vectors of a class, as it answers now."""
    made = []
    for shows, config in CONFIGS[name].items():
        both = shows in ("as by default", "added fields", "to one topic")
        if name == "EventRouter":
            records = _outbox_events(payloads=shows.startswith("payloads"))
        elif name in _RECORDS:
            records = _RECORDS[name](config)
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
        for name in sys.argv[1:] or CONFIGS:
            lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in made_vectors(host, name))
            (VECTORS / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
