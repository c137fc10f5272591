"""Routes that read one format and write others: a format for each sink, for webhooks, and headers with schema ids."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.codecs.schema_registry.stand_in import Registered, StandIn, running_registry
from turnout.codecs.schema_registry.codec import VALUE_HEADER, header_of
from turnout.conditions import exists
from turnout.engine import Program
from turnout.engine.explain import explain
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.history.replay import with_sink
from turnout.history.suite.outcomes import ending_of
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.subscriptions.destinations import delivery_subject
from turnout.subscriptions.index import Index

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
VALUE = {"id": 2**53 + 1, "price": b"\x04\xe2", "note": None}
IN_HEADERS = {"schema.id.serializer": "header", "topic": "a"}
AS_JSON = b'{"id":9007199254740993,"price":12.50,"note":null}'


def datum(value: dict[str, Any] = VALUE) -> bytes:
    file = BytesIO()
    # The bytes of the decimal, and not its number.
    plain = json.loads(json.dumps(ORDER).replace('"logicalType": "decimal", ', ""))
    fastavro.schemaless_writer(file, fastavro.parse_schema(plain), value)
    return file.getvalue()


def route_of(value: dict[str, Any], more: dict[str, Any], tmp_path: Path | None = None) -> Route:
    document = {
        "name": "orders",
        "source": {"format": "kafka", "servers": "127.0.0.1:1", "topics": ["a"]},
        "value": value,
        "mappings": {"a": "b"},
        "errors": {"tolerance": "all"},
        "deadLetter": {"topic": "dead"},
        **more,
    }
    return Route.parse(json.dumps(document), file=None if tmp_path is None else tmp_path / "route.yaml")


def sink(**more: Any) -> dict[str, Any]:
    return {"format": "kafka", "servers": "127.0.0.1:1", **more}


def values(result: Any) -> list[tuple[str, bytes | None]]:
    return list(zip(result.messages.topics.to_pylist(), result.messages.column("value").to_pylist(), strict=True))


def reason(result: Any) -> str:
    (headers,) = result.messages.column("headers").to_pylist()
    texts = {header["key"]: header["value"].decode() for header in headers}
    return texts["__connect.errors.exception.message"]


@pytest.fixture
def registry() -> Any:
    with running_registry() as running:
        yield running


def test_avro_is_written_as_json() -> None:
    """Numbers keep their digits; dead letters are the bytes that were read."""
    program = Program.of(
        route_of({"format": "avro", "schema": ORDER}, {"sink": sink(value={"format": "json"}), "mappings": {"a": "b"}})
    )
    result = program.run(record_batch([SampleRecord("a", value=datum()), SampleRecord("a", value=b"\xff")]))

    assert values(result) == [("b", AS_JSON), ("dead", b"\xff")]


def test_json_is_written_as_avro(tmp_path: Path) -> None:
    """By the schema of a file beside the route; what does not fit is a dead letter with field, value and cure."""
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    route = route_of({"format": "json"}, {"sink": sink(value={"format": "avro", "schema": "order.avsc"})}, tmp_path)
    program = Program.of(route)

    result = program.run(record_batch([SampleRecord("a", value=AS_JSON)]))
    assert values(result) == [("b", datum())]
    result = program.run(record_batch([SampleRecord("a", value=b'{"id": 1, "price": 12.505}')]))
    assert values(result) == [("dead", b'{"id": 1, "price": 12.505}')]
    assert reason(result) == (
        "price: expected a decimal of at most 2 digits after the point and 8 in all, found 12.505; change the value by "
        "a transform, or write another schema"
    )


def test_an_equal_format_passes_bytes() -> None:
    """The sink's own format is that of the route: an unchanged value keeps its bytes and spaces."""
    route = route_of({"format": "json"}, {"sink": sink(value={"format": "json"})})
    program = Program.of(route)
    text = b'{ "n" : 1.10 }'

    assert values(program.run(record_batch([SampleRecord("a", value=text)]))) == [("b", text)]


