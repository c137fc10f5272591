"""Any bytes of a server lead to a result, or to an error of turnout's tree, within a short time."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nats.wire.false_server import GREETING, Answer, Asked, FalseServer

from turnout.errors import TurnoutError
from turnout.nats.protocol.errors import BrokenFrameError
from turnout.nats.wire import (
    Acknowledger,
    Connection,
    DirectReader,
    Publisher,
    PullReader,
    Range,
    sample,
    stream_info,
    subject_counts,
)
from turnout.nats.wire.records import decode, locate

STATE = {"messages": 3, "bytes": 9, "first_seq": 1, "last_seq": 3, "subjects": {"a": 1, "b": 2}}


def opened(server: FalseServer) -> Connection:
    return Connection.open(server.url, timeout=0.1, connect_timeout=0.2, reconnect_timeout=0.02)


# -- what a real server would answer


def stream(request: Asked) -> bytes:
    return request.message(json.dumps({"config": {"name": "S"}, "state": STATE, "total": 2}).encode())


def consumer(request: Asked) -> bytes:
    name = request.subject.rpartition(".")[2]
    return request.message(json.dumps({"name": name, "num_pending": 3, "ack_floor": {"stream_seq": 0}}).encode())


def messages(request: Asked) -> bytes:
    headers = b"NATS/1.0\r\nNats-Msg-Id: 7\r\nA: b\r\n\r\n"
    frames = [
        request.message(b"abc", f"$JS.ACK.S.C.1.{n}.{n}.1700000000000000000.{3 - n}", "a.b", headers if n % 2 else b"")
        for n in (1, 2, 3)
    ]
    return b"".join([*frames, b"PING\r\n", request.status("408 Request Timeout")])


def stored(request: Asked) -> bytes:
    return request.message(b'{"stream":"S", "seq":4}')


def one(request: Asked) -> bytes:
    message = {
        "subject": "a",
        "seq": 1,
        "data": "YWJj",
        "hdrs": "TkFUUy8xLjANCkE6Yg0KDQo=",
        "time": "2026-01-01T00:00:00.5Z",
    }
    return request.message(json.dumps({"message": message}).encode())


def direct(request: Asked) -> bytes:
    place = "Nats-Stream: S\r\nNats-Subject: a\r\nNats-Sequence: 1\r\nNats-Time-Stamp: 2026-01-01T00:00:00.25Z"
    message = request.message(b"abc", headers=f"NATS/1.0\r\n{place}\r\nA: b\r\n\r\n".encode())
    end = request.message(b"", headers=b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n")
    return message + end


# -- what a client does with it


def do_open(server: FalseServer) -> None:
    with opened(server) as connection:
        connection.ping()


def do_request(server: FalseServer) -> None:
    with opened(server) as connection:
        connection.request("q")


def do_info(server: FalseServer) -> None:
    with opened(server) as connection:
        stream_info(connection, "S")


def do_count(server: FalseServer) -> None:
    with opened(server) as connection:
        subject_counts(connection, "S")


def do_pull(server: FalseServer) -> None:
    with opened(server) as connection:
        for batch in PullReader(connection, Range("S", 1, 4)).batches():
            batch.validate(full=True)


def do_publish(server: FalseServer) -> None:
    with opened(server) as connection:
        publisher = Publisher(connection)
        publisher.publish("a", b"x")
        publisher.publish("b", b"y", message_id="1")
        publisher.flush()


def do_sample(server: FalseServer) -> None:
    with opened(server) as connection:
        sample(connection, "S", 2)


def do_direct(server: FalseServer) -> None:
    with opened(server) as connection:
        for batch in DirectReader(connection, Range("S", 1, 2)).batches():
            batch.validate(full=True)


def do_acknowledge(server: FalseServer) -> None:
    with opened(server) as connection:
        Acknowledger(connection, "S", "C").acknowledge(3)


WAYS: dict[str, tuple[Callable[[FalseServer], None], list[Answer]]] = {
    "request": (do_request, [stored]),
    "info": (do_info, [stream]),
    "count": (do_count, [stream, stream]),
    "pull": (do_pull, [consumer, messages, messages]),
    "publish": (do_publish, [stored, stored]),
    "sample": (do_sample, [stream, one, one]),
    "direct": (do_direct, [direct, direct]),
    "acknowledge": (do_acknowledge, [consumer, messages]),
}

NUMBERS = [b"", b"-1", b"0", b"1_0", b"+3", b"1e3", b"\xd9\xa3", b"4294967296", b"9" * 19, b"9" * 20, b"9" * 5000, b"x"]
PAYLOADS = [
    b"[" * 50_000, b'{"a":' * 50_000, b"\xff\xfe", b"null", b"[]", b"{}", b'"', b"1" * 10_000, b'{"error":"no"}',
    b'{"error":{"code":"x","err_code":[]}}', b'{"state":[],"config":{}}', b'{"state":{"first_seq":-1},"config":{}}',
    b'{"name":"\\ud800"}', b'{"message":1}', b'{"message":{"seq":"1"}}', b'{"seq":1,"duplicate":{}}',
]  # fmt: skip

_numbers = st.tuples(st.just("number"), st.integers(0, 12), st.sampled_from(NUMBERS))
_changes = st.one_of(
    _numbers,
    st.tuples(st.just("line end"), st.integers(0, 6), st.sampled_from([b"", b"\n", b"\r", b"\r\n\r\n"])),
    st.tuples(st.just("blank"), st.integers(0, 6), st.sampled_from([b"", b"  ", b"\t", b" x "])),
    st.tuples(st.just("bytes"), st.integers(0, 200), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("cut"), st.integers(0, 200), st.just(b"")),
    st.tuples(st.just("payload"), st.just(0), st.sampled_from(PAYLOADS)),
    st.tuples(st.just("instead"), st.just(0), st.binary(max_size=60)),
)
_PATTERNS = {"number": rb"[0-9]+", "line end": rb"\r\n", "blank": rb" ", "payload": rb"\{.*\}(?=\r\n)"}


def changed(frame: bytes, change: tuple[str, int, bytes]) -> bytes:
    """The bytes with one thing wrong."""
    kind, place, text = change
    if kind == "instead":
        return text + b"\r\n"
    if kind in ("bytes", "cut"):
        at = place % max(1, len(frame))
        return frame[:at] + (text + frame[at + len(text) :] if kind == "bytes" else b"")
    places = list(re.finditer(_PATTERNS[kind], frame))
    if not places:
        return frame
    match = places[place % len(places)]
    swapped = frame[: match.start()] + text + frame[match.end() :]
    if kind == "payload":
        size = str(len(match[0])).encode()
        swapped = swapped.replace(b" %b\r\n" % size, b" %d\r\n" % len(text), 1)
    return swapped


@pytest.mark.timeout(300)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=40)
@given(st.sampled_from(sorted(WAYS)), st.integers(0, 2), st.lists(_changes, min_size=1, max_size=2))
@example("info", 0, [("payload", 0, PAYLOADS[0])])
@example("info", 0, [("payload", 0, PAYLOADS[1])])
@example("sample", 1, [("payload", 0, b'{"message":{"seq":1}}')])
@example("pull", 1, [("number", 11, b"-1")])
@example("direct", 0, [("number", 4, b"9" * 5000)])
def test_broken_answers(way: str, which: int, changes: list[tuple[str, int, bytes]]) -> None:
    """A frame with something wrong in it gives a result or a TurnoutError, and nothing hangs."""
    work, answers = WAYS[way]

    def broken(answer: Answer) -> Answer:
        def answered(request: Asked) -> bytes:
            frame = answer(request)
            for change in changes:
                frame = changed(frame, change)
            return frame

        return answered

    place = which % len(answers)
    several = [*answers[:place], broken(answers[place]), *answers[place + 1 :]]
    with FalseServer(several) as server, contextlib.suppress(TurnoutError):
        work(server)


@pytest.mark.timeout(300)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=40)
@given(st.booleans(), st.lists(_changes, min_size=1, max_size=2))
@example(True, [("payload", 0, PAYLOADS[0])])
@example(True, [("payload", 0, b'{"max_payload":"1"}')])
@example(True, [("payload", 0, b"[1]")])
@example(True, [("line end", 0, b"")])
@example(False, [("instead", 0, b"-ERR 'Authorization Violation'")])
@example(False, [("instead", 0, b"-ERR")])
@example(False, [("instead", 0, b"MSG a 1 -5")])
def test_broken_openings(greeting: bool, changes: list[tuple[str, int, bytes]]) -> None:
    """The same applies to a greeting, and to the response before the first PONG."""
    frame = GREETING if greeting else b"PONG\r\n"
    for change in changes:
        frame = changed(frame, change)
    false = FalseServer(greeting=frame) if greeting else FalseServer(pong=frame)
    with false as server, contextlib.suppress(TurnoutError):
        do_open(server)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_what_is_not_broken(way: str) -> None:
    """The answers that are broken above are good ones as they are."""
    work, answers = WAYS[way]
    with FalseServer(answers) as server:
        work(server)


@given(st.lists(_changes, max_size=3))
@settings(max_examples=examples(300))
@example([("number", 7, b"-1"), ("bytes", 4, b"\x80")])
def test_broken_buffers(changes: list[tuple[str, int, bytes]]) -> None:
    """Bytes that are no protocol are an error of ours, or valid columns."""
    frame = messages(Asked("q", "_INBOX.x.1", 1, b"")) * 3
    for change in changes:
        frame = changed(frame, change)
    memory = bytearray(frame)
    with contextlib.suppress(TurnoutError):
        received = decode(memory, locate(memory, len(memory)))
        received.batch(len(received)).validate(full=True)


@pytest.mark.parametrize(
    ("answer", "kind", "head"),
    [
        (b"MSG {reply} 1 -5\r\n", "MSG", b"MSG _INBOX"),
        (b"MSG {reply} 1 99999999999\r\n", "MSG", b"MSG _INBOX"),
        (b"MSG {reply} 1 999999999\r\n", "MSG", b"MSG _INBOX"),
        (b"HMSG {reply} 1 20 10\r\n", "HMSG", b"HMSG _INBOX"),
        (b"MSG 5\r\n", "MSG", b"MSG 5"),
        (b"MSG {reply} 1 2\r\nabcd\r\n", "message", b"MSG _INBOX"),
        (b"HELLO\r\n", "control", b"HELLO"),
        (b"\xff\xfe\r\n", "control", b"\xff\xfe"),
        (b"INFO " + b"[" * 100_000 + b"\r\n", "INFO", b"[[[["),
        (b"INFO {\r\n", "INFO", b"{"),
        (b"x" * (2 << 20), "line", b"xxxx"),
    ],
)
def test_the_error_names_the_kind_and_the_head(answer: bytes, kind: str, head: bytes) -> None:
    """The error has the kind of frame, its beginning, and the server; the connection is closed."""
    with FalseServer([lambda request: answer.replace(b"{reply}", request.reply.encode())]) as server:
        connection = opened(server)
        with pytest.raises(BrokenFrameError) as broken:
            connection._ask("q", b"", {}, 20.0)

        assert broken.value.kind == kind
        assert broken.value.head.startswith(head)
        assert len(broken.value.head) <= 60
        assert f"127.0.0.1:{server.port} sent a broken {kind} frame" in str(broken.value)
        assert not connection.is_open


def test_a_server_that_never_stops_talking() -> None:
    """Lines without end are no answer: the time limit holds although something comes all the time."""
    chatter: Answer = lambda request: b"PING\r\n+OK\r\n" * 400_000  # noqa: E731
    with FalseServer([chatter]) as server, opened(server) as connection, pytest.raises(TurnoutError):
        connection.request("q")
