"""Matches of a batch for feeds: which subscriptions get which positions of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from turnout.engine.deliveries import NO_SUBSCRIPTION, OutgoingDeliveries
from turnout.records.types import ArrowBatch, RowIds

if TYPE_CHECKING:
    from turnout.subscriptions.index import Index


@dataclass(frozen=True, slots=True)
class FeedMatches:
    """Parallel columns of matches, with the index that they are of.

    Attributes:
        offsets: offsets of the records in their stream.
        subscriptions: numbers of the index.
        index: the subscriptions.
    """

    offsets: RowIds
    subscriptions: RowIds
    index: Index

    @classmethod
    def of(cls, batch: ArrowBatch, deliveries: OutgoingDeliveries, index: Index) -> Self:
        """Return the matches of deliveries that can be made; a match with several destinations may be repeated.

        Args:
            batch: the records as they were read.
            deliveries: of them.
            index: the subscriptions.
        """
        matched = deliveries.subscriptions != NO_SUBSCRIPTION
        offsets = batch.column("offset").to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(offsets[deliveries.rows[matched]], deliveries.subscriptions[matched], index)
