"""Messages of a stream without a consumer: one by its sequence, a few from all over it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest
from tests.nats.wire.samples import fill

from turnout.embedded import NatsServer
from turnout.errors import StreamError
from turnout.nats.wire import (
    Acknowledger,
    Connection,
    DirectReader,
    Publisher,
    PullReader,
    Range,
    create_stream,
    delete_stream,
    sample,
    stored_message,
    stream_info,
)


@pytest.fixture(scope="module")
def connection(nats_server: NatsServer) -> Iterator[Connection]:
    with Connection.open(nats_server.url) as opened:
        yield opened


@pytest.fixture(scope="module")
def stream(connection: Connection) -> Iterator[str]:
    """1,000 messages, every tenth on a subject of its own; 101 to 200 are deleted."""
    name = f"SMP{secrets.token_hex(4)}"
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "allow_direct": True}
    create_stream(connection, config)
    with Publisher(connection) as publisher:
        for n in range(1, 1001):
            publisher.publish(f"{name}.{'tenth' if n % 10 == 0 else 'other'}", b"%d" % n, [("N", str(n))])
    for n in range(101, 201):
        connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": n})
    yield name
    delete_stream(connection, name)


def test_sequences_are_spread_evenly(connection: Connection, stream: str) -> None:
    """First and last included; a sequence in a gap gives what comes behind it, once."""
    sampled = sample(connection, stream, 334)["offset"].to_pylist()

    assert sampled == sorted(set(sampled))
    assert (sampled[0], sampled[-1]) == (1, 1000)
    assert [n for n in sampled if n <= 100] == [*range(1, 101, 3)]
    assert [n for n in sampled if 100 < n <= 201] == [201]
    assert len(sampled) == 334 - 33 + 1


def test_all_there_is_if_it_is_few(connection: Connection, stream: str) -> None:
    """This is independent of deleted messages."""
    assert sample(connection, stream, 5000).num_rows == 900


def test_on_one_subject(connection: Connection, stream: str) -> None:
    """The next on that subject stands for one that is not."""
    sampled = sample(connection, stream, 1000, f"{stream}.tenth")

    assert sampled["offset"].to_pylist() == [*range(10, 101, 10), *range(210, 1001, 10)]
    assert set(sampled["topic"].to_pylist()) == {f"{stream}.tenth"}


def test_the_columns_are_those_of_every_reader(connection: Connection, stream: str) -> None:
    """Value, headers and time are as a reader of the whole stream gives them."""
    (read,) = DirectReader(connection, Range(stream, 1, 1001)).batches()
    ids = sample(connection, stream, 5000)

    assert ids.equals(read)


def test_nothing_to_take(connection: Connection) -> None:
    """An empty stream gives no rows; none at all is an error."""
    name = f"SMP{secrets.token_hex(4)}"
    create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
    assert sample(connection, name, 10).num_rows == 0
    delete_stream(connection, name)

    with pytest.raises(StreamError, match="stream not found"):
        sample(connection, name, 10)


def test_a_message_is_as_a_reader_of_the_stream_sees_it(nats_server: NatsServer) -> None:
    """The same subject, sequence, headers, payload and time, to the microsecond."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "STORED", "subjects": ["stored.>"], "storage": "memory"})
        connection.request("stored.a", b"plain")
        connection.request("stored.b", b"\x00\xff", {"Kind": "odd", "Nats-Msg-Id": "k"})

        (read,) = PullReader(connection, Range("STORED", 1, 3, ()), 0).batches()
        single = [stored_message(connection, "STORED", sequence).to_pylist()[0] for sequence in (1, 2)]

        assert single == read.to_pylist()


def test_a_message_that_is_not_there(nats_server: NatsServer) -> None:
    """The stream and the sequence are named."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "EMPTY", "subjects": ["empty"], "storage": "memory"})

        with pytest.raises(StreamError, match="the stream 'EMPTY' holds no message 5") as refused:
            stored_message(connection, "EMPTY", 5)

    assert refused.value.code == 404


def test_what_is_acknowledged_goes_and_nothing_else(
    nats_server: NatsServer, connection: Connection, queue: str
) -> None:
    """Up to the sequence, in batches of any size; again is nothing; the rest is there for the next call."""
    fill(nats_server, queue, 3000)

    first = Acknowledger(connection, queue, "spark")
    assert [first.acknowledge(end) for end in (11, 12, 700, 1201)] == [10, 1, 688, 501]
    assert left(connection, queue, 1800) == 1800
    with Connection.open(nats_server.url) as another:
        acknowledger = Acknowledger(another, queue, "spark")
        assert acknowledger.floor == 1201
        assert acknowledger.acknowledge(1201) == 0
        assert acknowledger.acknowledge(99_999) == 1800
    assert left(connection, queue, 0) == 0


def left(connection: Connection, queue: str, expected: int) -> int:
    """Return the messages left in the stream: the server confirms an acknowledgement before it has removed them all."""
    deadline = time.monotonic() + 10
    while (left := stream_info(connection, queue)["state"]["messages"]) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(left)
