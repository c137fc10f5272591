"""Reads MSG and HMSG frames in bulk, for subscriptions with a frame handler.

nats-py's parser costs two regular expressions, a coroutine and a dataclass per message, which bounds a Python
client at some 40,000 messages a second. This one calls a plain function once for consecutive frames of a subscription.
It replaces nats-py's own parser (``Client._ps``), which still parses all other lines of the protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from turnout.nats.protocol.frames import largest_message

_log = logging.getLogger(__name__)

Frame: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, header block and payload of a message."""

Handler: TypeAlias = Callable[[Sequence[Frame]], None]
"""Called in the read loop with consecutive frames of a subscription: it must be quick and must not wait.

If it ends its subscription at one of them, it has to ignore the rest.
"""

_MAX_LINE_BYTES = 65536
# Of fewer frames, checking them together takes longer than one by one.
_FEW_FRAMES = 16


class FrameParser(Parser):  # type: ignore[misc, unused-ignore]
    """A parser that hands frames of registered subscriptions to their handlers.

    Args:
        client: the nats-py client that owns it.
        handlers: the handler for each subscription id, as the wire writes it.

    Attributes:
        error_line: the last ``-ERR`` as the server wrote it; nats-py passes it on in lower case.
    """

    def __init__(self, client: object, handlers: dict[bytes, Handler]) -> None:
        self._handlers = handlers
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._needed = 0
        self._generation = 0
        self._sid = b""
        self._frames: list[Frame] = []
        self.error_line = ""
        super().__init__(client)

    def reset(self) -> None:
        """Forget a half-read frame: a new connection begins."""
        super().reset()
        self._partial.clear()
        self._partial_size = 0
        self._needed = 0
        self._generation += 1

    async def parse(self, data: bytes = b"") -> None:
        """Parse data from the socket and pass on every complete frame."""
        if self._partial:
            self._partial.append(data)
            self._partial_size += len(data)
            is_open = not self._needed and b"\n" not in data and self._partial_size <= _MAX_LINE_BYTES
            if is_open or self._partial_size < self._needed:
                return
            data = b"".join(self._partial)
            self._partial.clear()
        generation = self._generation
        try:
            position, needed = await self._parse_all(data)
        except (ValueError, IndexError, TypeError) as malformed:
            raise ProtocolError("nats: malformed MSG") from malformed
        finally:
            await self._hand_over()
        if generation == self._generation and position < len(data):
            self._partial.append(data[position:])
            self._partial_size = len(data) - position
            self._needed = needed

    async def _parse_all(self, data: bytes) -> tuple[int, int]:
        """Pass on complete frames; return the offset of the rest and the size that its frame needs."""
        # One function, though it is long: a call per frame would make up a tenth of its time.
        position, received_bytes = 0, 0
        current, frames = self._sid, self._frames
        line_end = data.find(b"\r\n")
        while line_end >= 0:
            line = data[position:line_end]
            begin = line_end + 2
            if not line.startswith((b"MSG ", b"HMSG ")):
                await self._hand_over(current)
                frames = self._frames
                if await self._reconnected_by(line + b"\r\n"):
                    return len(data), 0
                position = begin
                line_end = data.find(b"\r\n", position)
                continue
            fields = line.split()
            header_size = int(fields.pop(-2)) if fields[0] == b"HMSG" else 0
            split, stop = begin + header_size, begin + int(fields[-1])
            if not begin <= split <= stop:
                # Of a negative size the next frame would be this one again.
                _refuse("malformed MSG")
            if stop + 2 > len(data):
                if stop - begin > largest_message({"max_payload": self.nc.max_payload}):
                    _refuse("a message larger than the server's limit")
                self.nc.stats["in_bytes"] += received_bytes
                return position, stop + 2 - position
            if not data.startswith(b"\r\n", stop):
                _refuse("malformed MSG")
            if fields[2] != current:
                current = fields[2]
                await self._hand_over(current)
                frames = self._frames
            reply = b"" if len(fields) == 4 else fields[3]
            frames.append((fields[1], reply, data[begin:split] if header_size else b"", data[split:stop]))
            received_bytes += stop - begin
            position = stop + 2
            line_end = data.find(b"\r\n", position)
        self.nc.stats["in_bytes"] += received_bytes
        if len(data) - position > _MAX_LINE_BYTES:
            _refuse("a protocol line without an end")
        return position, 0

    async def _hand_over(self, sid: bytes = b"") -> None:
        """Pass the collected frames to their handler; collect those of *sid* from now on."""
        frames, before = self._frames, self._sid
        self._frames, self._sid = [], sid
        if not frames:
            return
        self.nc.stats["in_msgs"] += len(frames)
        handler = self._handlers.get(before)
        if handler is None:
            for subject, reply, headers, data in frames:
                await self.nc._process_msg(int(before), subject, reply, data, headers or None)  # noqa: SLF001
            return
        try:
            handler(frames)
        except Exception:  # noqa: BLE001 - see below
            # Whatever a handler does, the connection's read loop must live: nats-py would end it in silence.
            _log.exception("frames of %r could not be handled", frames[0][0])

    async def _reconnected_by(self, line: bytes) -> bool:
        """Pass another kind of line to nats-py's parser; return True if it started a new connection."""
        generation = self._generation
        if line.startswith(b"-ERR"):
            self.error_line = line.decode("utf-8", "replace")
        await super().parse(line)
        return generation != self._generation


def replies_of_messages(frames: Sequence[Frame]) -> tuple[bytes, ...] | None:
    """Return the replies of frames that are handled together; None if they have to be handled one by one.

    These are few frames, as that takes less time, and those among which a status may be: it has headers, no payload.
    """
    if len(frames) < _FEW_FRAMES:
        return None
    _, replies, blocks, payloads = zip(*frames, strict=True)
    return replies if all(payloads) or not any(blocks) else None


def _refuse(what: str) -> NoReturn:
    raise ProtocolError(f"nats: {what}")
