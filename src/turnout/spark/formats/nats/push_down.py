"""Reading of only the subjects that subscriptions can match: narrowed splits, and the number of unread messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from turnout.nats.wire import Connection
from turnout.nats.wire.positions import count_exactly
from turnout.spark.formats.nats.reading import Split, planned

_log = logging.getLogger(__name__)


def only(
    connection: Connection, splits: Sequence[Split], filters: tuple[str, ...], own: Sequence[str]
) -> Sequence[Split]:
    """Return the splits of one range, read on *filters* alone.

    What is not read is what the range holds on the source's own subjects, as it is planned, without what is read of it.
    So a message that is deleted after that, before it is read, counts as not read; one that was deleted before is in
    neither number, as without filters.

    Args:
        connection: to count over.
        splits: they follow each other.
        filters: the subjects that can be wanted; none for nothing at all.
        own: the subjects of the source; none for all.

    Returns:
        The splits as they were, to be read whole, where the server does not tell exactly how many messages there are.
    """
    if not splits:
        return splits
    first, last = splits[0], splits[-1]
    counted = count_exactly(connection, first.stream, first.start, last.end, own)
    if counted is None:
        whole = "stream %r: sequences %d to %d are read whole: the server gives no exact count of them now"
        _log.info(whole, first.stream, first.start, last.end - 1)
        return splits
    if not filters:
        # One task says so.
        splits = [Split(first.stream, first.start, last.end, revision=first.revision)]
    narrowed = [replace(part, filters=filters, counted=0 if number else counted) for number, part in enumerate(splits)]
    return planned(narrowed, connection, filters)
