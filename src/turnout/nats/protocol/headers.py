"""NATS headers: one block of ``Key: value`` lines behind the version line ``NATS/1.0`` (ADR-4).

Blanks and tabs before a value are not part of it, those behind it are; a name is the text before the first colon,
unchanged. nats.go does the same, and nats-server for its own headers. Kafka's headers need it: no byte of a value may
be lost.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, Mistake

MESSAGE_ID = "Nats-Msg-Id"
"""The header that JetStream deduplicates by."""

ADDED_BY_DIRECT_GETS = frozenset(
    {"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"}
)
"""Headers of the server's answer, not of the stored message (ADR-31)."""

VERSION = b"NATS/1.0"

KV_OPERATION: Final = "KV-Operation"
"""The header by which clients mark a deletion in a bucket (ADR-8)."""

MARKER_REASON: Final = "Nats-Marker-Reason"
"""The header by which a server marks a deletion (ADR-43)."""

OPERATIONS: Final = {b"maxage": b"PURGE", b"purge": b"PURGE", b"remove": b"DEL"}
"""The operations of a server's reasons, in lower case, as clients read them (ADR-48)."""

_BASE64: Final = b"base64:"
_BREAK: Final = re.compile(rb"[\r\n]")

HeaderInput = Mapping[str, str | Sequence[str]]
Headers = dict[str, list[str]]

UNFIT_NAME: Final = re.compile(r"[^!-9;-~]|^$")
"""Pattern of what no header's name may have: ADR-4 allows printable ASCII without blanks and colons.

Servers store other names as well, and some clients then read none of the message's later headers.
"""

NAME_RULE: Final = "a header's name has printable ASCII characters alone, without blanks and colons, and is not empty"


def encode(headers: Iterable[tuple[str, bytes | str]]) -> bytes:
    """Return the header block of *headers*, including its closing blank line; empty without headers.

    A name may occur several times; the order is kept.

    Raises:
        ConfigError: when a name or a value would break out of its line; it lists all of them, and no value.
    """
    written = lines(headers)
    return block_of(written) if written else b""


def block_of(written: bytes) -> bytes:
    r"""Return the header block of lines, each of which has its end.

    >>> block_of(b"A: b\r\n")
    b'NATS/1.0\r\nA: b\r\n\r\n'
    """
    return b"%b\r\n%b\r\n" % (VERSION, written)


def encode_table(headers: HeaderInput) -> bytes:
    """Return the header block of a table whose values may be lists of values.

    Raises:
        ConfigError: as `encode`.
    """
    return encode(pairs_of(headers))


def fitting(headers: HeaderInput) -> dict[str, str | Sequence[str]]:
    """Return the headers of a table with names that may be written; others have stored the table."""
    return {name: values for name, values in headers.items() if not UNFIT_NAME.search(name)}


def pairs_of(headers: HeaderInput) -> Iterator[tuple[str, str]]:
    """Yield the name and each value of headers."""
    for name, values in headers.items():
        for value in (values,) if isinstance(values, str) else values:
            yield name, value


def lines(headers: Iterable[tuple[str, bytes | str]]) -> bytes:
    """Return the header lines of *headers*, without the version line and the closing blank line.

    Raises:
        ConfigError: as `encode`.
    """
    encoded: list[bytes] = []
    mistakes: list[Mistake] = []
    for name, value in headers:
        raw_value = value.encode() if isinstance(value, str) else value
        if UNFIT_NAME.search(name):
            mistakes.append(Mistake(f"headers.{name!r}", NAME_RULE))
        elif b"\n" in raw_value or b"\r" in raw_value:
            mistakes.append(Mistake(f"headers.{name}", "a header's value cannot hold a line break"))
        else:
            encoded += (name.encode(), b": ", raw_value, b"\r\n")
    if mistakes:
        raise ConfigError(mistakes, what="NATS headers")
    return b"".join(encoded)


def header_of_key(key: bytes) -> bytes:
    r"""Return the value of the header that keeps a record's key: the key, or its Base64 where a line cannot hold it.

    >>> header_of_key(b"orders-17"), header_of_key(b"\x00\xff"), key_of_header(b"base64:AP8=")
    (b'orders-17', b'base64:AP8=', b'\x00\xff')
    """
    if key.lstrip(b" \t") == key and not key.startswith(_BASE64) and not _BREAK.search(key) and _is_text(key):
        return key
    return _BASE64 + base64.b64encode(key)


def key_of_header(value: bytes) -> bytes:
    """Return the key that `header_of_key` has written."""
    if not value.startswith(_BASE64):
        return value
    try:
        return base64.b64decode(value.removeprefix(_BASE64), validate=True)
    except ValueError:
        # Another program has written a key that only begins so.
        return value


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def parse(block: bytes) -> list[tuple[str, bytes]]:
    r"""The names and values of a header *block*, in their order; lines without a colon or a name are left out.

    >>> parse(b"NATS/1.0\r\nA: b \r\nA:c\r\n\r\n")
    [('A', b'b '), ('A', b'c')]
    """
    headers = []
    for line in block.split(b"\n")[1:]:
        name, colon, value = line.removesuffix(b"\r").partition(b":")
        if colon and name:
            headers.append((name.decode("utf-8", "replace"), value.lstrip(b" \t")))
    return headers


