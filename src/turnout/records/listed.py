"""A few records as lists: their record batch is made only if something needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, TypeAlias

from turnout.records.types import ArrowBatch

STREAM_ID: Final = "stream_id"
"""Column of a record batch with the stream and its identity, as origins begin: ``ORDERS.18ec3e1cf4bcb700``."""

TOPIC_ID: Final = "topic_id"
"""Column of a record batch with the id of a Kafka topic, which message ids end with; null for those without one."""

Pairs: TypeAlias = Sequence[tuple[str, "bytes | None"]]
"""Names and values of one record's headers, in order."""


class ListedRecords:
    """A few records; each Arrow array of their record batch takes as long as the work on some of them.

    Args:
        ids: by record, as all lists here: what ids of its messages begin with, see `turnout.engine.messages`.
        topics: their topics, or subjects.
        partitions: their partitions.
        offsets: offsets in them, or sequences in the stream.
        times: microseconds since 1970; None for a record without.
        keys: bytes of the keys.
        values: bytes of the values.
        headers: headers off the wire.
        make: makes the record batch of these records.
    """

    def __init__(
        self,
        ids: Sequence[str],
        topics: Sequence[str],
        partitions: Sequence[int],
        offsets: Sequence[int],
        times: Sequence[int | None],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Pairs],
        make: Callable[[], ArrowBatch],
    ) -> None:
        self.ids = ids
        self.topics = topics
        self.partitions = partitions
        self.offsets = offsets
        self.times = times
        self.keys = keys
        self.values = values
        self.headers = headers
        self._make = make

    @property
    def num_rows(self) -> int:
        """Number of records."""
        return len(self.topics)

    @cached_property
    def batch(self) -> ArrowBatch:
        """The records as a record batch."""
        return self._make()


def as_batch(records: ArrowBatch | ListedRecords) -> ArrowBatch:
    """Return the record batch of some records."""
    return records.batch if isinstance(records, ListedRecords) else records
