"""Segments of an index as one: the numbers of subscriptions and destinations continue from one segment to the next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.subscriptions.index.buckets import Longs, expanded, indices_of
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.text_arrays import integers

_FEW_NUMBERS = 32
"""Up to so many matches, ids or destinations are looked up one by one."""

RecordTimes: TypeAlias = "Sequence[int | None] | None"
"""Times of records, in milliseconds since 1970."""


class Matches(NamedTuple):
    """Pairs of batch row and subscription number, sorted by row, each pair once."""

    rows: Longs
    subscriptions: Longs

    def take(self, indices: Longs) -> Matches:
        """Return the pairs at *indices*, in that order."""
        return Matches(self.rows[indices], self.subscriptions[indices])


class Deliveries(NamedTuple):
    """Matches, one for each destination, sorted by row; destinations have numbers of the index too."""

    rows: Longs
    subscriptions: Longs
    destinations: Longs


class Layer(NamedTuple):
    """Segment with a mask of its deleted subscriptions; None if none is deleted."""

    segment: Segment
    gone: NDArray[np.bool_] | None = None


class Layers:
    """Segments of an index, in order.

    Args:
        layers: the segments, with their deleted subscriptions.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = tuple(layers)
        self._first = _starts(len(layer.segment) for layer in layers)
        self._first_destination = _starts(len(layer.segment.arrays.destinations) for layer in layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[tuple[Layer, int]]:
        """Yield each segment with the number of its first subscription."""
        return zip(self._layers, self._first.tolist(), strict=True)

    def subscription_count(self) -> int:
        """Return the number of subscriptions that are not deleted."""
        return sum(len(layer.segment) - (0 if layer.gone is None else int(layer.gone.sum())) for layer in self._layers)

    def unexpired(self, matches: Matches, times: RecordTimes, now: int) -> Matches:
        """Return the matches without those of expired subscriptions.

        Args:
            matches: the matches.
            times: of the record of each row; None, for all or some, is *now*.
            now: the time by the clock, in milliseconds since 1970.
        """
        if times is None:
            records = np.full(len(matches.rows), now)
        else:
            of_rows = np.array([now if time is None else time for time in times], np.int64)
            records = of_rows.take(matches.rows)
        layer_of = self._layer_of(matches.subscriptions, self._first)
        kept = np.ones(len(matches.rows), np.bool_)
        for number, (layer, first) in enumerate(self):
            if layer.segment.expires:
                indices = indices_of(layer_of == number)
                subscriptions = matches.subscriptions.take(indices) - first
                kept[indices] = layer.segment.current(subscriptions, records.take(indices), now)
        return Matches(matches.rows[kept], matches.subscriptions[kept])

    def deliveries(self, matches: Matches) -> Deliveries:
        """Return the matches, one for each destination that their subscriptions have."""
        if len(matches.rows) <= _FEW_NUMBERS:
            return self._few_deliveries(matches)
        layer_of = self._layer_of(matches.subscriptions, self._first)
        begins = np.zeros(len(matches.rows), np.int64)
        counts = np.zeros(len(matches.rows), np.int64)
        for number, (layer, first) in enumerate(self):
            indices = self._of_layer(layer_of, number)
            subscriptions = matches.subscriptions[indices] - first
            offsets = layer.segment.arrays.destinations_at
            begins[indices] = offsets.take(subscriptions)
            counts[indices] = offsets.take(subscriptions + 1) - begins[indices]
        match, entries = expanded(begins, counts)
        destinations = np.zeros(len(match), np.int64)
        layer_of_delivery = layer_of.take(match)
        for number, (layer, _) in enumerate(self):
            indices = self._of_layer(layer_of_delivery, number)
            of_segment = layer.segment.arrays.destination.take(entries[indices])
            destinations[indices] = of_segment + self._first_destination[number]
        return Deliveries(matches.rows.take(match), matches.subscriptions.take(match), destinations)

    def _few_deliveries(self, matches: Matches) -> Deliveries:
        """Return the deliveries of a few matches, one after another."""
        rows: list[int] = []
        subscriptions: list[int] = []
        destinations: list[int] = []
        for row, number in zip(matches.rows.tolist(), matches.subscriptions.tolist(), strict=True):
            layer = bisect_right(self._first, number) - 1
            arrays = self._layers[layer].segment.arrays
            subscription = number - int(self._first[layer])
            begin, end = arrays.destinations_at[subscription : subscription + 2].tolist()
            first = int(self._first_destination[layer])
            for destination in arrays.destination[begin:end].tolist():
                rows.append(row)
                subscriptions.append(number)
                destinations.append(first + destination)
        return Deliveries(*(np.array(numbers, np.int64) for numbers in (rows, subscriptions, destinations)))

    def projections(self, numbers: Longs) -> list[tuple[str, Longs]]:
        """Return each projection of some subscriptions, with the indices of those that have it."""
        found: dict[str, list[Longs]] = {}
        layer_of = self._layer_of(numbers, self._first)
        for number, (layer, first) in enumerate(self):
            arrays = layer.segment.arrays
            if not len(arrays.project):
                continue
            indices = np.flatnonzero(layer_of == number)
            projects = arrays.project.take(numbers[indices] - first)
            for project in np.unique(projects[projects >= 0]).tolist():
                found.setdefault(arrays.projects.text(project), []).append(indices[projects == project])
        return [(text, np.concatenate(indices)) for text, indices in found.items()]

    def subscription_ids(self, numbers: Longs) -> pa.StringArray:
        """Return the ids of subscriptions."""
        return self._texts(numbers, self._first, "ids")

    def destinations(self, numbers: Longs) -> pa.StringArray:
        """Return the texts of destinations."""
        return self._texts(numbers, self._first_destination, "destinations")

    def _texts(self, numbers: Longs, firsts: Longs, name: str) -> pa.StringArray:
        numbers = np.asarray(numbers, np.int64)
        if len(numbers) <= _FEW_NUMBERS:
            raws = []
            for number in numbers.tolist():
                layer = bisect_right(firsts, number) - 1
                raws.append(getattr(self._layers[layer].segment.arrays, name).raw(number - int(firsts[layer])))
            return pa.array(raws, pa.binary()).view(pa.string())
        layer_of = self._layer_of(numbers, firsts)
        parts, order = [pa.nulls(0, pa.string())], [np.zeros(0, np.int64)]
        for number, first in enumerate(firsts.tolist()):
            texts = getattr(self._layers[number].segment.arrays, name)
            indices = indices_of(layer_of == number)
            if len(indices) == len(numbers):
                return texts.strings(numbers - first)
            parts.append(texts.strings(numbers.take(indices) - first))
            order.append(indices)
        back = np.argsort(np.concatenate(order), kind="stable")
        return pa.concat_arrays(parts).take(integers(back))

    def _layer_of(self, numbers: Longs, firsts: Longs) -> Longs:
        if len(self._layers) == 1:
            return np.zeros(len(numbers), np.int64)
        return np.searchsorted(firsts, numbers, "right") - 1

    def _of_layer(self, layer_of: Longs, number: int) -> Longs | slice:
        return slice(None) if len(self._layers) == 1 else indices_of(layer_of == number)


def _starts(sizes: Iterable[int]) -> Longs:
    sizes = np.fromiter(sizes, np.int64)
    return np.cumsum(sizes) - sizes