def parse_table(block: bytes) -> Headers:
    """Parse a header block as lists of texts by name; invalid UTF-8 becomes replacement characters."""
    table: Headers = {}
    # Decoded as a whole: line breaks and colons end invalid sequences.
    for line in block.decode("utf-8", "replace").split("\n")[1:]:
        name, colon, value = line.removesuffix("\r").partition(":")
        if colon and name:
            table.setdefault(name, []).append(value.lstrip(" \t"))
    return table


HEARTBEAT = 100
END_OF_BATCH = 204
NO_MESSAGES = 404
REQUEST_TIMEOUT = 408
CONFLICT = 409
PIN_MISMATCH = 423
NO_RESPONDERS = 503

# Nothing is given back once it is taken: blanks could be divided among the parts in many ways.
_LINE = re.compile(re.escape(VERSION) + rb"[ \t]++([0-9]{3})(?:[ \t]++([^\r\n]*+))?+\r?(?:\n|\Z)")


class StatusLine(NamedTuple):
    """Code and text of a version line."""

    code: int
    text: str


def read_status(block: bytes) -> StatusLine | None:
    r"""The code and text in the version line of a header *block*; None for the headers of a message.

    >>> read_status(b"NATS/1.0 404 No Messages\r\n\r\n")
    StatusLine(code=404, text='No Messages')
    >>> read_status(b"NATS/1.0\r\nStatus: 404\r\n\r\n") is None
    True
    """
    line = _LINE.match(block)
    return StatusLine(int(line[1]), (line[2] or b"").decode("utf-8", "replace").strip()) if line else None


@dataclass(frozen=True, slots=True)
class Status:
    """A message that the server sends about the delivery, in place of data.

    Attributes:
        code: 100, 404, 408, 409, 503, ...
        description: the text after it.
        headers: the lines below it.
        reply: reply subject; flow control requests have one.

    >>> Status(100, "FlowControl Request", reply="$JS.FC.ORDERS.worker").is_flow_control, Status(100).is_flow_control
    (True, False)
    """

    code: int
    description: str = ""
    headers: Headers = field(default_factory=dict)
    reply: str = ""

    @property
    def is_flow_control(self) -> bool:
        """A flow control request: to be answered with an empty message to *reply*."""
        return self.code == HEARTBEAT and bool(self.reply)

    @property
    def is_heartbeat(self) -> bool:
        """A sign of life of an idle consumer."""
        return self.code == HEARTBEAT and not self.reply

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if the header is missing."""
        return self.headers.get(name, [""])[0]

    def number(self, name: str) -> int | None:
        """A header that holds a number; None where it does not."""
        return decimal(self.header(name).strip())

    @classmethod
    def of(cls, raw: bytes, payload: bytes, reply: bytes = b"") -> Self | None:
        """The status in a header block, or None if the message is data.

        Only an empty payload *and* a status line make a status: a message whose headers include ``Status`` is data
        (ADR-15 leaves this open; a user's headers must not be mistaken for the server's).
        """
        read = None if payload else read_status(raw)
        if read is None:
            return None
        return cls(*read, parse_table(raw), reply.decode("utf-8", "replace"))


NOT_FORWARDED = (
    # About the stream that a record was read from: in another one it would be wrong or harmful.
    "Nats-Msg-Id",
    "Nats-Expected-*",
    "Nats-Stream-Source",
    # Instructions to the server about the message, others of its stream, or later ones.
    "Nats-Rollup",
    "Nats-TTL",
    "Nats-Marker-Reason",
    "Nats-Incr",
    "Nats-Counter-Sources",
    "Nats-Batch-*",
    "Nats-Schedule",
    "Nats-Schedule-*",
    "Nats-Scheduler",
    "Nats-Required-Api-Level",
    # Recipients of traces, and whether it is delivered at all.
    "Nats-Trace-*",
    # The client, as one server names it to another.
    "Nats-Request-Info",
)
"""Headers that instruct a nats-server (as of 2.15), which a sink forwards only if it names them.

``traceparent`` is not among them: it traces only where the server's configuration says so, and other programs use it.
"""

_WITHHELD = re.compile("|".join(re.escape(name).replace(r"\*", ".+") for name in NOT_FORWARDED), re.IGNORECASE)


def instructs_server(name: str) -> bool:
    """Return True for one of `NOT_FORWARDED`, in any case: a client or a proxy may not write it as the server does."""
    return _WITHHELD.fullmatch(name) is not None
