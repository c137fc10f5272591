"""Strict parser of server lines: the greeting, a line before a message, ``-ERR``; frames and pull requests of clients.

Input is untrusted: it is bounded and becomes a value, or a `BrokenFrameError` with its first bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final

from turnout.base.terminal import plural
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonMapping, JsonObject, decimal
from turnout.errors import StreamError
from turnout.nats.protocol.errors import BrokenFrameError
from turnout.nats.protocol.headers import CONFLICT, HEARTBEAT, NO_MESSAGES, NO_RESPONDERS, PIN_MISMATCH, REQUEST_TIMEOUT

_SHOWN_BYTES = 60


def read_object(raw: bytes, *, request: str) -> JsonObject:
    """The JSON object in *raw*.

    Raises:
        StreamError: when there is none; the message names the *request*, and how the answer begins.
    """
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError) as failure:
        why = "nested too deep" if isinstance(failure, RecursionError) else "no JSON"
        raise StreamError(f"{request}: the answer is {why}: {raw[:_SHOWN_BYTES]!r}") from None
    if not isinstance(value, dict):
        raise StreamError(f"{request}: the answer is not a JSON object: {raw[:_SHOWN_BYTES]!r}")
    return value


def object_in(answer: JsonMapping, name: str, *, request: str) -> JsonObject:
    """The object that *answer* holds under *name*.

    Raises:
        StreamError: when it holds none.
    """
    value = answer.get(name)
    if not isinstance(value, dict):
        raise StreamError(f"{request}: the answer has no object {name!r}")
    return value


def number_in(answer: JsonMapping, name: str, *, request: str, default: int | None = None) -> int:
    """The number, from 0 to 2**63 - 1, that *answer* holds under *name*; *default* where it has nothing of the name.

    Raises:
        StreamError: when it holds none.
    """
    value = answer.get(name, default)
    if type(value) is not int or not 0 <= value <= LARGEST_SEQUENCE:
        raise StreamError(f"{request}: {name!r} in the answer is {value!r:.40}, not a number")
    return value


MAX_LINE_BYTES = 1 << 20
"""Bytes of a protocol line; the longest is the INFO of a large cluster."""

MAX_MESSAGE_BYTES = 64 << 20
"""Bytes of a message, where the server's own limit is not higher: nats-server buffers that much for a client."""

_SERVER_HEADER_BYTES = 1 << 20
_MAX_PAYLOAD_BYTES = (1 << 31) - 1
MAX_SIZE_DIGITS = 10
"""Digits of a size."""


def read_info(raw: bytes) -> JsonObject:
    """Parse the JSON object of an ``INFO`` line.

    Raises:
        BrokenFrameError: when it is no JSON object, or a field that clients use has another form.
    """
    try:
        info = read_object(raw, request="INFO")
    except StreamError as failure:
        raise BrokenFrameError("INFO", str(failure), raw) from None
    limit, nonce = info.get("max_payload", 1), info.get("nonce", "")
    if type(limit) is not int or not 0 < limit <= _MAX_PAYLOAD_BYTES:
        raise BrokenFrameError("INFO", f"max_payload is {limit!r:.40}, not a number of bytes", raw)
    if not isinstance(nonce, str) or not nonce.isascii():
        raise BrokenFrameError("INFO", "the nonce is not text", raw)
    return info


def largest_message(info: JsonObject) -> int:
    """The most bytes that a message may have: a payload of the server's limit, and headers that the server adds."""
    return int(max(MAX_MESSAGE_BYTES, info.get("max_payload", 0))) + _SERVER_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class MessageLine:
    """The line before a message, ``MSG`` or ``HMSG``.

    Attributes:
        reply: reply subject; empty if none.
        head: how many bytes of headers there are.
        total: how many bytes follow, headers included.
    """

    subject: str
    reply: str
    head: int
    total: int

    @classmethod
    def parse(cls, line: bytes, largest: int = MAX_MESSAGE_BYTES) -> MessageLine:
        """Parse a line without its line end; subject bytes that are not UTF-8 become replacement characters.

        Raises:
            BrokenFrameError: when it has another form, or the message more than *largest* bytes.
        """
        word, *fields = line.split() or [b""]
        if word not in (b"MSG", b"HMSG"):
            raise BrokenFrameError("message", "its line begins with neither MSG nor HMSG", line)
        with_headers = word == b"HMSG"
        sizes = fields[-2:] if with_headers else fields[-1:]
        names = fields[: -len(sizes)]
        if len(names) not in (2, 3):
            raise BrokenFrameError(word.decode(), f"it has {plural(len(fields), 'field')}", line)
        numbers = [_size(word, text, line) for text in sizes]
        head, total = numbers if with_headers else (0, numbers[0])
        if head > total or total > largest:
            raise BrokenFrameError(word.decode(), f"{head} bytes of headers in {total}, of {largest} at most", line)
        subject, reply = names[0], names[2] if len(names) == 3 else b""
        return cls(subject.decode("utf-8", "replace"), reply.decode("utf-8", "replace"), head, total)


