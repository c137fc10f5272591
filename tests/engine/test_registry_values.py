"""Routes whose values have schemas of a registry: topics, ids in headers, requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.codecs.schema_registry.stand_in import StandIn, running_registry
from turnout.codecs.schema_registry import RegistryCodec, registry_of
from turnout.codecs.schema_registry.codec import VALUE_HEADER, header_of
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.routes import Route


def order(version: int) -> str:
    fields = [{"name": "n", "type": "long"}, *({"name": f"f{at}", "type": "long"} for at in range(version))]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with running_registry() as running:
        yield running


def program(registry: StandIn, value: str = "", sink: str = "kafka", transforms: str = "[]") -> Program:
    sinks = {
        "kafka": '{format: kafka, servers: "127.0.0.1:1"}',
        "nats": '{format: nats, servers: "nats://127.0.0.1:1"}',
    }
    text = f"""
name: orders
source: {{format: kafka, servers: "127.0.0.1:1", topics: [orders]}}
value: {{format: avro, registry: {{url: "{registry.url}", retries: 0, wait: 0}} {value}}}
transforms: {transforms}
mappings: {{orders: out}}
sink: {sinks[sink]}
errors: {{tolerance: all}}
deadLetter: {{topic: dead}}
"""
    made = Program.of(Route.parse(text))
    assert isinstance(made.value, RegistryCodec)
    registry.clients.append(registry_of(made.value._options))
    return made


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def headers_of(result: Any) -> list[list[tuple[str, bytes]]]:
    return [[(one["key"], one["value"]) for one in row] for row in result.messages.column("headers").to_pylist()]


def test_three_schemas_take_three_requests(registry: StandIn) -> None:
    """However many batches and values there are."""
    ids = [registry.add("orders-value", order(version)) for version in range(3)]
    route = program(registry)
    for batch in range(20):
        values = [framed(ids[at % 3], b"\2" * (1 + at % 3)) for at in range(batch + 3)]
        result = route.run(record_batch([SampleRecord("orders", value=value) for value in values]))
        assert result.messages.column("value").to_pylist() == values

        assert result.counts.delivered == len(values)

    assert sorted(registry.requests) == [f"GET /schemas/ids/{number}" for number in ids]


def test_changed_schemas_get_subjects_of_their_topics(registry: StandIn) -> None:
    """The topics that records have behind transforms; with three topics that is one request each."""
    number = registry.add("orders-value", order(0))
    insert = "[{name: i, type: InsertField$Value, static.field: by, static.value: me}]"
    route = program(registry, transforms=insert)
    topics = ["a", "b", "c", "a"]

    for _ in range(3):
        result = route.run(record_batch([SampleRecord(topic, value=framed(number, b"\2")) for topic in topics]))
        assert result.counts.delivered == 4

    assert sorted(registry.requests[1:]) == [
        f"POST /subjects/{topic}-value/versions?normalize=False" for topic in "abc"
    ]


def test_ids_are_read_from_headers_and_written_there(registry: StandIn) -> None:
    """By default ids are written before values, and the header goes, so that no reader takes it for the value's."""
    number = registry.add("orders-value", order(0))
    guid = next(iter(registry._ids)).guid
    header = (VALUE_HEADER, header_of(guid))
    records = [
        SampleRecord("orders", value=b"\2", headers=(("trace", b"x"), header)),
        SampleRecord("orders", value=framed(number, b"\4"), headers=(("trace", b"y"),)),
        SampleRecord("orders", value=b"\6", headers=((VALUE_HEADER, b"?"),)),
    ]

    before_values = program(registry).run(record_batch(records))
    in_headers = program(registry, ", schemaIdSerializer: header").run(record_batch(records))

    assert before_values.messages.column("value").to_pylist()[:2] == [framed(number, b"\2"), framed(number, b"\4")]
    assert headers_of(before_values)[:2] == [[("trace", b"x")], [("trace", b"y")]]
    assert in_headers.messages.column("value").to_pylist() == [b"\2", b"\4", b"\6"]
    assert headers_of(in_headers)[:2] == [[("trace", b"x"), header], [("trace", b"y"), header]]
    assert [result.counts.dead_lettered for result in (before_values, in_headers)] == [1, 1]


def test_nats_cannot_carry_every_id(registry: StandIn) -> None:
    """A GUID with a line break in a header is no header of NATS: its record fails, and nothing is sent that breaks."""
    version = next(at for at in range(200) if b"\n" in header_of(_guid(registry, at)))
    number = registry.add("orders-value", order(version))
    value = framed(number, b"\2" * (version + 1))

    result = program(registry, ", schemaIdSerializer: header", "nats").run(
        record_batch([SampleRecord("orders", value=value)])
    )

    assert (result.counts.delivered, result.counts.dead_lettered) == (0, 1)


def _guid(registry: StandIn, version: int) -> str:
    registry.add(f"s{version}", order(version))
    return next(reversed(registry._ids)).guid
