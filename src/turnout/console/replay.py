"""Preview of an offset reset: the records that will be read again."""

from __future__ import annotations

import json
from dataclasses import dataclass

from turnout.errors import ConfigError, Mistake
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.endpoints.adapter import Start
from turnout.server.offsets import checked_start
from turnout.server.routes import Routes
from turnout.server.sandbox import route_of
from turnout.untrusted import decimal


@dataclass(frozen=True, slots=True)
class StreamReplay:
    """Effect of a reset on one stream.

    Attributes:
        begin: the next sequence then.
        done: the next sequence now.
        end: the one behind the last message.
    """

    stream: str
    begin: int
    done: int
    end: int

    @property
    def again(self) -> int:
        """Number of processed sequences that will be read again."""
        return max(0, min(self.done, self.end) - self.begin)

    @property
    def passed(self) -> int:
        """Number of unprocessed sequences that will be skipped."""
        return max(0, self.begin - self.done)


def position_of(written: str) -> Start:
    """Parse a start position; a number is a sequence, an object has one for each stream or topic.

    >>> position_of("4711"), position_of(" latest "), position_of('{"orders": {"0": 17}}')
    (4711, 'latest', {'orders': {'0': 17}})
    """
    text = written.strip()
    number = decimal(text)
    if number is not None:
        return number
    try:
        position = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return position if isinstance(position, dict) else text


def replay_of(routes: Routes, name: str, written: str) -> list[StreamReplay]:
    """Return the effect of a reset, stream by stream; empty if the source does not report its end.

    Raises:
        ConfigError: it is no place of the source.
        ConflictError: the position of the source cannot be set.
        ConnectionLostError: its server is away.
    """
    route = route_of(routes.entry(name))
    if not written.strip():
        raise ConfigError([Mistake("to", "expected earliest, latest, a sequence or an ISO time")])
    source = route.source
    adapter = adapter_of(source)
    start = checked_start(route, position_of(written))
    if not adapter.reports_ends:
        return []
    begins = adapter.sequences(start)
    done = routes.offsets(name)
    with adapter.session() as session:
        ends = session.ends(source)
    return [
        StreamReplay(stream, max(end.first, begins[stream]), max(end.first, done.sequence(stream)), end.next)
        for stream, end in ends.items()
    ]
