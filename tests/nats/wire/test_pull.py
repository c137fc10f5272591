"""Reading ranges of a stream through a pull consumer, on a real server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.frames import frame
from turnout.nats.wire import Connection, PullReader, Range, create_stream, pull, purge_stream, stream_info
from turnout.nats.wire.pull import OpenReader
from turnout.records.batch import as_batch


def fill(connection: Connection, stream: str, payloads: list[bytes], headers: dict[str, str] | None = None) -> None:
    for index, payload in enumerate(payloads):
        connection.request(f"{stream}.{index % 3}", payload, headers)


def stored(connection: Connection, stream: str, count: int) -> None:
    """Wait until a stream keeps *count* messages: one published without an acknowledgement is stored a moment later."""
    end = time.monotonic() + 30
    while connection.api(f"STREAM.INFO.{stream}")["state"]["last_seq"] < count:
        assert time.monotonic() < end, f"{stream} does not keep {count} messages after 30 s"
        time.sleep(0.01)


def read(connection: Connection, part: Range) -> list[dict[str, Any]]:
    batches = list(PullReader(connection, part).batches())
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_payloads_come_as_they_were_sent(connection: Connection, stream: str) -> None:
    """Empty ones, ones that look like protocol, ones with headers that repeat; with subject, sequence and time."""
    payloads = [b"", b"MSG a 1 $JS.ACK.S.C.1.2.3.4.5 3\r\nabc\r\n", b"\r\nPING\r\n", bytes(range(256))]
    fill(connection, stream, payloads)
    connection.publish(f"{stream}.h", b"x", headers=[("A", "1"), ("A", b"\xff"), ("Nats-Msg-Id", "id-7")])
    stored(connection, stream, 5)

    rows = read(connection, Range(stream, 1, 100))

    assert [row["value"] for row in rows] == [*payloads, b"x"]
    assert [row["offset"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[1]["topic"] == f"{stream}.1"
    assert (rows[0]["key"], rows[0]["headers"]) == (None, None)
    assert rows[4]["key"] == b"id-7"
    assert [(h["key"], h["value"]) for h in rows[4]["headers"]] == [
        ("A", b"1"),
        ("A", b"\xff"),
        ("Nats-Msg-Id", b"id-7"),
    ]
    assert abs((rows[4]["timestamp"] - rows[0]["timestamp"]).total_seconds()) < 60


def test_a_range_ends_where_it_says(connection: Connection, stream: str) -> None:
    """Deleted messages inside are stepped over; nothing beyond the end comes, wherever the holes are."""
    fill(connection, stream, [b"%d" % n for n in range(40)])
    for sequence in (1, 10, 11, 12, 20, 30, 40):
        connection.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})

    for start, end in ((1, 41), (10, 13), (5, 21), (20, 21), (30, 31), (39, 500), (41, 50)):
        expected = [n for n in range(start, min(end, 41)) if n not in {1, 10, 11, 12, 20, 30, 40}]
        assert [row["offset"] for row in read(connection, Range(stream, start, end))] == expected


@pytest.mark.parametrize("filters", [("{}.1",), ("{}.0", "{}.2")])
def test_filters(connection: Connection, stream: str, filters: tuple[str, ...]) -> None:
    """Only the subjects asked for, up to the end of the range."""
    fill(connection, stream, [b"%d" % n for n in range(30)])
    chosen = tuple(text.format(stream) for text in filters)

    rows = read(connection, Range(stream, 4, 26, chosen))

    assert [row["offset"] for row in rows] == [n for n in range(4, 26) if f"{stream}.{(n - 1) % 3}" in chosen]


def test_a_purged_stream_gives_what_is_left(connection: Connection, stream: str) -> None:
    """An empty stream returns nothing, without waiting."""
    fill(connection, stream, [b"x"] * 20)
    purge_stream(connection, stream, keep=5)

    assert [row["offset"] for row in read(connection, Range(stream, 1, 21))] == [16, 17, 18, 19, 20]

    purge_stream(connection, stream)
    assert read(connection, Range(stream, 1, 21)) == []


def test_messages_larger_than_a_request_allows() -> None:
    """The request grows until the message fits, instead of asking for ever."""
    with (
        NatsServer(config="max_payload: 16777216\nmax_pending: 134217728") as server,
        Connection.open(server.url) as connection,
    ):
        create_stream(connection, {"name": "BIG", "subjects": ["big"], "storage": "memory"})
        sizes = [10, 12_000_000, 3, 9_000_000, 9_000_000, 7]
        for size in sizes:
            connection.request("big", b"x" * size, timeout=30)

        rows = read(connection, Range("BIG", 1, 7))

        assert [len(row["value"]) for row in rows] == sizes


def test_requests_that_are_used_up_to_the_last_byte(connection: Connection, stream: str, monkeypatch) -> None:
    """The server ends these without a word: the next one must follow at once, not when its silence is noticed."""

    def silent(reader: PullReader) -> ConnectionLostError:
        raise AssertionError(f"the server says nothing, and {reader._at.requests} are waited for")

    fill(connection, stream, [b"x" * 10] * 40)
    stored(connection, stream, 40)
    # Among as many limits as a message has bytes there are some that messages of one size meet exactly.
    monkeypatch.setattr(PullReader, "_silent", silent)
    for limit in range(1000, 1100):
        monkeypatch.setattr(pull, "_REQUEST_BYTES", limit)

        assert len(read(connection, Range(stream, 1, 41))) == 40


def test_large_and_small_frames_in_one_stream(connection: Connection, stream: str) -> None:
    """The search changes its way with the size, the result does not."""
    payloads = [bytes([n % 251]) * (9000 if n % 2 else 7) for n in range(400)]
    connection.send(b"".join(frame(f"{stream}.x", payload) for payload in payloads))
    stored(connection, stream, len(payloads))

    assert [row["value"] for row in read(connection, Range(stream, 1, 401))] == payloads


def test_a_connection_cut_in_the_middle_of_frames(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """Reading goes on behind the last message handed out: nothing twice, nothing missing."""
    payloads = [b"%06d" % n * 20 for n in range(5000)]
    connection.send(b"".join(frame(f"{stream}.x", payload) for payload in payloads))
    stored(connection, stream, len(payloads))

    with CuttingProxy(nats_server.port, 100_001, 7_777, 250_013, 1_500) as proxy, Connection.open(proxy.url) as cut:
        rows = read(cut, Range(stream, 1, 5001))

        assert proxy.cuts == 4
    assert [row["value"] for row in rows] == payloads


def test_a_consumer_that_is_deleted_is_made_again(connection: Connection, stream: str) -> None:
    """Somebody else's delete costs a round trip, not the read."""
    fill(connection, stream, [b"x" * 50] * 10)
    reader = PullReader(connection, Range(stream, 1, 10**6))
    rows = next(reader.batches()).num_rows

    assert rows == 10


