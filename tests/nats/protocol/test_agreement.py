"""Both clients on one server: what one writes, the other reads as it is, and what is refused has one name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from turnout.embedded import NatsServer
from turnout.errors import StreamError
from turnout.loops.frames import CONSUMER_SEQUENCE, SEQUENCE
from turnout.nats import jetstream, wire
from turnout.nats.protocol.errors import (
    NoRespondersError,
    NotJetStreamMessageError,
    RequestTimeoutError,
    StreamNotFoundError,
)
from turnout.nats.protocol.positions import JSAck, sequences
from turnout.nats.wire.records import decode, locate

pytestmark = pytest.mark.jetstream

HEADERS = [
    (b"Plain: a", {"Plain": ["a"]}),
    (b"Behind: a \t", {"Behind": ["a \t"]}),
    (b"Before: \t a", {"Before": ["a"]}),
    (b"Tight:a", {"Tight": ["a"]}),
    (b"Twice: 1\r\nTwice: 2", {"Twice": ["1", "2"]}),
    (b"Name with blank : x", {"Name with blank ": ["x"]}),
    (b": nameless\r\nA: b", {"A": ["b"]}),
    (b"no colon\r\nA: b", {"A": ["b"]}),
    (b"Colons: a:b: c", {"Colons": ["a:b: c"]}),
    (b"Empty:", {"Empty": [""]}),
    (b"Feed: a\nB: c", {"Feed": ["a"], "B": ["c"]}),
]


def read_by_wire(url: str, stream: str) -> list[dict[str, list[str]]]:
    """The headers of a stream's messages as Arrow columns."""
    with wire.Connection.open(url) as connection:
        batches = list(wire.PullReader(connection, wire.Range(stream, 1, 1 << 40)).batches())
        return [
            _table((pair["key"], pair["value"]) for pair in row or [])
            for batch in batches
            for row in batch.column("headers").to_pylist()
        ]


def read_directly(url: str, stream: str) -> list[dict[str, list[str]]]:
    """The same one by one, without a consumer."""
    with wire.Connection.open(url) as connection:
        batches = list(wire.DirectReader(connection, wire.Range(stream, 1, 1 << 40)).batches())
        return [
            _table((pair["key"], pair["value"]) for pair in row or [])
            for batch in batches
            for row in batch.column("headers").to_pylist()
        ]


def read_by_jetstream(url: str, stream: str) -> list[dict[str, list[str]]]:
    """The same by the asynchronous client."""

    async def read() -> list[dict[str, list[str]]]:
        async with jetstream.connect(url) as js, await js.ordered(">", stream=stream) as messages:
            return [(await messages.next(30)).headers for _ in HEADERS]

    return asyncio.run(read())


def _table(pairs: Any) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for name, value in pairs:
        table.setdefault(name, []).append(value.decode())
    return table


@pytest.fixture(scope="module")
def odd_headers(nats_server: NatsServer) -> str:
    """A stream whose messages have header blocks that were written by hand."""
    with wire.Connection.open(nats_server.url) as connection:
        wire.create_stream(
            connection, {"name": "AGREE", "subjects": ["agree"], "storage": "memory", "allow_direct": True}
        )
        for lines, _ in HEADERS:
            block = b"NATS/1.0\r\n" + lines + b"\r\n\r\n"
            connection.send(b"HPUB agree %d %d\r\n%bx\r\n" % (len(block), len(block) + 1, block))
        assert connection.ping()
    return "AGREE"


@pytest.mark.parametrize("read", [read_by_wire, read_directly, read_by_jetstream])
def test_header_values_are_read_by_one_rule(
    nats_server: NatsServer, odd_headers: str, read: Callable[[str, str], list[dict[str, list[str]]]]
) -> None:
    """Blanks before a value go, those behind it stay, names are as they came, and what is no header is left out."""
    assert read(nats_server.url, odd_headers) == [expected for _, expected in HEADERS]


def by_wire(url: str, prefix: str) -> None:
    with wire.Connection.open(url, timeout=0.3, api_prefix=prefix) as connection:
        wire.stream_info(connection, "NOT_THERE")


def by_jetstream(url: str, prefix: str) -> None:
    async def ask() -> None:
        async with jetstream.connect(url, timeout=0.3, prefix=prefix) as js:
            await js.stream("NOT_THERE")

    asyncio.run(ask())


@pytest.mark.parametrize("ask", [by_wire, by_jetstream])
@pytest.mark.parametrize(
    ("prefix", "kind", "codes"),
    [
        ("$JS.API", StreamNotFoundError, (404, 10059)),
        ("nobody", NoRespondersError, (503, 0)),
        ("silent", RequestTimeoutError, (408, 0)),
    ],
)
def test_a_refusal_has_one_class(
    nats_server: NatsServer,
    ask: Callable[[str, str], None],
    prefix: str,
    kind: type[StreamError],
    codes: tuple[int, int],
) -> None:
    """Both clients raise the same error, with the server's codes, and it can be named without nats-py."""
    with wire.Connection.open(nats_server.url) as silent:
        silent.subscribe("silent.>")
        assert silent.ping()
        with pytest.raises(kind) as refusal:
            ask(nats_server.url, prefix)

    assert (refusal.value.code, refusal.value.err_code) == codes


REPLIES = [
    (b"$JS.ACK.S.C.1.2.3.4.5", (2, 3)),
    (b"$JS.ACK._.hash.S.C.1.2.3.4.5", (2, 3)),
    (b"$JS.ACK.hub.hash.S.C.1.2.3.4.5.token.of.later.servers", (2, 3)),
    (b"$JS.ACK.S.C.1.1_0.3.4.5", None),
    (b"$JS.ACK.S.C.1.-2.3.4.5", None),
    (b"$JS.ACK.S.C.1.+2.3.4.5", None),
    ("$JS.ACK.S.C.1.٢.3.4.5".encode(), None),
    (b"$JS.ACK.S.C.1.2.3.4.5.6", None),
    (b"$JS.ACK.S.C.1.2.3.4", None),
    (b"$JS.NAK.S.C.1.2.3.4.5", None),
    (b"$JS.ACK.S.C.1." + b"9" * 5000 + b".3.4.5", None),
    (b"", None),
]


@pytest.mark.parametrize(("reply", "expected"), REPLIES)
def test_positions_are_read_by_one_rule(reply: bytes, expected: tuple[int, int] | None) -> None:
    """A reply subject has the same sequences for columns, for a subscription and for a program, or for none."""
    outcomes = [_outcome(read, reply) for read in (_by_columns, sequences, _by_metadata)]

    assert outcomes == [expected] * 3


def _outcome(read: Callable[[bytes], tuple[int, int]], reply: bytes) -> tuple[int, int] | None:
    try:
        return read(reply)
    except NotJetStreamMessageError:
        return None


def _by_columns(reply: bytes) -> tuple[int, int]:
    memory = bytearray(b"MSG s 1 " + reply + b" 1\r\nx\r\n")
    batch = decode(memory, locate(memory, len(memory)))
    return int(batch.positions[SEQUENCE, 0]), int(batch.positions[CONSUMER_SEQUENCE, 0])


def _by_metadata(reply: bytes) -> tuple[int, int]:
    ack = JSAck.parse(reply.decode())
    return ack.stream_seq, ack.consumer_seq
