"""Records that a chaos run publishes, the subscriptions that want them, and the books in the end."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.integration.nats_socket import NatsSocket

from turnout.conditions import Condition, all_of, any_of, kiwi, not_
from turnout.embedded import NatsServer
from turnout.errors import TurnoutError
from turnout.subscriptions import Matcher, Subscription, open_store
from turnout.wire import Connection, PullReader, Range, create_stream, stream_info

DEAD = "dead"
HUGE = 150_000
_TOKENS = 60
_KINDS = 40
_BLOCK = 100


@dataclass(frozen=True, slots=True)
class Record:
    """What is published, and what conditions see of it; None where it is to be a dead letter."""

    subject: str
    payload: bytes
    headers: bytes
    seen: dict[str, str] | None


def _plain(n: int) -> Record:
    seen = {"subject": f"in.{n % _TOKENS}", "bucket": str(n % 997), "Kind": f"k{n % _KINDS}"}
    payload = json.dumps({"n": n, "bucket": n % 997}).encode()
    return Record(seen["subject"], payload, f"Kind: {seen['Kind']}\r\n".encode(), seen)


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
    """So many that want different things of records, of which each is wanted by some three."""
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


def _never(condition: Condition) -> Condition:
    return all_of(condition, kiwi("nobody has this", "x"))


def _stored(subscription: Subscription) -> Callable[[str, str], None]:
    def poison(url: str, id: str) -> None:  # noqa: A002 - the field's own name
        store = open_store(url)
        try:
            store.create(Subscription(destinations=subscription.destinations, condition=subscription.condition, id=id))
        finally:
            store.close()

    return poison


POISON: dict[str, Callable[[str, str], None]] = {
    "a destination that is no subject, never wanted": _stored(
        Subscription(destinations=("out..*.>",), condition=_never(kiwi("subject", "in.*")))
    ),
    "a pattern of many stars": _stored(
        Subscription(destinations=("out.poison",), condition=kiwi("subject", "*" + "n*" * 40))
    ),
    "a pattern of nothing but question marks": _stored(
        Subscription(destinations=("out.poison",), condition=kiwi("Kind", "?" * 5000))
    ),
    "no destination at all": _stored(Subscription(destinations=(), condition=kiwi("subject", "*"))),
    "deep groups": _stored(
        Subscription(destinations=("out.poison",), condition=_never(_deep(kiwi("subject", "*"), 30)))
    ),
}
"""Subscriptions that are stored past the service's rules while the route runs, under an id of their own. None of them
may disturb the others, and none is delivered to. A kind is a line here."""


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
        """How many there are; no more come."""
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
    """What has to be in OUT of so many records: worked out without Spark, one record at a time."""
    matcher = Matcher(wishes)
    deliveries: Counter[Delivery] = Counter()
    for n in range(count):
        seen = record(n).seen
        if seen is None:
            deliveries[n, DEAD] += 1
            continue
        for match in matcher.match(seen):
            deliveries.update((n, place.removeprefix("out.")) for place in match.destinations)
    return deliveries


def delivered(server: NatsServer) -> Counter[Delivery]:
    """What is in OUT."""
    deliveries: Counter[Delivery] = Counter()
    with Connection.open(server.url) as connection:
        last = stream_info(connection, "OUT")["state"]["last_seq"]
        for batch in PullReader(connection, Range("OUT", 1, last + 1)).batches():
            topics = batch.column("topic").to_pylist()
            deliveries.update(zip(_numbers(batch), (topic.removeprefix("out.") for topic in topics), strict=True))
    return deliveries


def _numbers(batch: Any) -> Iterator[int]:
    """Which record each message is of: a header says it."""
    for headers in batch.column("headers").to_pylist():
        yield next(int(header["value"]) for header in headers if header["key"] == "N")
