"""Comparison of two versions' deliveries: gained, lost, and moved to another destination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from turnout.deferred import pc
from turnout.engine.outcome import Outcome
from turnout.engine.trace import Trace
from turnout.records.types import RowIds, Strings
from turnout.routes import Route


def sink_labels(old: Route, new: Route) -> tuple[list[str], list[str]]:
    """Return the labels of the sinks of two versions in addresses.

    Where one of them has a single sink, the first sinks of both are taken for the same.
    """
    both = list(old.sinks), list(new.sinks)
    if min(map(len, both)) == 1:
        return ["", *both[0][1:]], ["", *both[1][1:]]
    return both


@dataclass(frozen=True, slots=True)
class SentDeliveries:
    """The deliveries of a batch, without dead letters and without messages that a run would not reach.

    Attributes:
        indices: indices of the messages in the trace.
        rows: rows of their records.
        subscriptions: their ids; null for a record under its own topic.
        addresses: the topics, with the sink's label before them where it has one.
    """

    indices: RowIds
    rows: RowIds
    subscriptions: Strings
    addresses: Strings

    @classmethod
    def of(cls, trace: Trace, labels: Sequence[str]) -> SentDeliveries:
        """Return the deliveries of a trace."""
        count = len(trace.rows) - trace.letters
        indices, rows = np.arange(count), trace.rows[:count]
        messages = trace.messages
        subscriptions, addresses = trace.subscriptions.slice(0, count), messages.topics.slice(0, count)
        if len(labels) > 1 or labels[0]:
            leads = pa.array([f"{label}:" if label else "" for label in labels], pa.string())
            addresses = pc.binary_join_element_wise(leads.take(pa.array(messages.sinks[:count])), addresses, "")
        stopped = trace.outcomes == Outcome.STOPPED
        if not stopped.any():
            return cls(indices, rows, subscriptions, addresses)
        indices = np.flatnonzero(~stopped[rows])
        sent_indices = pa.array(indices)
        return cls(indices, rows[indices], subscriptions.take(sent_indices), addresses.take(sent_indices))


@dataclass(frozen=True, slots=True)
class Changed:
    """Deliveries that only one version makes, sorted by record, subscription and address.

    Attributes:
        rows: rows of their records.
        subscriptions: their ids; None for a record under its own topic.
        old: the address with the old version; None where it is gained.
        new: the address with the new one; None where it is lost.
    """

    rows: RowIds
    subscriptions: Sequence[str | None]
    old: Sequence[str | None]
    new: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.rows)


def changed(old: SentDeliveries, new: SentDeliveries) -> tuple[Changed, Changed, Changed]:
    """Return the deliveries that are gained, lost and moved.

    A delivery has moved where the same subscription, or the same record under its own topic, has another address.
    """
    subscriptions, addresses = _Texts.of(old.subscriptions, new.subscriptions), _Texts.of(old.addresses, new.addresses)
    if _same(old, new, subscriptions, addresses):
        return _NOTHING, _NOTHING, _NOTHING
    keys = _DeliveryKeys(subscriptions.sorted(), addresses.sorted())
    before, after = keys.keys(old, 0), keys.keys(new, len(old.rows))
    lost, gained = _without(before, after), _without(after, before)
    lost_moved, gained_moved = _paired(keys.owners(lost), keys.owners(gained))
    moved = keys.changed(lost[lost_moved], gained[gained_moved])
    lost, gained = np.delete(lost, lost_moved), np.delete(gained, gained_moved)
    return keys.changed(None, gained), keys.changed(lost, None), moved


def _without(keys: RowIds, others: RowIds) -> RowIds:
    """Return the sorted keys that remain after removing the others, with multiplicity."""
    distinct, counts = np.unique(keys, return_counts=True)
    other_keys, their_counts = np.unique(others, return_counts=True)
    at = np.searchsorted(other_keys, distinct)
    is_in_others = at < len(other_keys)
    is_in_others[is_in_others] = other_keys[at[is_in_others]] == distinct[is_in_others]
    counts[is_in_others] -= their_counts[at[is_in_others]]
    return np.repeat(distinct, np.maximum(counts, 0))


def _paired(lost: RowIds, gained: RowIds) -> tuple[RowIds, RowIds]:
    """Return the indices of lost and gained deliveries with equal owners, paired in order."""
    ranks = _ranks(lost), _ranks(gained)
    most = max((int(rank.max()) for rank in ranks if len(rank)), default=0) + 1
    _, one, other = np.intersect1d(
        lost * most + ranks[0], gained * most + ranks[1], assume_unique=True, return_indices=True
    )
    return one, other


def _ranks(owners: RowIds) -> RowIds:
    """Return for each of the sorted numbers its rank among equal ones."""
    return np.arange(len(owners)) - np.searchsorted(owners, owners)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Dictionary-encoded texts of both versions, the old version's first."""

    values: Sequence[str | None]
    codes: RowIds

    @classmethod
    def of(cls, old: Strings, new: Strings) -> _Texts:
        encoded = pa.concat_arrays([old, new]).dictionary_encode(null_encoding="encode")
        return cls(encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64))

    def sorted(self) -> _Texts:
        """Return the texts with codes in sort order, null first, independent of the batch's other texts."""
        order = sorted(range(len(self.values)), key=lambda at: (self.values[at] is not None, self.values[at] or ""))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return _Texts([self.values[at] for at in order], ranks[self.codes])


def _same(old: SentDeliveries, new: SentDeliveries, subscriptions: _Texts, addresses: _Texts) -> bool:
    """Return True if both versions make the same deliveries in the same order, the usual case."""
    count = len(old.rows)
    return (
        count == len(new.rows)
        and bool((old.rows == new.rows).all())
        and bool((subscriptions.codes[:count] == subscriptions.codes[count:]).all())
        and bool((addresses.codes[:count] == addresses.codes[count:]).all())
    )


@dataclass(frozen=True, slots=True)
class _DeliveryKeys:
    """Encoder of deliveries as integer keys, which sort by record, subscription and address."""

    subscriptions: _Texts
    addresses: _Texts

    def keys(self, sent: SentDeliveries, first: int) -> RowIds:
        """Return the keys of a version's deliveries, which start at index *first* in the texts of both versions."""
        part = slice(first, first + len(sent.rows))
        owners = sent.rows * len(self.subscriptions.values) + self.subscriptions.codes[part]
        return owners * len(self.addresses.values) + self.addresses.codes[part]

    def owners(self, keys: RowIds) -> RowIds:
        """Return record and subscription as one number."""
        return keys // len(self.addresses.values)

    def changed(self, old: RowIds | None, new: RowIds | None) -> Changed:
        """Return the changes with numbers replaced by texts."""
        keys = old if old is not None else new
        assert keys is not None, "one side has the deliveries"
        rows, subscriptions = np.divmod(self.owners(keys), len(self.subscriptions.values))
        ids = [self.subscriptions.values[at] for at in subscriptions.tolist()]
        return Changed(rows, ids, self._addresses(old, keys), self._addresses(new, keys))

    def _addresses(self, side: RowIds | None, keys: RowIds) -> Sequence[str | None]:
        if side is None:
            return [None] * len(keys)
        return [self.addresses.values[at] for at in (side % len(self.addresses.values)).tolist()]


_NOTHING = Changed(np.zeros(0, np.int64), (), (), ())
