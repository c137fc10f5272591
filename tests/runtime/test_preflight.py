"""Subjects that a route reads itself from the servers of its sinks, found by querying them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from turnout.embedded import NatsServer
from turnout.errors import StreamError
from turnout.nats.wire import Connection, create_stream, delete_stream
from turnout.routes import Route
from turnout.runtime.preflight import preflight, preflight_of_reachable

pytestmark = pytest.mark.jetstream


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[str]:
    """A stream of two kinds of subjects, and one that gathers from it, under a name of their own."""
    name = f"R{secrets.token_hex(4)}"
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": name, "subjects": [f"{name}.raw.*", f"{name}.clean.>"], "storage": "memory"})
        create_stream(connection, {"name": f"{name}_ALL", "sources": [{"name": name}], "storage": "memory"})
        yield name
        delete_stream(connection, f"{name}_ALL")
        delete_stream(connection, name)


def reads(source: str, sinks: str, **more: Any) -> dict[str, tuple[str, ...]]:
    options = "".join(f", {name}: {value}" for name, value in more.items())
    return dict(preflight(Route.parse(f"name: r\nsource: {{format: nats, {source}{options}}}\n{sinks}", {})).reads)


def test_on_the_same_server(nats_server: NatsServer, streams: str) -> None:
    """By whatever address; sinks on other servers are not concerned."""
    with NatsServer() as other:
        plan = reads(
            f'servers: "{nats_server.url}", stream: {streams}',
            f'sinks: {{here: {{format: nats, servers: "nats://localhost:{nats_server.port}"}}, '
            f'there: {{format: nats, servers: "{other.url}"}}, files: {{format: json, path: /tmp/x}}}}',
        )

    assert plan == {"here": (f"{streams}.clean.>", f"{streams}.raw.*")}


def test_two_streams_in_one_text(nats_server: NatsServer, streams: str) -> None:
    """Both are read."""
    read = reads(
        f'servers: "{nats_server.url}", stream: "{streams}, {streams}_ALL"',
        f'sink: {{format: nats, servers: "{nats_server.url}"}}',
    )

    assert list(read.values()) == [(f"{streams}.clean.>", f"{streams}.raw.*")]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["{0}.raw.>"], ["{0}.raw.*"]),
        ([">"], ["{0}.clean.>", "{0}.raw.*"]),
        (["{0}.*.a", "x.y"], ["{0}.clean.a", "{0}.raw.a"]),
        (["{0}.*.a, x.y"], ["{0}.clean.a", "{0}.raw.a"]),
    ],
)
def test_with_a_filter(nats_server: NatsServer, streams: str, filters: list[str], expected: list[str]) -> None:
    """Only what the filter lets through: a route may write other subjects into the stream that it reads."""
    plan = reads(
        f'servers: "{nats_server.url}", stream: {streams}',
        f'sink: {{format: nats, servers: "{nats_server.url}"}}',
        filterSubject=[filter_.format(streams) for filter_ in filters],
    )

    assert plan == {"": tuple(one.format(streams) for one in expected)}


def test_a_stream_that_gathers_from_others(nats_server: NatsServer, streams: str) -> None:
    """A message published to one of its origins is stored in it."""
    plan = reads(
        f'servers: "{nats_server.url}", stream: {streams}_ALL',
        f'sink: {{format: nats, servers: "{nats_server.url}"}}',
    )

    assert plan == {"": (f"{streams}.clean.>", f"{streams}.raw.*")}


def test_topics_that_no_stream_stores(nats_server: NatsServer, streams: str) -> None:
    """A sink that names its stream has that one's subjects alone; dead letters to nowhere are noted."""
    sinks = (
        f'sinks: {{any: {{format: nats, servers: "{nats_server.url}"}}, '
        f'one: {{format: nats, servers: "{nats_server.url}", stream: {streams}}}, '
        f'gone: {{format: nats, servers: "nats://127.0.0.1:1"}}, files: {{format: json, path: /tmp/x}}}}\n'
        f'deadLetter: {{topic: "one:{streams}.dead"}}'
    )
    source = f'{{format: nats, servers: "{nats_server.url}", stream: {streams}_ALL}}'

    route, notes = preflight_of_reachable(Route.parse(f"name: r\nsource: {source}\n{sinks}", {}))

    assert dict(route.reads) == dict.fromkeys(("any", "one"), (f"{streams}.clean.>", f"{streams}.raw.*"))
    assert set(route.stored["one"]) == {f"{streams}.clean.>", f"{streams}.raw.*"}
    assert set(route.stored["any"]) >= set(route.stored["one"])
    assert set(route.stored) == {"any", "one"}
    assert len(notes) == 2
    assert notes[0].startswith("the sink gone could not be queried: ")
    assert notes[1].startswith(f"dead letters: 'one:{streams}.dead' is stored by no stream")


def test_a_stream_that_does_not_exist(nats_server: NatsServer, streams: str) -> None:
    """Is said before anything runs, of the source as of a sink."""
    sink = f'sink: {{format: nats, servers: "{nats_server.url}", stream: NOT_{streams}}}'
    with pytest.raises(StreamError, match="not found"):
        reads(f'servers: "{nats_server.url}", stream: {streams}', sink)
    with pytest.raises(StreamError, match="not found"):
        reads(f'servers: "{nats_server.url}", stream: NOT_{streams}', sink)
