"""Publishing with every acknowledgement awaited, on a real server."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from tests.nats.wire.proxy import CuttingProxy
from tests.nats.wire.samples import stored

from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.wire import Connection, Publisher, PullReader, Range, create_stream, delete_stream, subject_counts
from turnout.nats.wire._window import Answers, CountedChunk
from turnout.nats.wire.packing import PublishedColumns, id_line, id_lines
from turnout.records.published import Published


def test_every_message_is_stored_and_counted(connection: Connection, publisher: Publisher, stream: str) -> None:
    """More than the window holds, with and without ids; known ids are counted as such."""
    for n in range(1000):
        publisher.publish(f"{stream}.{n % 4}", b"x", message_id=f"{n}" if n % 2 else None)
    assert publisher.flush() == Published(1000, 0)

    for n in range(1000):
        publisher.publish(f"{stream}.{n % 4}", b"x", message_id=f"{n}" if n % 2 else None)
    assert publisher.flush() == Published(500, 500)

    assert subject_counts(connection, stream) == {f"{stream}.{n}": 500 if n % 2 == 0 else 250 for n in range(4)}


def test_acknowledgements_that_have_arrived(publisher: Publisher, stream: str) -> None:
    """They are taken without a wait for those that have not, and are counted by the next flush."""
    publisher.collect()
    subjects, payloads = pa.array([f"{stream}.a"] * 10), pa.array([b"x"] * 10, pa.binary())
    publisher.publish_columns(subjects, payloads, id_lines(pa.array([str(n) for n in range(10)])))
    end = time.monotonic() + 30
    while publisher.unacknowledged and time.monotonic() < end:
        publisher.collect()

    assert publisher.unacknowledged == 0
    assert publisher.flush() == Published(10, 0)


def test_columns(connection: Connection, publisher: Publisher, stream: str) -> None:
    """Arrow columns, cut into chunks of the window; a slice counts from its own beginning."""
    count = 3456
    subjects = pa.array([f"{stream}.{n}" for n in range(count)])
    payloads = pa.array([b"%d" % n for n in range(count)], type=pa.binary())
    publisher.publish_columns(subjects.slice(10), payloads.slice(10), id_lines(subjects.slice(10)))

    assert publisher.flush() == Published(count - 10, 0)
    last = connection.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": f"{stream}.{count - 1}"})["message"]
    assert last["seq"] == count - 10
    assert last["data"] == "MzQ1NQ=="


@pytest.mark.parametrize("ids", [True, False])
def test_messages_as_lists(connection: Connection, nats_server: NatsServer, stream: str, ids: bool) -> None:
    """They are stored, refused one by one and sent again after a lost connection, as columns are; also very many."""
    refused: list[int] = []
    with CuttingProxy(nats_server.port) as proxy, Connection.open(proxy.url) as opened:
        publisher = Publisher(opened, expected_stream=stream)
        subjects = [f"{stream}.a", "nobody.listens.here", "no subject", f"{stream}.b"]
        lines = [id_line(str(number)) for number in range(4)] if ids else None
        publisher.publish_lists(subjects, [b"1", b"2", b"3", b""], lines, lambda row, _: refused.append(row))
        first = publisher.flush()
        proxy.cut()
        publisher.publish_lists([f"{stream}.c"], [b"x"], [id_line("c")])
        second = publisher.flush()
        publisher.publish_lists([f"{stream}.d"] * 3000, [b"x"] * 3000)
        third = publisher.flush()

    assert (first.stored, second.stored, third.stored) == (2, 1, 3000)
    assert sorted(refused) == [1, 2]
    assert subject_counts(connection, stream) == {
        f"{stream}.{name}": n for name, n in zip("abcd", (1, 1, 1, 3000), strict=True)
    }


def test_nobody_listens(publisher: Publisher) -> None:
    """A subject without a stream fails and is named; it is not taken for success."""
    publisher.publish("nobody.listens.here", b"x")

    with pytest.raises(StreamError, match=r"no stream listens on 'nobody.listens.here'") as failure:
        publisher.flush()

    assert failure.value.code == 503


def test_an_answer_that_is_no_acknowledgement(nats_server: NatsServer, publisher: Publisher) -> None:
    """A service on the same subject is not a stream."""
    ready = threading.Event()

    def serve() -> None:
        with Connection.open(nats_server.url) as service:
            service.subscribe("a.service")
            service.ping()
            ready.set()
            message = next(service.messages(time.monotonic() + 10))
            service.publish(message.reply, b"OK")
            service.ping()

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait(10)
    publisher.publish("a.service", b"x")
    with pytest.raises(StreamError, match="is no stream"):
        publisher.flush()
    thread.join(10)


def test_how_long_each_took_is_counted(connection: Connection, publisher: Publisher, stream: str) -> None:
    """Every message once, known ones too, whichever way its acknowledgement is counted; and since the last flush."""
    for n in range(1000):
        publisher.publish(f"{stream}.{n % 4}", b"x", message_id=f"{n % 700}" if n % 2 else None)
    begun = time.monotonic()
    first = publisher.flush()
    publisher.publish(f"{stream}.a", b"x")
    second = publisher.flush()

    assert first.delivery.count == first.stored + first.duplicates == 1000
    assert first.duplicates
    assert second.delivery.count == 1
    assert 0 < second.delivery.seconds <= time.monotonic() - begun


def test_a_message_that_is_sent_again_has_waited_since_the_first_time(nats_server: NatsServer, stream: str) -> None:
    """A connection that is lost before the acknowledgement was read does not make it younger."""
    with CuttingProxy(nats_server.port) as proxy, Connection.open(proxy.url) as opened:
        publisher = Publisher(opened)
        publisher.publish_columns(pa.array([f"{stream}.a"]), pa.array([b"x"], pa.binary()))
        published = time.monotonic()
        time.sleep(0.3)
        proxy.cut()
        cut = time.monotonic()
        done = publisher.flush()

    assert done.delivery.count == 1
    assert done.delivery.seconds >= cut - published


def test_the_expected_stream(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """Another stream on the subject refuses, with JetStream's own code."""
    with Connection.open(nats_server.url) as opened:
        good = Publisher(opened, expected_stream=stream)
        good.publish(f"{stream}.a", b"x", [("A", "b")], "1")
        assert good.flush() == Published(1, 0)

        bad = Publisher(opened, expected_stream="OTHER")
        bad.publish(f"{stream}.a", b"x")
        with pytest.raises(StreamError, match="expected stream does not match") as failure:
            bad.flush()
    assert failure.value.err_code == 10060


