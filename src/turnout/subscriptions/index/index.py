"""The index of all subscriptions at one revision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.clocks import milliseconds_now
from turnout.base.multivalued import Metadata
from turnout.subscriptions.index.arrays import Indices, Ints, indices_of
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.flat_messages import Column, FlatMessages, KeyNumbers
from turnout.subscriptions.index.layers import Deliveries, Layer, Layers, Matches, RecordTimes
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import Snapshot
from turnout.subscriptions.store import Store

ROWS = 16384
"""Rows of a batch that are processed at a time."""


class Index:
    """All subscriptions of one revision. It is never changed, and safe to use from several threads.

    Attributes:
        revision: revision of the store.
        keys: those of leaves: metadata keys that some condition tests, and `turnout.base.multivalued.ANY_KEY`.
        expires: whether some subscription expires: only then times are checked.
        projects: whether some subscription has a projection.
    """

    def __init__(self, layers: Sequence[Layer], revision: int) -> None:
        self.revision = revision
        self.keys: tuple[str, ...] = tuple(dict.fromkeys(key for layer in layers for key in layer.segment.head.keys))
        varied = frozenset[str]().union(*(layer.segment.varied_keys for layer in layers))
        self._key_numbers = KeyNumbers(self.keys, varied)
        self._layers = Layers(layers)
        self._keys_of = [_keys_of(self.keys, layer.segment.head.keys) for layer in layers]
        self.expires = any(layer.segment.expires for layer in layers)
        self.projects = any(len(layer.segment.arrays.project) for layer in layers)

    @classmethod
    def of(
        cls,
        subscriptions: Iterable[Subscription] | Snapshot | Store,
        *,
        sample: Collection[Mapping[str, str]] = (),
    ) -> Index:
        """An index in memory of these subscriptions, or of everything in a store.

        Args:
            subscriptions: no two of the same id.
            sample: metadata of typical messages: look-ups prefer values that are rare in it.
        """
        if isinstance(subscriptions, Store):
            subscriptions = subscriptions.snapshot()
        revision = subscriptions.revision if isinstance(subscriptions, Snapshot) else 0
        segment = build(subscriptions, Costs(sample))
        # Now: the first message would wait for it.
        _ = segment.matcher
        return cls([Layer(segment)], revision)

    @classmethod
    def open(cls, folder: Path, revision: int) -> Index:
        """The index that an `IndexFolder` wrote for this revision, mapped into memory.

        Raises:
            IndexFileError: one of its files is missing, damaged or of another version.
        """
        from turnout.subscriptions.index.manifest import open_index

        return open_index(folder, revision)

    def __len__(self) -> int:
        return self._layers.subscription_count()

    def match(
        self,
        columns: Mapping[str, Column],
        count: int,
        alive: Sequence[int] | NDArray[np.generic] | None = None,
        *,
        times: RecordTimes = None,
        now: int | None = None,
    ) -> Matches:
        """The subscriptions that each row of a batch matches.

        Args:
            columns: metadata by the keys of leaves, one value for each row; keys that no condition tests are passed
                over.
            count: how many rows there are.
            alive: the rows to match, in ascending order, or a mask of them; None for all.
            times: of each row's record, in milliseconds since 1970, for subscriptions that expire; None, for all or
                some, is now.
            now: the time by the clock, in milliseconds since 1970, if not that of this machine.
        """
        rows = _rows_of(alive, count)
        parts = []
        for begin in range(0, len(rows), ROWS):
            some = rows[begin : begin + ROWS]
            found = self._matched(self._key_numbers.of_columns(columns, some))
            parts.append(Matches(some.take(found.rows), found.subscriptions))
        return self._current(_joined(parts), times, now)

    def match_messages(
        self, messages: Sequence[Metadata], *, times: RecordTimes = None, now: int | None = None
    ) -> Matches:
        """Return the subscriptions that each message, given by its metadata, matches; see `match`."""
        parts = []
        for begin in range(0, len(messages), ROWS):
            found = self._matched(self._key_numbers.of_messages(messages[begin : begin + ROWS]))
            parts.append(Matches(found.rows + begin, found.subscriptions) if begin else found)
        return self._current(_joined(parts), times, now)

    def _matched(self, flat: FlatMessages) -> Matches:
        """Return the matches of messages, those with expired subscriptions too."""
        parts = []
        for ((segment, gone), first), key_of in zip(self._layers, self._keys_of, strict=True):
            rows, subscriptions = segment.matcher.matched(flat, key_of)
            if gone is not None and len(rows):
                here = indices_of(~gone.take(subscriptions))
                rows, subscriptions = rows.take(here), subscriptions.take(here)
            parts.append(Matches(rows, subscriptions + first if first else subscriptions))
        found = _joined(parts)
        if len(parts) < 2:
            return found
        # Sixteen bits are sorted by counting.
        return found.take(np.argsort(found.rows.astype(np.uint16), kind="stable"))

    def match_one(self, message: Metadata) -> list[list[int]]:
        """Return the subscriptions that one message matches, by segment, deleted and expired ones too."""
        flat = self._key_numbers.of_messages((message,))
        return [matched_one(flat, key_of) for matched_one, key_of in self._matchers_of_one]

    @cached_property
    def _matchers_of_one(self) -> list[tuple[Callable[[FlatMessages, Ints], list[int]], Ints]]:
        """The matchers of a message by segment, each with the segment's numbers of keys."""
        layers = (layer for layer, _ in self._layers)
        return [
            (layer.segment.matcher.matched_one, key_of) for layer, key_of in zip(layers, self._keys_of, strict=True)
        ]

    def _current(self, matches: Matches, times: RecordTimes, now: int | None) -> Matches:
        """Return the matches without those of expired subscriptions."""
        if not self.expires or not len(matches.rows):
            return matches
        return self._layers.unexpired(matches, times, milliseconds_now() if now is None else now)

    def deliveries(self, matches: Matches) -> Deliveries:
        """Return the matches, one for each destination that their subscriptions have."""
        return self._layers.deliveries(matches)

    def projections(self, numbers: NDArray[np.int64]) -> list[tuple[str, NDArray[np.int64]]]:
        """Return each projection of some subscriptions, with the indices of those that have it."""
        return self._layers.projections(numbers)

    def subscription_ids(self, numbers: NDArray[np.int64]) -> pa.StringArray:
        """Return the ids of subscriptions."""
        return self._layers.subscription_ids(numbers)

    def destinations(self, numbers: NDArray[np.int64]) -> pa.StringArray:
        """Return the texts of destinations."""
        return self._layers.destinations(numbers)


def _keys_of(keys: Sequence[str], own: Sequence[str]) -> NDArray[np.int32]:
    """Return the number of each key among others, -1 for none; the last one is for unknown keys."""
    numbers = {key: number for number, key in enumerate(own)}
    key_of = np.array([*(numbers.get(key, -1) for key in keys), -1], np.int32)
    key_of.flags.writeable = False
    return key_of


def _joined(parts: Sequence[Matches]) -> Matches:
    """Return all matches in one."""
    if len(parts) == 1:
        return parts[0]
    none = np.zeros(0, np.int64)
    return Matches(
        np.concatenate([none, *(part.rows for part in parts)]),
        np.concatenate([none, *(part.subscriptions for part in parts)]),
    )


def _rows_of(alive: Sequence[int] | NDArray[np.generic] | None, count: int) -> Indices:
    if alive is None:
        return np.arange(count)
    rows = np.asarray(alive)
    return indices_of(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
