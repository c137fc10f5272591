"""Finding a segment's subscription by its id, without an object for each of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.buckets import arranged, shift_of
from turnout.subscriptions.index.facts import encoded, hash_of, hashes_of
from turnout.subscriptions.index.texts import Texts


class Ids:
    """Index of a segment's subscriptions by id; writers of an index need it, readers do not."""

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
        for place in range(int(self._starts[bucket]), int(self._starts[bucket + 1])):
            number = int(self._order[place])
            if self._ids.raw(number) == raw:
                return number
        return None