def test_a_message_that_is_too_large(publisher: Publisher, connection: Connection, stream: str) -> None:
    """It is refused before it can cost the connection."""
    publisher.publish(f"{stream}.ok", b"x")

    with pytest.raises(StreamError, match=rf"'{stream}.big' has 1,048,594 bytes.*max_payload"):
        publisher.publish(f"{stream}.big", b"x" * (1 << 20), [("A", "b")])


@pytest.mark.parametrize("subject", ["", "a b", "a..b", ".a", "a.", "a.*", ">", "a\r\nPUB b 1", "a\x00"])
def test_what_is_no_subject(publisher: Publisher, subject: str) -> None:
    """Nothing that could be read as protocol, and no wildcard, leaves this process."""
    publisher.publish(subject, b"x")

    with pytest.raises(StreamError, match="is no subject"):
        publisher.flush()


def test_a_permission_that_is_missing() -> None:
    """The server's word comes through at once, not a time-out."""
    config = 'authorization { users: [ {user: a, password: pw, permissions: {publish: {deny: "s.no"}}} ] }'
    with NatsServer(config=config) as server, Connection.open(server.url.replace("//", "//a:pw@")) as connection:
        create_stream(connection, {"name": "S", "subjects": ["s.>"], "storage": "memory"})
        publisher = Publisher(connection)
        publisher.publish("s.no", b"x")
        with pytest.raises(StreamError, match=r'Permissions Violation for Publish to "s.no"') as failure:
            publisher.flush()

    assert failure.value.code == 403


def test_a_full_stream_refuses() -> None:
    """A message that does not fit into the stream is an error, not a loss."""
    with NatsServer() as server, Connection.open(server.url) as connection:
        create_stream(
            connection,
            {"name": "S", "subjects": ["s"], "storage": "memory", "max_msgs": 3, "discard": "new"},
        )
        publisher = Publisher(connection)
        for _ in range(5):
            publisher.publish("s", b"x")
        with pytest.raises(StreamError, match="maximum messages exceeded") as failure:
            publisher.flush()

    assert failure.value.err_code == 10077


def test_a_stream_that_comes_late(nats_server: NatsServer, connection: Connection) -> None:
    """Messages that no stream stored at first are sent again, and those with ids counted once."""
    with Connection.open(nats_server.url) as opened:
        publisher = Publisher(opened)
        for n in range(300):
            publisher.publish("late.x", b"x", message_id=f"l{n}" if n % 2 else None)
        for n in range(300):
            publisher.publish("late.x", b"x", message_id=f"m{n}")
        timer = threading.Timer(0.3, _create, (nats_server.url, "LATE", "late.>"))
        timer.start()
        published = publisher.flush()
        timer.join()

    assert published.stored + published.duplicates == 600
    assert stored(connection, "LATE") == 600
    delete_stream(connection, "LATE")


