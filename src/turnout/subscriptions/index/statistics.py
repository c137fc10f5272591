"""Statistics of an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from turnout.conditions.anchor import Anchor
from turnout.subscriptions.index.segment_view import SegmentView


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
