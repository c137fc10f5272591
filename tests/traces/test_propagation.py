"""Every message leaves a route with the trace context that its record came with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pyarrow as pa
import pytest

from tests.streams import own_stream
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, PullReader, Range, stream_info
from turnout.nats.wire.records import SCHEMA, with_stream
from turnout.records.batch import ListedRecords
from turnout.routes import Route
from turnout.spark.stage import SparkStage
from turnout.traces.spans import HEADERS, headers_of, new_trace

pytestmark = pytest.mark.jetstream

ROUTE = """
name: kept
source: {{format: nats, servers: "{url}", stream: IN}}
value: {{format: json}}
transforms:
  - {{name: origin, type: HeaderFrom$Value, fields: n, headers: n, operation: copy}}
  - {{name: more, type: InsertHeader, header: place, value.literal: x}}
  - {{name: fewer, type: DropHeaders, headers: "place,other"}}
  - {{name: positive, type: Filter, predicate: {{type: HasHeaderKey, name: drop}}}}
mappings: {{"in.a": "{out}.good"}}
sink: {{format: nats, servers: "{url}"}}
deadLetter: {{topic: "{out}.dead"}}
errors: {{tolerance: all, badHeaders: drop}}
{more}
"""


@pytest.fixture
def out(connection: Connection) -> Iterator[str]:
    with own_stream(connection) as name:
        yield name


def contexts(count: int) -> list[list[tuple[str, bytes]]]:
    """Headers of so many records: W3C's, sampled and not, in the spelling of Go's libraries too, with a state, wrong
    ones, and B3's of both kinds."""
    forms = cycle(("traceparent", "Traceparent", "unsampled", "wrong", "b3", "b3multi"))
    headers: list[list[tuple[str, bytes]]] = []
    for number, form in zip(range(count), forms, strict=False):
        context = new_trace()
        own = {"traceparent": context.traceparent, "tracestate": f"a={number}"}
        if form == "unsampled":
            own["traceparent"] = context._replace(flags=0).traceparent
        elif form == "Traceparent":
            own = {"Traceparent": context.traceparent}
        elif form == "wrong":
            own["traceparent"] = f"00-{number}"
        elif form != "traceparent":
            own = headers_of(context, (form,))
        headers.append([("other", b"x"), *((name, text.encode()) for name, text in own.items()), ("n\xff", b"unfit")])
    return headers


def rows_of(headers: list[list[tuple[str, bytes]]]) -> list[dict[str, Any]]:
    """Records of which every fifth cannot be read."""
    return [
        {
            "topic": "in.a", "partition": 0, "offset": 1 + number, "timestamp": number,
            "value": b'{"n": %d}' % number if number % 5 else b"no JSON",
            "headers": [{"key": name, "value": value} for name, value in own],
        }
        for number, own in enumerate(headers)
    ]  # fmt: skip


def stored(url: str, stream: str) -> list[dict[str, Any]]:
    with Connection.open(url) as connection:
        last = stream_info(connection, stream)["state"]["last_seq"]
        batches = PullReader(connection, Range(stream, 1, last + 1)).batches() if last else []
        return [row for batch in batches for row in batch.to_pylist()]


def of_contexts(headers: Any) -> frozenset[tuple[str, bytes]]:
    pairs = [(pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in headers]
    return frozenset((name, value) for name, value in pairs if name.lower() in HEADERS)


def test_messages_and_dead_letters_keep_them(nats_server: NatsServer, out: str) -> None:
    """Whatever the route does to other headers; whether they are valid is not the route's concern."""
    headers = contexts(600)
    batch = with_stream(pa.RecordBatch.from_pylist(rows_of(headers), schema=SCHEMA), "IN")
    stage = SparkStage.of(Route.parse(ROUTE.format(url=nats_server.url, out=out, more=""), {}), splits=False)

    list(stage.publish([batch]))

    rows = stored(nats_server.url, out)
    assert [row["topic"] for row in rows].count(f"{out}.dead") == 120
    assert sorted(map(sorted, (of_contexts(row["headers"]) for row in rows))) == sorted(
        map(sorted, map(of_contexts, headers))
    )


def test_a_route_may_remove_them(nats_server: NatsServer, out: str) -> None:
    """By their names, and for its messages alone: a dead letter has the headers of its record."""
    headers = contexts(20)
    batch = with_stream(pa.RecordBatch.from_pylist(rows_of(headers), schema=SCHEMA), "IN")
    text = ROUTE.format(url=nats_server.url, out=out, more="").replace(
        '"place,other"', '"traceparent,Traceparent,tracestate,b3,X-B3-TraceId,X-B3-SpanId,X-B3-Sampled"'
    )

    list(SparkStage.of(Route.parse(text, {}), splits=False).publish([batch]))

    rows = stored(nats_server.url, out)
    assert {of_contexts(row["headers"]) for row in rows if row["topic"] == f"{out}.good"} == {frozenset()}
    assert all(of_contexts(row["headers"]) for row in rows if row["topic"] == f"{out}.dead")


def test_a_few_records_keep_them(nats_server: NatsServer, out: str) -> None:
    """The engine has lists of them at low latency, and writes lists."""
    headers = contexts(6)
    rows = rows_of(headers)
    batch = with_stream(pa.RecordBatch.from_pylist(rows, schema=SCHEMA), "IN")
    listed = ListedRecords(
        list("abcdef"), ["in.a"] * 6, [0] * 6, [1, 2, 3, 4, 5, 6], [0] * 6, [None] * 6, [b'{"n": 1}'] * 6, headers,
        lambda: batch,
    )  # fmt: skip
    stage = SparkStage.of(Route.parse(ROUTE.format(url=nats_server.url, out=out, more=""), {}), splits=False)

    (result,) = stage.outcomes(listed, None)

    sent = [of_contexts(pairs) for pairs in result.messages.column("headers").to_pylist()]
    assert sent == list(map(of_contexts, headers))