def _create(url: str, name: str, subjects: str) -> None:
    with Connection.open(url) as connection:
        create_stream(connection, {"name": name, "subjects": [subjects], "storage": "memory"})


def test_answers_to_a_lost_connection_are_not_counted(nats_server: NatsServer, stream: str) -> None:
    """A chunk that is sent again is counted from nothing, under a number that late answers do not have."""
    messages = PublishedColumns(
        pa.array([f"{stream}.a"] * 3), pa.array([b"x"] * 3, type=pa.binary()), id_lines(pa.array(["1", "2", "3"]))
    )
    first, again = CountedChunk(messages, b"_INBOX.x.", 7), CountedChunk(messages, b"_INBOX.x.", 8)
    late = Answers(np.array([7, 7]), np.array([0, 0]))
    mixed = Answers(np.array([7, 8, 8, 9]), np.array([0, 1, 0, 0]))

    assert first.acknowledge(late) == 2
    assert again.acknowledge(late) == 0
    assert (again.acknowledge(mixed), again.left, again.duplicates) == (2, 1, 1)
    assert not again.holds(7)
    assert bytes(again.waiting()).count(b" _INBOX.x.8 ") == 3


def test_a_connection_cut_in_the_middle(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """Everything without acknowledgement is sent again, and the ids keep it single."""
    count = 5000
    with CuttingProxy(nats_server.port, 3_001, 20_011, 1_003) as proxy, Connection.open(proxy.url) as cut:
        publisher = Publisher(cut, window=1000)
        for n in range(count):
            publisher.publish(f"{stream}.x", b"%d" % n, message_id=f"m{n}")
        published = publisher.flush()

        assert proxy.cuts == 3
    assert published.stored + published.duplicates == count
    assert published.delivery.count == count
    assert stored(connection, stream) == count


def test_a_server_that_restarts_and_one_that_pauses() -> None:
    """Neither loses or doubles a message."""
    count = 6000
    with NatsServer() as server:
        with Connection.open(server.url) as connection:
            create_stream(connection, {"name": "S", "subjects": ["s.>"], "storage": "file"})

        done: list[Published] = []

        def publish() -> None:
            with Connection.open(server.url) as connection:
                publisher = Publisher(connection, window=500)
                for n in range(count):
                    publisher.publish("s.x", b"%d" % n, message_id=f"m{n}")
                    if n % 100 == 0:
                        time.sleep(0.02)
                done.append(publisher.flush())

        # The server is started again by this thread: it ends with the one that started it.
        thread = threading.Thread(target=publish)
        thread.start()
        time.sleep(0.2)
        server.restart(kill=True)
        time.sleep(0.3)
        server.pause()
        time.sleep(0.7)
        server.resume()
        thread.join(60)

        assert done[0].stored + done[0].duplicates == count
        with Connection.open(server.url) as connection:
            assert stored(connection, "S") == count


def test_no_server_comes_back() -> None:
    """After the time that was granted publishing fails and says how many are open."""
    with NatsServer() as server, Connection.open(server.url, reconnect_timeout=0.6) as connection:
        create_stream(connection, {"name": "S", "subjects": ["s"], "storage": "memory"})
        publisher = Publisher(connection)
        server.stop()
        publisher.publish("s", b"x")
        with pytest.raises(ConnectionLostError):
            publisher.flush()


def test_a_clock_that_steps(nats_server: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for the time of day: a clock that is set back and forth changes neither waits nor results."""
    steps = itertools.cycle([0.0, 4e9, 1e9])
    monkeypatch.setattr(time, "time", lambda: next(steps))
    count = 2000
    with CuttingProxy(nats_server.port, 20_011, -1, 100_003) as proxy, Connection.open(proxy.url) as cut:
        publisher = Publisher(cut, window=500)
        for n in range(count):
            publisher.publish(f"{stream}.x", b"%d" % n, message_id=f"c{n}")
        publisher.flush()
    with CuttingProxy(nats_server.port, 30_011) as proxy, Connection.open(proxy.url) as cut:
        batches = list(PullReader(cut, Range(stream, 1, count + 1)).batches())

        assert proxy.cuts == 1
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"%d" % n for n in range(count)]