def test_each_sink_has_its_format() -> None:
    """One record goes to three sinks in three formats, and to two of them in one; a projection keeps its body."""
    store = {"subscriptions": {"store": "memory://engine"}}
    sinks = {
        "plain": sink(value={"format": "json"}),
        "avro": sink(),
        "pack": sink(value={"format": "msgpack"}, key={"format": "json"}),
        "same": sink(value={"format": "json"}),
    }
    program = Program.of(route_of({"format": "avro", "schema": ORDER}, {"sinks": sinks, **store}))
    wanted = [
        Subscription(["x", "avro:x", "pack:x", "same:x"], exists("subject"), id="s"),
        Subscription(["avro:y"], exists("subject"), id="p", project="value.id"),
    ]
    batch = record_batch([SampleRecord("a", value=datum(), key=b"k"), SampleRecord("a", value=None, key=b"t")])
    result = program.run(batch, Index.of(wanted))

    found: dict[tuple[str, int, str], Any] = {}
    columns = (result.messages.column(name).to_pylist() for name in ("offset", "key", "value"))
    for number, (_, key, value) in enumerate(zip(*columns, strict=True)):
        topic, index = result.messages.topics[number].as_py(), int(result.messages.sinks[number])
        found[topic, index, (key or b"").decode()] = value
    assert found["x", 0, "k"] == found["x", 3, "k"] == AS_JSON
    assert found["x", 1, "k"] == datum()
    assert found["x", 2, '"aw=="'][:1] == b"\x83"
    assert found["y", 1, "k"] == str(2**53 + 1).encode()
    assert {found["x", sink, "t"] for sink in (0, 1, 3)} == {None}


def test_a_record_that_one_format_refuses_is_sent_nowhere() -> None:
    """It is a dead letter, once, with the reason of that format."""
    sinks = {"plain": sink(), "avro": sink(value={"format": "avro", "schema": ORDER})}
    route = route_of(
        {"format": "json"}, {"sinks": sinks, "subscriptions": {"store": "memory://engine"}, "mappings": {}}
    )
    wanted = [Subscription(["x", "avro:x"], exists("subject"), id="s")]
    batch = record_batch([SampleRecord("a", value=b'{"id": 1}'), SampleRecord("a", value=AS_JSON)])

    result = Program.of(route).run(batch, Index.of(wanted))

    assert values(result) == [("x", AS_JSON), ("x", datum()), ("dead", b'{"id": 1}')]
    assert (result.counts.delivered, result.counts.dead_lettered) == (1, 1)


def test_bodies_of_webhooks_have_their_format() -> None:
    """Deliveries are stored in the webhooks' format, other messages of the sink in its own."""
    url = "https://a.example/in"
    more = {
        "source": {"format": "nats", "servers": "nats://a", "stream": "S"},
        "sink": {"format": "nats", "servers": "nats://a"},
        "webhooks": {"value": {"format": "json"}},
        "subscriptions": {"store": "memory://engine"},
        "mappings": {},
    }
    program = Program.of(route_of({"format": "avro", "schema": ORDER}, more))
    wanted = [Subscription([url, "plain"], exists("subject"), id="s")]
    result = program.run(record_batch([SampleRecord("a", value=datum())]), Index.of(wanted))

    assert dict(values(result)) == {delivery_subject("deliver", url, "s"): AS_JSON, "plain": datum()}


def test_headers_with_schema_ids_stay_with_their_format(registry: StandIn) -> None:
    """A message in JSON has none of them, that of another sink has."""
    schema = json.dumps(ORDER)
    number = registry.add("a-value", schema)
    value = {"format": "avro", "registry": {"url": registry.url, "retries": 0, "wait": 0}}
    sinks = {"plain": sink(value={"format": "json"}), "same": sink(), "guid": sink(value={**value, **IN_HEADERS})}
    program = Program.of(route_of(value, {"sinks": sinks, "subscriptions": {"store": "memory://e"}, "mappings": {}}))
    headers = ((VALUE_HEADER, header_of(Registered(schema).guid)), ("mine", b"1"))
    record = SampleRecord("a", value=datum(), headers=headers)
    wanted = [Subscription(["plain:x", "same:x", "guid:x"], exists("subject"), id="s")]

    result = program.run(record_batch([record]), Index.of(wanted))

    found = {}
    messages = zip(result.messages.sinks.tolist(), values(result), result.messages.column("headers"), strict=True)
    for number_of_sink, (_, body), pairs in messages:
        found[number_of_sink] = (body, {pair["key"] for pair in pairs.as_py()})
    assert found == {
        0: (AS_JSON, {"mine"}),
        1: (b"\0" + number.to_bytes(4, "big") + datum(), {"mine"}),
        2: (datum(), {"mine", VALUE_HEADER}),
    }


