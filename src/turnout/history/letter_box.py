"""Dead letters of a route: the sink that holds them, and the seal of what is added to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from turnout.engine.addresses import Addresses
from turnout.engine.letter_seal import SEAL, seal
from turnout.engine.sample_records import Header
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.endpoints.letters import NewLetter, SinkLetters


@dataclass(frozen=True, slots=True)
class LetterBox:
    """Dead letters of a route.

    Attributes:
        letters: letters in the sink that holds them.
        secret: seals letters and notes; None for a route without one.
    """

    letters: SinkLetters
    secret: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, route: Route) -> Self:
        """Return the letter box of a route.

        Raises:
            ConfigError: the route sets nothing aside, or into files, or without saying why.
            StreamError: no stream takes the letters.
            ConnectionLostError: the server cannot be reached.
        """
        part = route.dead_letter
        if part is None:
            raise ConfigError([Mistake("deadLetter", f"the route {route.name} has none: it sets nothing aside")])
        if not part.context_headers:
            problem = "is false: without these headers a letter's record is unknown"
            raise ConfigError([Mistake("deadLetter.contextHeaders", problem)])
        sink, topic = Addresses(route).split(part.topic)
        letters = adapter_of(list(route.sinks.values())[sink]).letters(topic)
        if letters is None:
            raise StreamError(f"no stream takes the dead letters of {route.name}, on {topic!r}", code=404)
        return cls(letters, part.secret)

    def newest(self, count: int) -> dict[str, int]:
        """Return where about the last *count* messages begin, by stream.

        Raises:
            StreamError: the stream, or the topic, does not exist.
            ConnectionLostError: the server cannot be reached.
        """
        with self.letters.history() as history:
            share = max(1, count // max(1, len(history.streams)))
            ends = {stream: history.bounds(stream) for stream in history.streams}
            return {stream: max(end.first, end.next - share) for stream, end in ends.items()}

    def letter(
        self, headers: Sequence[Header], value: bytes, message_id: str | None = None, *, sealed: bool = True
    ) -> NewLetter:
        """Return a message to add, with the route's seal if it has a secret.

        Args:
            headers: headers of the message.
            value: its value.
            message_id: id that the server knows a repeated message by; None for none.
            sealed: False for one whose contents the route does not vouch for.
        """
        written = [(name, raw or b"") for name, raw in headers]
        if sealed and self.secret is not None:
            written.append((SEAL, seal(self.secret, headers, value).encode()))
        return NewLetter(written, value, message_id)
