"""Status lines: server information in place of a message (``NATS/1.0 408 Request Timeout``)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from turnout.base.untrusted import decimal
from turnout.nats.protocol.headers import VERSION, Headers, parse_table

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