def test_a_stream_that_is_not_there(connection: Connection) -> None:
    """The server's own codes come through."""
    with pytest.raises(StreamError) as failure:
        read(connection, Range("NONE", 1, 5))

    assert (failure.value.code, failure.value.err_code) == (404, 10059)


def test_no_server_comes_back(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """After the time that was granted the read fails, and says what it tried."""
    fill(connection, stream, [b"x" * 100] * 200)
    with (
        CuttingProxy(nats_server.port, 9000) as proxy,
        Connection.open(proxy.url, reconnect_timeout=0.5) as cut,
    ):
        proxy.refuse()

        with pytest.raises(ConnectionLostError, match="no NATS server can be reached"):
            read(cut, Range(stream, 1, 201))


def test_the_consumer_is_gone_afterwards(connection: Connection, stream: str) -> None:
    """A read leaves nothing behind on the server."""
    fill(connection, stream, [b"x"] * 3)

    read(connection, Range(stream, 1, 4))

    assert connection.api(f"CONSUMER.NAMES.{stream}")["consumers"] in (None, [])


def test_positions_with_more_tokens(nats_server: NatsServer) -> None:
    """Servers that say their domain and account in the ack subject (ADR-15, JSAck v2)."""
    config = "jetstream { domain: DOM }\nfeature_flags { js_ack_fc_v2: true }"
    with NatsServer(config=config, jetstream=False) as server, Connection.open(server.url, domain="DOM") as connection:
        create_stream(connection, {"name": "V2", "subjects": ["v.>"], "storage": "memory"})
        connection.send(b"".join(frame(f"v.{n}", b"%d" % n) for n in range(100)))
        stored(connection, "V2", 100)

        rows = read(connection, Range("V2", 1, 101))

        assert [(row["topic"], row["offset"]) for row in rows] == [(f"v.{n}", n + 1) for n in range(100)]


@pytest.fixture
def calls() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection: one to call with, one for the reader."""
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def publish(connection: Connection, stream: str, *numbers: int) -> None:
    for number in numbers:
        connection.request(f"{stream}.{number % 2}", b"%d" % number)


def values(batch: Any) -> list[int]:
    return [int(row["value"]) for row in as_batch(batch).to_pylist()]


def test_messages_come_one_by_one_as_they_arrive(
    connection: Connection, nats_server: NatsServer, stream: str, calls: tuple[socket.socket, socket.socket]
) -> None:
    """From the start on, also from an empty stream; a wait ends with an empty batch, and nothing is left behind."""
    with Connection.open(nats_server.url) as own:
        reader = OpenReader(own, stream, 3, (), calls=calls[1], tick=0.05)
        batches = reader.batches()
        assert next(batches).num_rows == 0
        assert reader.pending == 0
        publish(connection, stream, 1, 2)
        assert next(batches).num_rows == 0
        for number in (3, 4):
            publish(connection, stream, number)
            assert values(next(batch for batch in batches if batch.num_rows)) == [number]
            assert reader.next == number + 1
        assert stream_info(connection, stream)["state"]["consumer_count"] == 1
        reader.close()
    assert stream_info(connection, stream)["state"]["consumer_count"] == 0


def test_a_call_interrupts_the_wait(
    nats_server: NatsServer, stream: str, calls: tuple[socket.socket, socket.socket]
) -> None:
    """The driver has something to say, or is gone, while no message comes."""
    with Connection.open(nats_server.url) as own:
        reader = OpenReader(own, stream, 1, (), calls=calls[1], tick=60.0)
        batches = reader.batches()
        threading.Timer(0.1, calls[0].sendall, (b"x",)).start()
        assert next(batches).num_rows == 0
        calls[1].recv(1)
        threading.Timer(0.1, calls[0].close).start()
        assert next(batches).num_rows == 0
        reader.close()


def test_a_filter_and_a_backlog(
    connection: Connection, nats_server: NatsServer, stream: str, calls: tuple[socket.socket, socket.socket]
) -> None:
    """Stored messages are read in large batches; messages outside of the filter are not read."""
    publish(connection, stream, *range(1, 301))
    with Connection.open(nats_server.url) as own:
        reader = OpenReader(own, stream, 1, (f"{stream}.1",), calls=calls[1], tick=0.05)
        read: list[int] = []
        for batch in reader.batches():
            read += values(batch)
            if len(read) == 150:
                break
        reader.close()
    assert read == list(range(1, 301, 2))


def test_requests_that_expire_and_connections_that_break(
    connection: Connection,
    nats_server: NatsServer,
    stream: str,
    calls: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An idle stream is waited at for as long as it takes; after a cut nothing is missing and nothing comes twice."""
    monkeypatch.setattr("turnout.nats.wire.pull._EXPIRES_SECONDS", 0.2)
    with CuttingProxy(nats_server.port) as proxy, Connection.open(proxy.url) as own:
        reader = OpenReader(own, stream, 1, (), calls=calls[1], tick=0.05)
        batches = reader.batches()
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert next(batches).num_rows == 0
        read: list[int] = []
        for number in range(1, 7):
            publish(connection, stream, number)
            if number % 2:
                proxy.cut()
            read += values(next(batch for batch in batches if batch.num_rows))
        reader.close()
    assert read == list(range(1, 7))
