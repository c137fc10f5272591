"""Interface to the dead letters of a sink: reading them, adding notes among them, and deleting them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from turnout.nats.wire.positions import StreamPosition
    from turnout.records.types import Fields
    from turnout.runtime.endpoints.adapter import SourceHistory


class NewLetter(NamedTuple):
    """Message to be added among dead letters."""

    headers: list[tuple[str, bytes]]
    value: bytes
    message_id: str | None = None


class SinkLetters(Protocol):
    """Dead letters on one topic of a sink.

    Attributes:
        stream: stream of the letters; in Kafka the topic itself.
        keeps_keys: True if letters have the keys of their records.
        deletion_problem: reason that single letters cannot be deleted; None if they can.
    """

    @property
    def stream(self) -> str: ...  # noqa: D102 - described above
    @property
    def keeps_keys(self) -> bool: ...  # noqa: D102
    @property
    def deletion_problem(self) -> str | None: ...  # noqa: D102

    def stream_of(self, row: Fields) -> str:
        """Return the stream of a letter, in Kafka ``topic:partition``."""

    def holds(self, stream: str) -> bool:
        """Return True if letters are stored in this stream, or partition."""

    def history(self) -> AbstractContextManager[SourceHistory]:
        """Open a connection to read the letters.

        Raises:
            StreamError: the stream, or the topic, does not exist.
            ConnectionLostError: the server cannot be reached.
        """

    def at(self, sequence: int) -> StreamPosition:
        """Return a sequence of the letters' stream as a position; in Kafka, the offset in each partition."""

    def add(self, letter: NewLetter, stream: str) -> None:
        """Publish a message among the letters of a stream, and wait until it is stored.

        Raises:
            StreamError: the server refuses it.
            ConnectionLostError: the server does not come back in time.
        """

    def exchange(self, added: Sequence[NewLetter], deleted: Sequence[tuple[str, int]]) -> None:
        """Publish letters and, when they are stored, delete those at some positions, as far as they are still there.

        It may be called only if there is no `deletion_problem`.

        Args:
            added: letters to publish.
            deleted: stream and sequence of each letter to delete.

        Raises:
            StreamError: the server refuses to delete, or to store a letter.
            ConnectionLostError: the server does not come back in time.
        """
