"""Layers of an index as seen by its writers: each can lose subscriptions, and several can be merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.anchor_frequencies import Costs
from turnout.subscriptions.index.buckets import arranged, shift_of
from turnout.subscriptions.index.build import build, enabled
from turnout.subscriptions.index.facts import Fact, encoded, encoded_all, hash_of, hashes_of, salt_of, taker
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.text_arrays import Texts
from turnout.subscriptions.model import Subscription


class Ids:
    """Index of a segment's subscriptions by id, without an object for each; readers of an index do not need it."""

    def __init__(self, ids: Texts) -> None:
        self._ids = ids
        hashes = hashes_of([ids.raw(number) for number in range(len(ids))], 0)
        order, self._starts = arranged(hashes)
        self._order: NDArray[np.int32] = order.astype(np.int32)
        self._shift = shift_of(len(self._starts))

    def number(self, id_: str) -> int | None:
        """Return the number of a subscription; None if the id is unknown."""
        raw = encoded(id_)
        bucket = hash_of(raw, 0) >> self._shift
        for index in range(int(self._starts[bucket]), int(self._starts[bucket + 1])):
            number = int(self._order[index])
            if self._ids.raw(number) == raw:
                return number
        return None


class SegmentView:
    """Immutable view of a segment, with its tombstones and, if they are kept, its subscriptions.

    Attributes:
        segment: segment to match with.
        subscriptions: in the order of their numbers; empty if they are not kept.
        gone: deleted subscriptions, by number; None without deletions.
        left: number of subscriptions that are not deleted.
    """

    def __init__(self, segment: Segment, subscriptions: Sequence[Subscription] = (), ids: Ids | None = None) -> None:
        self.segment = segment
        self.subscriptions = subscriptions
        self.ids = Ids(segment.arrays.ids) if ids is None else ids
        self.gone: NDArray[np.bool_] | None = None
        self.left = len(segment)

    @classmethod
    def of(cls, subscriptions: Iterable[Subscription], costs: Costs) -> SegmentView:
        """Return a layer of the enabled ones of these subscriptions, and keep them; their ids have to be distinct."""
        members = tuple(enabled(subscriptions))
        return cls(build(members, costs), members)

    def without(self, ids: Iterable[str]) -> SegmentView:
        """Return the layer without the subscriptions of these ids; itself if it has none of them."""
        numbers = [number for id_ in ids if (number := self.ids.number(id_)) is not None]
        if not numbers:
            return self
        gone = np.zeros(len(self.segment), np.bool_) if self.gone is None else self.gone.copy()
        gone[numbers] = True
        left = len(gone) - int(np.count_nonzero(gone))
        if left == self.left:
            return self
        other = SegmentView(self.segment, self.subscriptions, self.ids)
        other.gone, other.left = gone, left
        return other

    def living(self) -> Iterator[Subscription]:
        """Yield the subscriptions that are not deleted."""
        if self.gone is None:
            return iter(self.subscriptions)
        return (
            subscription for subscription, gone in zip(self.subscriptions, self.gone.tolist(), strict=True) if not gone
        )


class UseCounts:
    """Frequency of texts among the subscriptions of a segment; see `anchor_frequencies.Background`."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._facts = {fact: number for number, fact in enumerate(segment.head.facts)}

    def use_counts(self, fact: Fact, texts: Sequence[str]) -> NDArray[np.int64]:
        """For each text of the fact."""
        number, uses = self._facts.get(fact), self._segment.uses
        if number is None or uses is None or len(uses) == 0:
            return np.zeros(len(texts), np.int64)
        raws = encoded_all(texts)
        hashes = hashes_of(raws, salt_of(fact))
        literals = self._segment.find(np.full(len(raws), number, np.int64), hashes, taker(raws))
        return np.where(literals > 0, uses.take(np.maximum(literals - 1, 0)), 0).astype(np.int64)