def _size(word: bytes, text: bytes, line: bytes) -> int:
    size = decimal(text) if len(text) <= MAX_SIZE_DIGITS else None
    if size is None:
        raise BrokenFrameError(word.decode(), f"{text[:20]!r} is no size", line)
    return size


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """Parsed ``-ERR`` line.

    Attributes:
        passing: it is about this connection, and another one may fare better.
        closes: the server ends the connection.
    """

    text: str
    passing: bool
    closes: bool

    @classmethod
    def parse(cls, raw: bytes) -> ErrorLine:
        """Parse the text after ``-ERR``."""
        text = raw.strip(b"' ").decode("utf-8", "replace")
        passing = text.startswith(("Stale Connection", "Slow Consumer", "Secure Connection"))
        return cls(text, passing, passing or not text.startswith("Permissions Violation"))

    @property
    def code(self) -> int:
        """Code as in HTTP: 403 for a permission violation, else 400."""
        return 403 if "iolation" in self.text else 400


def frame(subject: str, payload: bytes, reply: str = "", head: bytes = b"") -> bytes:
    """A PUB or, with a header block *head*, an HPUB frame."""
    answer = f" {reply}" if reply else ""
    if head:
        line = f"HPUB {subject}{answer} {len(head)} {len(head) + len(payload)}\r\n"
    else:
        line = f"PUB {subject}{answer} {len(payload)}\r\n"
    return b"".join([line.encode(), head, payload, b"\r\n"])


NANOSECONDS: Final = 1_000_000_000


def next_request(stream: str, consumer: str) -> str:
    """Return the API request that pulls from a consumer, without the prefix."""
    return f"CONSUMER.MSG.NEXT.{stream}.{consumer}"


def pull_body(
    batch: int,
    *,
    expires: float | None = None,
    no_wait: bool = False,
    max_bytes: int | None = None,
    heartbeat: float | None = None,
    more: Mapping[str, object] | None = None,
) -> bytes:
    """Return the JSON of a pull request with *more* fields; *expires* and *heartbeat* are in seconds."""
    body: dict[str, object] = {"batch": batch, **(more or {})}
    if expires:
        body["expires"] = round(expires * NANOSECONDS)
    if no_wait:
        body["no_wait"] = True
    if max_bytes:
        body["max_bytes"] = max_bytes
    if heartbeat:
        body["idle_heartbeat"] = round(heartbeat * NANOSECONDS)
    return json.dumps(body, separators=(",", ":")).encode()


def ephemeral_config(
    start: int | datetime | None, filters: Sequence[str] = (), *, idle_seconds: int = 30, **more: object
) -> JsonObject:
    """Return the configuration of a consumer without acknowledgements that the server removes when it is not used.

    Args:
        start: the first sequence or time to deliver; None for new messages only.
        filters: subjects, none for all.
        idle_seconds: time without requests after which the server removes the consumer.
        more: further fields.
    """
    config: JsonObject = {
        "deliver_policy": "new",
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": idle_seconds * NANOSECONDS,
        **more,
    }
    if isinstance(start, datetime):
        config |= {"deliver_policy": "by_start_time", "opt_start_time": start.isoformat()}
    elif start is not None:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    if len(filters) == 1:
        config["filter_subject"] = filters[0]
    elif filters:
        config["filter_subjects"] = list(filters)
    return config


class PullStatus(Enum):
    """Meaning of a status that answers a pull request (ADR-15, "Pull Mode Statuses")."""

    HEARTBEAT = auto()
    EXPIRED = auto()
    """The request has ended: nothing was there, or its time is over."""
    COMPLETED = auto()
    """The request has ended: its messages or bytes are used up."""
    TOO_LARGE = auto()
    """The request has ended: the next message has more bytes than are left."""
    MOVED = auto()
    """The server stops, or another one leads now: the same request may work later."""
    TOO_MANY_REQUESTS = auto()
    """The consumer's limit of waiting requests is reached."""
    UNPINNED = auto()
    """Another client has the pin: the same request may be made without an id (ADR-42)."""
    DELETED = auto()
    """The consumer, or its stream, was deleted."""
    NO_RESPONDERS = auto()
    """The consumer does not exist, or its server is not ready."""
    REFUSED = auto()
    """The others."""

    @classmethod
    def of(cls, code: int, text: str) -> PullStatus:
        """Classify a status by its code and description."""
        if code == CONFLICT:
            return _CONFLICTS.get(text.lower(), cls.REFUSED)
        return _CODES.get(code, cls.REFUSED)

    @property
    def ends_request(self) -> bool:
        """True if the request has ended as it should, perhaps without a message."""
        return self in _ENDS


_ENDS: Final = frozenset({PullStatus.EXPIRED, PullStatus.COMPLETED, PullStatus.TOO_LARGE})
_CODES: Final[Mapping[int, PullStatus]] = {
    HEARTBEAT: PullStatus.HEARTBEAT,
    NO_MESSAGES: PullStatus.EXPIRED,
    REQUEST_TIMEOUT: PullStatus.EXPIRED,
    NO_RESPONDERS: PullStatus.NO_RESPONDERS,
    PIN_MISMATCH: PullStatus.UNPINNED,
}
_CONFLICTS: Final[Mapping[str, PullStatus]] = {
    "batch completed": PullStatus.COMPLETED,
    "message size exceeds maxbytes": PullStatus.TOO_LARGE,
    "leadership change": PullStatus.MOVED,
    "server shutdown": PullStatus.MOVED,
    "exceeded maxwaiting": PullStatus.TOO_MANY_REQUESTS,
    "consumer deleted": PullStatus.DELETED,
    "stream deleted": PullStatus.DELETED,
}
