"""Header blocks and status lines, as they come off the wire (``NATS/1.0 408 Request Timeout``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnout.errors import ConfigError, Mistake

__all__ = ["HeaderInput", "Headers", "Status", "encode_headers", "parse_headers"]

HeaderInput = Mapping[str, str | Sequence[str]]
Headers = dict[str, list[str]]

_VERSION = b"NATS/1.0"
_KEY = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

HEARTBEAT = 100
NO_MESSAGES = 404
REQUEST_TIMEOUT = 408
CONFLICT = 409
NO_RESPONDERS = 503


@dataclass(frozen=True, slots=True)
class Status:
    """A message that the server sends about the delivery, in place of data.

    Attributes:
        code: 100, 404, 408, 409, 503, ...; 0 where the line has no number.
        description: the text after it.
        headers: the lines below it.
        reply: where an answer goes; flow control requests have one.
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
        """The first value of a header, empty if there is none."""
        return self.headers.get(name, [""])[0]

    def number(self, name: str) -> int | None:
        """A header that holds a number; None where it does not."""
        text = self.header(name)
        return int(text) if text.isascii() and text.isdecimal() else None

    @classmethod
    def of(cls, raw: bytes, payload: bytes, reply: bytes = b"") -> Status | None:
        """The status in a header block, or None if the message is data.

        Only an empty payload *and* a status line make a status: a message whose headers include ``Status`` is data
        (ADR-15 leaves this open; a user's headers must not be mistaken for the server's).
        """
        if payload or not raw.startswith(b"NATS/1.0 "):
            return None
        line, _, rest = raw.partition(b"\r\n")
        code, _, text = line[len(_VERSION) + 1 :].partition(b" ")
        return cls(
            int(code) if code.isdigit() else 0,
            text.strip().decode("utf-8", "replace") if code.isdigit() else line.decode("utf-8", "replace"),
            _parse_lines(rest),
            reply.decode(),
        )


def _parse_lines(block: bytes) -> Headers:
    found: Headers = {}
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            found.setdefault(name.strip().decode("utf-8", "replace"), []).append(
                value.strip().decode("utf-8", "replace")
            )
    return found


def parse_headers(raw: bytes) -> Headers:
    """The headers of a block, each with its values in order; names keep their case."""
    return _parse_lines(raw.partition(b"\r\n")[2])


def encode_headers(headers: HeaderInput) -> bytes:
    r"""The header block for *headers*, with its empty line.

    Raises:
        ConfigError: a name that is no header name, or a value with a line break, which would end the header early.
    """
    lines = [_VERSION]
    mistakes = []
    for name, given in headers.items():
        if not _KEY.fullmatch(name):
            mistakes.append(Mistake(f"headers.{name}", f"{name!r} is not a header name"))
            continue
        for value in (given,) if isinstance(given, str) else given:
            if "\r" in value or "\n" in value:
                mistakes.append(Mistake(f"headers.{name}", f"the value {value!r} has a line break"))
                continue
            lines.append(f"{name}: {value}".encode())
    if mistakes:
        raise ConfigError(mistakes, what="bad headers")
    return b"\r\n".join([*lines, b"", b""])