@pytest.mark.parametrize("registers", [True, False])
def test_json_with_a_registry(registry: StandIn, registers: bool) -> None:
    """A schema that is given is registered under the subject; without one, the subject's last version is taken."""
    options = {"url": registry.url, "retries": 0, "wait": 0}
    written: dict[str, Any] = {"format": "avro", "registry": options, "topic": "orders"}
    if registers:
        written |= {"schema": ORDER, "registry": options}
    else:
        registry.add("orders-value", json.dumps({**ORDER, "doc": "old"}))
        number = registry.add("orders-value", json.dumps(ORDER))
    program = Program.of(route_of({"format": "json"}, {"sink": sink(value=written)}))

    result = program.run(record_batch([SampleRecord("a", value=AS_JSON), SampleRecord("a", value=b'{"id": "x"}')]))

    (topic, value), (dead, original) = values(result)
    assert (topic, dead, original) == ("b", "dead", b'{"id": "x"}')
    assert value is not None
    assert value[5:] == datum()
    if registers:
        assert any(request.startswith("POST /subjects/orders-value") for request in registry.requests)
    else:
        assert value[:5] == b"\0" + number.to_bytes(4, "big")


def test_a_registry_without_a_schema(registry: StandIn) -> None:
    """The dead letter says what is missing, and where it can be given."""
    written = {"format": "avro", "registry": {"url": registry.url, "retries": 0, "wait": 0}, "topic": "orders"}
    program = Program.of(route_of({"format": "json"}, {"sink": sink(value=written)}))

    result = program.run(record_batch([SampleRecord("a", value=AS_JSON)]))

    assert "the value has no schema, and Avro needs one" in reason(result)
    assert "give it by the setting 'schema', or register it under the subject" in reason(result)


def test_debezium_envelopes_become_rows() -> None:
    """ExtractNewRecordState takes the row out of an envelope in Avro, and the sink has it as JSON."""
    row = {"type": "record", "name": "a.orders.Value", "fields": ORDER["fields"]}
    envelope = {
        "type": "record",
        "name": "a.orders.Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "a.orders.Value"], "default": None},
            {"name": "op", "type": "string"},
        ],
    }
    transforms = [{"name": "row", "type": "io.debezium.transforms.ExtractNewRecordState"}]
    more = {"sink": sink(value={"format": "json"}), "transforms": transforms}
    program = Program.of(route_of({"format": "avro", "schema": envelope}, more))
    body = b"\0" + b"\2" + datum() + b"\2c"

    assert values(program.run(record_batch([SampleRecord("a", value=body)]))) == [("b", AS_JSON)]


def test_explain_and_tests_read_the_written_format() -> None:
    """What they show of a message is in the notation of its sink's format."""
    written = {"format": "avro", "schema": ORDER}
    route = route_of({"format": "json"}, {"sink": sink(value=written)})
    record = SampleRecord("a", value=AS_JSON)
    program = Program.of(route)

    ending = ending_of(program.trace(record_batch([record])), 0, route)
    assert ending.plain_value == {"id": 2**53 + 1, "price": 12.5, "note": None}
    assert ending.value == datum()
    (message,) = explain(program, record_batch([record])).messages
    assert message.value is not None
    assert json.loads(message.value) == {"id": 2**53 + 1, "price": 12.5, "note": None}


def test_another_sink_brings_its_format() -> None:
    """A replay into a block with a format writes that, one into a sink of the route what that sink has."""
    sinks = {"plain": sink(value={"format": "json"}), "avro": sink()}
    route = route_of({"format": "avro", "schema": ORDER}, {"sinks": sinks})
    batch = record_batch([SampleRecord("a", value=datum())])

    blocks = ["plain", "avro", "{format: json, path: x, value: {format: json}}", "{format: json, path: x}"]
    found = [values(Program.of(with_sink(route, block)).run(batch))[0][1] for block in blocks]
    assert found == [AS_JSON, datum(), AS_JSON, datum()]
