"""Records that a chaos run publishes, the subscriptions that want them, and the books in the end."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest.mock import patch

from tests.integration.nats_socket import NatsSocket

from turnout.conditions import Condition, all_of, any_of, kiwi, not_
from turnout.embedded import NatsServer
from turnout.errors import TurnoutError
from turnout.nats.wire import Connection, PullReader, Range, create_stream, stream_info
from turnout.subscriptions import Matcher, Subscription, open_store
from turnout.subscriptions.stores import sqlite

DEAD = "dead"
HUGE = 150_000
_TOKENS = 60
_KINDS = 40
_BLOCK = 100


@dataclass(frozen=True, slots=True)
class Record:
    """Published record, with its metadata for conditions; None if it becomes a dead letter."""

    subject: str
    payload: bytes
    headers: bytes
    seen: dict[str, str] | None


def _plain(n: int) -> Record:
    metadata = {"subject": f"in.{n % _TOKENS}", "bucket": str(n % 997), "Kind": f"k{n % _KINDS}"}
    payload = json.dumps({"n": n, "bucket": n % 997}).encode()
    return Record(metadata["subject"], payload, f"Kind: {metadata['Kind']}\r\n".encode(), metadata)


def _no_json(n: int) -> Record:
    plain = _plain(n)
    return Record(plain.subject, plain.payload[:-1], plain.headers, None)


def _huge(n: int) -> Record:
    plain = _plain(n)
    payload = json.dumps({"n": n, "bucket": n % 997, "text": "x" * HUGE}).encode()
    return Record(plain.subject, payload, plain.headers, plain.seen)


def _no_text_in_a_header(n: int) -> Record:
    """Bytes that are no UTF-8: the header counts as absent."""
    plain = _plain(n)
    assert plain.seen is not None
    return Record(
        plain.subject, plain.payload, b"Kind: \xff\xfe\r\n", {k: v for k, v in plain.seen.items() if k != "Kind"}
    )


def _no_header_lines(n: int) -> Record:
    """A line without a colon, and one without a value: neither is a reason to lose the others."""
    plain = _plain(n)
    return Record(plain.subject, plain.payload, b"no colon\r\nEmpty:\r\n" + plain.headers, plain.seen)


def _no_number(n: int) -> Record:
    """Values of other kinds than elsewhere."""
    plain = _plain(n)
    assert plain.seen is not None
    payload = json.dumps({"n": n, "bucket": {"deep": [n]}, "": None}).encode()
    return Record(plain.subject, payload, plain.headers, {k: v for k, v in plain.seen.items() if k != "bucket"})


ODD: dict[str, Callable[[int], Record]] = {
    "not JSON": _no_json,
    "huge": _huge,
    "a header that is no text": _no_text_in_a_header,
    "header lines that are none": _no_header_lines,
    "a value of another kind": _no_number,
}
"""Records that are unlike the others. A kind is a line here."""

_ODD_EVERY = 97


def record(n: int) -> Record:
    """Record number *n*; one in so many is odd."""
    if n % _ODD_EVERY:
        return _plain(n)
    return list(ODD.values())[n // _ODD_EVERY % len(ODD)](n)


def subscriptions(count: int) -> list[Subscription]:
    """Return this many subscriptions with different conditions; each record matches about three."""
    return [Subscription(destinations=(f"out.s{n}",), condition=_wish(n), id=f"s{n}") for n in range(count)]


def _wish(n: int) -> Condition:
    if n < _TOKENS:
        return kiwi("subject", f"in.{n}")
    if n < _TOKENS + _KINDS:
        return all_of(kiwi("Kind", f"k{n - _TOKENS}"), not_(kiwi("bucket", "5*")))
    return any_of(kiwi("bucket", str(n - _TOKENS - _KINDS)), all_of(kiwi("bucket", f"*{n}"), kiwi("subject", "in.1*")))


def _deep(condition: Condition, depth: int) -> Condition:
    for n in range(depth):
        condition = any_of(condition, kiwi("nobody has this", str(n)))
    return condition


_NEVER = kiwi("nobody has this", "x")
_SOME = kiwi("subject", "in.7")

POISON: dict[str, Subscription] = {
    "a destination that no subject can be": Subscription(("a b",), _SOME),
    "a wildcard": Subscription(("out.>",), _SOME),
    "an empty token": Subscription(("out..x",), _SOME),
    "line breaks": Subscription(("out.x\r\nPUB out.injected 1\r\nx",), _SOME),
    "a destination of 5,000 characters": Subscription(("out." + "x" * 5000,), _SOME),
    "a subject that no stream takes": Subscription(("nowhere.x",), _SOME),
    "a sink that there is not": Subscription(("other:out.x",), _SOME),
    "the server's own subject": Subscription(("$JS.API.STREAM.PURGE.OUT",), _SOME),
    "the route's own source": Subscription(("in.again",), _SOME),
    "no destination at all": Subscription((), _SOME),
    "a pattern of many stars": Subscription(("out.x",), kiwi("subject", "*" + "n*" * 40)),
    "a pattern of nothing but question marks": Subscription(("out.x",), kiwi("Kind", "?" * 5000)),
    "deep groups": Subscription(("out.x",), all_of(_deep(_SOME, 30), _NEVER)),
}
"""Subscriptions that are bad. None of them may disturb the others; what they want and cannot be delivered becomes a
dead letter of its own. A kind is a line here."""

_POISONED = "poison-"


def store_poison(store: str, kind: str, number: int) -> None:
    """Store a bad subscription while the route runs, past the rules: as one from before there were such rules."""
    bad = replace(POISON[kind], id=f"{_POISONED}{number}")
    with patch.object(sqlite, "checked", iter), contextlib.closing(open_store(store)) as opened:
        opened.create(bad)


class Feed:
    """Publishes records on a thread, whatever becomes of the server meanwhile: each is stored once.

    Args:
        server: reached directly, so that cut connections are the route's alone.
        per_second: records.
    """

    def __init__(self, server: NatsServer, per_second: int) -> None:
        self._server = server
        self._per_second = per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="feed", daemon=True)
        self.published = 0
        self.failures = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> int:
        """Return the number of published records, and publish no more."""
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.published

    def _work(self) -> None:
        begun = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - begun) * self._per_second)
            if self.published + _BLOCK > due:
                self._stop.wait(0.05)
                continue
            try:
                with NatsSocket(self._server.port) as connection:
                    self._block(connection)
            except (OSError, TurnoutError, ValueError):
                # Not known to be stored: it is sent again, and the ids keep it single.
                self.failures += 1
                self._stop.wait(0.2)

    def _block(self, connection: NatsSocket) -> None:
        for n in range(self.published, self.published + _BLOCK):
            one = record(n)
            head = b"NATS/1.0\r\nNats-Msg-Id: %d\r\nN: %d\r\n%b\r\n" % (n, n, one.headers)
            sizes = b"%d %d" % (len(head), len(head) + len(one.payload))
            command = b"HPUB " + one.subject.encode() + b" _I.r " + sizes + b"\r\n"
            connection.send(command + head + one.payload + b"\r\n")
        acknowledged = 0
        while acknowledged < _BLOCK:
            if connection.read() == b"MSG":
                answer = json.loads(connection.waiting.pop()[2])
                if "error" in answer:
                    raise ValueError(answer)
                acknowledged += 1
        self.published += _BLOCK


def create_streams(server: NatsServer) -> None:
    with Connection.open(server.url) as connection:
        for name in ("IN", "OUT"):
            config = {"name": name, "subjects": [f"{name.lower()}.>"], "duplicate_window": 2 * 3600 * 10**9}
            create_stream(connection, config)


def stored(server: NatsServer, stream: str) -> int:
    with Connection.open(server.url) as connection:
        return int(stream_info(connection, stream)["state"]["messages"])


Delivery = tuple[int, str]
"""The number of a record, and the last token of where it went."""


def expected(wishes: list[Subscription], count: int) -> Counter[Delivery]:
    """Return the expected contents of OUT for this many records, computed without Spark, one record at a time."""
    matcher = Matcher(wishes)
    deliveries: Counter[Delivery] = Counter()
    for n in range(count):
        metadata = record(n).seen
        if metadata is None:
            deliveries[n, DEAD] += 1
            continue
        for match in matcher.match(metadata):
            deliveries.update((n, place.removeprefix("out.")) for place in match.destinations)
    return deliveries


def delivered(server: NatsServer) -> tuple[Counter[Delivery], Counter[Delivery]]:
    """Return the contents of OUT; and, separately, the dead letters of bad subscriptions."""
    deliveries: Counter[Delivery] = Counter()
    refused: Counter[Delivery] = Counter()
    with Connection.open(server.url) as connection:
        last = stream_info(connection, "OUT")["state"]["last_seq"]
        for batch in PullReader(connection, Range("OUT", 1, last + 1)).batches():
            for topic, pairs in zip(
                batch.column("topic").to_pylist(), batch.column("headers").to_pylist(), strict=True
            ):
                headers = {pair["key"]: pair["value"] for pair in pairs}
                n, subscription = int(headers["N"]), headers.get("__turnout.subscription", b"").decode()
                if subscription.startswith(_POISONED):
                    refused[n, subscription] += 1
                else:
                    deliveries[n, topic.removeprefix("out.")] += 1
    return deliveries, refused
