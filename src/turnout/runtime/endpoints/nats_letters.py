"""Dead letters in a stream of NATS."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final

from turnout.errors import StreamError
from turnout.nats.protocol.forwarded_headers import instructs_server
from turnout.nats.protocol.headers import NAME_RULE, UNFIT_NAME
from turnout.nats.wire import Connection, ConnectionOptions, Publisher, streams_of
from turnout.records.types import Fields
from turnout.runtime.endpoints.letters import NewLetter
from turnout.runtime.endpoints.nats_history import NatsHistory

_log = logging.getLogger(__name__)
_NO_MESSAGE: Final = 10037


@dataclass(frozen=True, slots=True)
class NatsLetters:
    """Dead letters on one subject; see `turnout.runtime.endpoints.letters.SinkLetters`."""

    options: ConnectionOptions
    stream: str
    topic: str

    keeps_keys: ClassVar[bool] = False
    deletion_problem: ClassVar[str | None] = None

    @classmethod
    def find(cls, options: ConnectionOptions, stream: str | None, topic: str) -> NatsLetters | None:
        """Return the letters on a subject, in the stream that takes it if none is named; None if there is none."""
        if stream is None:
            with Connection.open(options) as connection:
                stream = next(iter(streams_of(connection, topic)), None)
        return None if stream is None else cls(options, stream, topic)

    def stream_of(self, row: Fields) -> str:  # noqa: ARG002 - there is one
        """Return the stream."""
        return self.stream

    def holds(self, stream: str) -> bool:
        """Return True for the stream."""
        return stream == self.stream

    @contextmanager
    def history(self) -> Iterator[NatsHistory]:
        """Open a connection to read the letters."""
        with Connection.open(self.options) as connection:
            yield NatsHistory(connection, [self.stream], (self.topic,))

    def at(self, sequence: int) -> int:
        """Return the sequence."""
        return sequence

    def add(self, letter: NewLetter, stream: str) -> None:  # noqa: ARG002 - there is one
        """Publish a message among the letters, and wait until it is stored."""
        self.exchange([letter], [])

    def exchange(self, added: Sequence[NewLetter], deleted: Sequence[tuple[str, int]]) -> None:
        """Publish letters and, when they are stored, delete those at some positions, as far as they are still there."""
        with Connection.open(self.options) as connection:
            with Publisher(connection, allow=(self.topic,)) as publisher:
                for headers, value, message_id in added:
                    # A letter may be older than the rule for names.
                    bad_names = [name for name, _ in headers if UNFIT_NAME.search(name)]
                    # Instructions to the server were about the record's message: here they would remove other
                    # letters, or let this one expire.
                    fitting = [pair for pair in headers if pair[0] not in bad_names and not instructs_server(pair[0])]
                    if bad_names:
                        left_out = ", ".join(map(repr, bad_names))
                        _log.warning(
                            "a letter is stored on %r without the headers %s: %s", self.topic, left_out, NAME_RULE
                        )
                    publisher.publish(self.topic, value, fitting, message_id=message_id)
            for stream, sequence in deleted:
                _delete(connection, stream, sequence)


def _delete(connection: Connection, stream: str, sequence: int) -> None:
    try:
        connection.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
    except StreamError as failure:
        # Deleted already, by another redrive or a limit of the stream.
        if failure.err_code != _NO_MESSAGE and failure.code != 404:
            raise
