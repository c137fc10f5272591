"""Messages sent at a steady rate, each with the time at which it was sent.

``python -m turnout.demo.pace URL RATE COUNT`` sends flights, in a process of its own: it makes their frames, prints
``ready``, and sends when it reads a line.
"""

from __future__ import annotations

import mmap
import sys
import tempfile
import time
from array import array
from collections.abc import Iterable
from itertools import islice
from types import TracebackType
from typing import Final, Self

from turnout.nats.protocol.headers import MESSAGE_ID, encode
from turnout.nats.wire import Connection
from turnout.nats.wire.connection import frame

SENT: Final = "Sent"
"""The header with the time at which a message was sent, in seconds."""

_MARK: Final = b"Sent: "
_STAMP: Final = b"%017.6f"
_STAMP_BYTES: Final = 17
_TICK_SECONDS: Final = 0.002
"""Messages are sent in steps of this length: no bursts that a reader would take as a whole."""


class PacedMessages:
    """Frames of messages, kept in a file until they are sent, so that making them delays none of them."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._edges = array("q", [0])
        self._stamps = array("q")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, subject: str, headers: Iterable[tuple[str, str]], payload: bytes) -> None:
        """Add a message, to be sent with one more header."""
        # The first header is the time's, so that its place is known whatever the others hold.
        data = frame(subject, payload, head=encode([(SENT, _STAMP % 0), *headers]))
        self._file.write(data)
        self._stamps.append(self._edges[-1] + data.index(_MARK) + len(_MARK))
        self._edges.append(self._edges[-1] + len(data))

    def send(self, connection: Connection, rate: float) -> None:
        """Send all messages, *rate* of them a second."""
        self._file.flush()
        step = max(1, round(rate * _TICK_SECONDS))
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            begun = time.monotonic()
            for first in range(0, len(self), step):
                time.sleep(max(0.0, begun + first / rate - time.monotonic()))
                connection.send(self._stamped(data, first, min(len(self), first + step)))
        connection.ping()

    def _stamped(self, data: mmap.mmap, first: int, last: int) -> bytearray:
        """Return the frames of some messages with the present time."""
        begin = self._edges[first]
        frames = bytearray(data[begin : self._edges[last]])
        stamp = _STAMP % time.time()
        for at in self._stamps[first:last]:
            frames[at - begin : at - begin + _STAMP_BYTES] = stamp
        return frames


def serve(url: str, rate: float, messages: Iterable[tuple[str, Iterable[tuple[str, str]], bytes]]) -> None:
    """Make the frames, report it, and send them after a line on standard input."""
    with PacedMessages() as paced:
        for subject, headers, payload in messages:
            paced.add(subject, headers, payload)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        # The parent process has ended if the input ends.
        if sys.stdin.readline() and len(paced):
            with Connection.open(url) as connection:
                paced.send(connection, rate)


if __name__ == "__main__":
    from turnout.demo.flights import messages

    serve(
        sys.argv[1],
        float(sys.argv[2]),
        (
            (flight.subject, [*flight.headers, (MESSAGE_ID, flight.message_id)], flight.payload)
            for flight in islice(messages(), int(sys.argv[3]))
        ),
    )
