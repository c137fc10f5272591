"""Exact number of messages in a range of a stream, while others are published and deleted.

A range that ends below a stream's last sequence gets nothing more; it can only lose. Of a whole stream it holds as many
messages as it has sequences, but for those that the server lists as deleted. On some subjects, or where too many are
deleted to be listed, a consumer's ``num_pending`` counts: it says how many messages are from a place on, so that two
of them, at both ends, give what is between. Messages that arrive between the two questions are in one answer and not
in the other. Each answer for the range's start stands between two for its end; with the earlier of these the difference
is too large by what arrived meanwhile, with the later one it is too small by that. So each try gives a lower and an
upper bound, and where the highest lower one meets the lowest upper one, that is the number. It holds if nothing was
deleted at the same time, which the stream's own counts tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnout.nats.wire.connection import Connection
from turnout.nats.wire.positions import StoredSequences, pending_from, state_of
from turnout.nats.wire.streams import stream_info

_LISTED: Final = 10_000
"""The server lists the deleted sequences of a stream in one answer: for more than these it is not asked to."""

_TRIES: Final = 20


def count_exactly(connection: Connection, stream: str, start: int, end: int, filters: Sequence[str] = ()) -> int | None:
    """Return the number of messages from *start* up to, not including, *end*, on the subjects *filters* if given.

    Args:
        connection: to ask over.
        stream: the stream.
        start: the first sequence.
        end: the sequence behind the last; the stream has reached it.
        filters: none for all subjects.

    Returns:
        The number; None where it cannot be told: so much arrives or goes that no two answers fit together, or only a
        consumer could say it, of a stream that counts its consumers.

    Raises:
        StreamError: when there is no such stream, or it may not be asked.
    """
    if end <= start:
        return 0
    before = state_of(connection, stream)
    start = max(start, before.first)
    if not filters or ">" in filters:
        if not before.deleted:
            return max(0, end - start)
        if before.deleted <= _LISTED:
            return _less_listed(connection, stream, start, end)
    if before.consumed:
        return None
    counted = _between(connection, stream, start, end, filters)
    return None if counted is None or _lost_some(before, state_of(connection, stream)) else counted


def count_about(connection: Connection, stream: str, start: int, end: int, filters: Sequence[str] = ()) -> int:
    """Count like `count_exactly`, in two requests; messages published between them may be counted."""
    if end <= start:
        return 0
    behind = pending_from(connection, stream, end, filters)
    return max(0, pending_from(connection, stream, start, filters) - behind)


def _less_listed(connection: Connection, stream: str, start: int, end: int) -> int:
    """Count the sequences minus the listed deleted ones, from a single and thus consistent answer."""
    state = stream_info(connection, stream, deleted_details=True)["state"]
    first = max(start, int(state["first_seq"]))
    deleted: list[int] = state.get("deleted") or []
    return max(0, end - first) - sum(first <= sequence < end for sequence in deleted)


def _between(connection: Connection, stream: str, start: int, end: int, filters: Sequence[str]) -> int | None:
    least, most = 0, end - start
    earlier = pending_from(connection, stream, end, filters)
    for _ in range(_TRIES):
        whole = pending_from(connection, stream, start, filters)
        later = pending_from(connection, stream, end, filters)
        least, most = max(least, whole - later), min(most, whole - earlier)
        if least == most:
            return least
        earlier = later
    return None


def _lost_some(before: StoredSequences, after: StoredSequences) -> bool:
    """Return True if messages above the retained beginning may have been deleted between the two requests."""
    if after.deleted != before.deleted:
        return True
    # With holes, others may have been passed by the beginning while as many new ones were made.
    return bool(before.deleted) and after.first != before.first
