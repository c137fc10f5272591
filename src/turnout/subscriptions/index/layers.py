"""Segments of an index as one, as its readers see them and as its writers do, and their statistics."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.conditions.anchor import Anchor
from turnout.subscriptions.index.arrays import Longs, Texts, arranged, expanded, indices_of, integers, shift_of
from turnout.subscriptions.index.build import build, enabled
from turnout.subscriptions.index.facts import Fact, encoded, encoded_all, hash_of, hashes_of, salt_of, taker
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.index.segment import Segment
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
    """Frequency of texts among the subscriptions of a segment; see `Background` of their choice."""

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


@dataclass(frozen=True, slots=True)
class IndexStats:
    """Statistics of an index.

    Attributes:
        subscriptions: how many there are.
        terms: how many entries they make.
        anchors: how many different anchors these are under.
        always: how many terms have no anchor: each of them is verified on every message.
        hottest: the anchors with the most terms, and how many; these cost most when a message has them.
        always_ids: some of the subscriptions that have a term without an anchor, by id.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import Matcher, Subscription
    >>> stats = Matcher([Subscription(["d"], parse(text), id=text) for text in ("a:1", "a:2", "NOT a:1")]).stats()
    >>> stats.subscriptions, stats.always, stats.always_ids
    (3, 1, ('NOT a:1',))
    """

    subscriptions: int
    terms: int
    anchors: int
    always: int
    hottest: tuple[tuple[Anchor, int], ...]
    always_ids: tuple[str, ...] = ()


def stats_of(views: Iterable[SegmentView], hottest: int) -> IndexStats:
    """Return the statistics of all segments together."""
    sizes: Counter[Anchor] = Counter()
    subscriptions = always = 0
    ids: list[str] = []
    for view in views:
        subscriptions += view.left
        always += _of_layer(view, sizes)
        ids += _always_of(view, hottest)
    total = sizes.total() + always
    return IndexStats(
        subscriptions, total, len(sizes), always, tuple(sizes.most_common(hottest)), tuple(sorted(ids)[:hottest])
    )


def _always_of(view: SegmentView, most: int) -> list[str]:
    """Return the ids of at most *most* subscriptions that are checked for every message."""
    segment = view.segment
    owners = np.unique(segment.arrays.entry_subscription[segment.head.always : segment.head.paired])
    if view.gone is not None:
        owners = owners[~view.gone.take(owners)]
    return [segment.arrays.ids.text(number) for number in owners[:most].tolist()]


def _of_layer(view: SegmentView, sizes: Counter[Anchor]) -> int:
    """Return the number of entries that are always verified; the others are counted by anchor."""
    segment, arrays = view.segment, view.segment.arrays
    always, paired = segment.head.always, segment.head.paired
    owner = arrays.entry_subscription
    literals = np.repeat(np.arange(len(arrays.entries_at) - 1), np.diff(arrays.entries_at))
    of_ways = np.repeat(np.arange(max(0, len(arrays.ways_at) - 1)), np.diff(arrays.ways_at))
    literals = np.concatenate([literals, of_ways.take(arrays.pair_key >> 32)])
    owners = np.concatenate([owner[:always], owner[paired:]])
    here = np.ones(len(segment), np.bool_) if view.gone is None else ~view.gone
    # An entry under several second literals counts once.
    pairs = np.unique((literals.astype(np.int64) << 32) | owners)
    distinct, counts = np.unique((pairs >> 32)[here.take(pairs & 0xFFFFFFFF)], return_counts=True)
    for literal, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        key, kind = segment.head.facts[arrays.literal_fact[literal - 1]]
        sizes[Anchor(key, kind, arrays.literal_text.text(literal - 1))] += count
    return int(np.count_nonzero(here.take(owner[always:paired])))
