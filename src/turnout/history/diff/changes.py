"""Differences in what two versions send: deliveries gained, lost and moved; keys, values and headers of a record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from turnout.base.deferred import pc
from turnout.base.untrusted import JsonObject
from turnout.engine.counts import Outcome
from turnout.engine.messages import REVISION, ROUTE, TABLES
from turnout.engine.trace import Trace
from turnout.history.suite.outcomes import ABSENT, Difference, compared, read_back
from turnout.records.text import text_of
from turnout.records.types import ArrowArray, RowIds, Strings
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


ENCODING: Final = "(encoding)"
"""Label of a change of bytes that mean the same JSON: blanks, or the order of fields."""

Change = tuple[str, object, object]
"""A path or a name, with the old value and the new one."""

_PLACE = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Delivered:
    """Records that both versions deliver, with the messages of each.

    Attributes:
        rows: rows of the batch.
        old: their indices among the old version's outgoing records.
        new: their indices among the new one's.
    """

    rows: RowIds
    old: RowIds
    new: RowIds
    traces: tuple[Trace, Trace]

    @classmethod
    def of(cls, traces: tuple[Trace, Trace], sent: tuple[SentDeliveries, SentDeliveries]) -> Delivered:
        """Return the records that both traces of one batch deliver."""
        old, new = (_outgoing(trace, deliveries) for trace, deliveries in zip(traces, sent, strict=True))
        rows = np.flatnonzero((old >= 0) & (new >= 0))
        return cls(rows, old[rows], new[rows], traces)

    def column(self, name: str) -> tuple[ArrowArray, ArrowArray]:
        """Return a column of both versions, with an item for each of the rows."""
        old, new = self.traces
        return _column_of(old, name, self.old), _column_of(new, name, self.new)

    def other(self, name: str) -> RowIds:
        """Return the indices into `rows` at which a column of bytes differs."""
        old, new = self.column(name)
        if old.equals(new):
            return np.zeros(0, np.int64)
        both = pc.fill_null(pc.not_equal(old, new), False)
        null_in_one = pc.xor(pc.is_null(old), pc.is_null(new))
        return np.flatnonzero(pc.or_(both, null_in_one).to_numpy(zero_copy_only=False))


def _outgoing(trace: Trace, sent: SentDeliveries) -> RowIds:
    """Return by row the row of its outgoing message; -1 if it has none."""
    indices = np.full(len(trace), -1, np.int64)
    indices[sent.rows] = trace.messages.rows[sent.indices]
    return indices


def _column_of(trace: Trace, name: str, indices: RowIds) -> ArrowArray:
    column = trace.messages.records.column(name)
    if len(indices) == len(column) and bool((indices == np.arange(len(indices))).all()):
        return column
    return column.take(pa.array(indices))


def value_changes(old: bytes | None, new: bytes | None) -> list[Change]:
    """Return the changes between two values with different bytes, one for each field.

    A path begins behind the value itself, which is "", and says nothing of the places in lists.

    >>> value_changes(b'{"a": {"b": 1}, "c": [1, 2]}', b'{"a": {"b": 2}, "c": [1, 3]}')
    [('a.b', 1, 2), ('c[]', 2, 3)]
    >>> value_changes(b'{"a": 1}', b'{"a":1}')
    [('(encoding)', '{"a": 1}', '{"a":1}')]
    """
    if old is None or new is None:
        return [("", ABSENT if old is None else read_back(old), ABSENT if new is None else read_back(new))]
    changes: dict[str, Change] = {}
    for difference in _differences(old, new):
        path = _PLACE.sub("[]", difference.path).removeprefix(".")
        changes.setdefault(path, (path, difference.expected, difference.actual))
    return list(changes.values()) or [(ENCODING, _readable(old), _readable(new))]


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _differences(old: bytes, new: bytes) -> Iterator[Difference]:
    """Yield the differences of two values; of objects, only fields whose texts differ are parsed."""
    try:
        before, after = _fields(old), _fields(new)
    except (ValueError, RecursionError):
        yield from compared("", read_back(old), read_back(new), exact=True)
        return
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one != other:
            yield from compared(f".{name}", _read(one), _read(other), exact=True)


def _read(raw: msgspec.Raw | None) -> object:
    return ABSENT if raw is None else read_back(bytes(raw))


def _readable(raw: bytes) -> object:
    text = text_of(raw)
    return raw if text is None else text


def header_changes(delivered: Delivered) -> Iterator[tuple[int, list[Change]]]:
    """Yield the indices into the rows with different headers, and the changes by name; values keep their order."""
    old, new = delivered.column("headers")
    for at in _other_lists(old, new).tolist():
        before, after = _by_name(old[at].as_py()), _by_name(new[at].as_py())
        changes = [
            (name, _one_or_all(before.get(name)), _one_or_all(after.get(name)))
            for name in dict.fromkeys((*before, *after))
            if before.get(name) != after.get(name)
        ]
        if changes:
            yield at, changes


def _other_lists(old: ArrowArray, new: ArrowArray) -> RowIds:
    """Return the indices at which two columns of headers differ."""
    if old.equals(new):
        return np.zeros(0, np.int64)
    sizes = [pc.fill_null(pc.list_value_length(side), 0).to_numpy(zero_copy_only=False) for side in (old, new)]
    other = sizes[0] != sizes[1]
    same = pa.array(np.flatnonzero(~other))
    lists = old.take(same), new.take(same)
    pairs = [pc.list_flatten(side) for side in lists]
    owners = same.to_numpy()[pc.list_parent_indices(lists[0]).to_numpy()]
    for part in (0, 1):
        one, two = (pc.struct_field(side, [part]) for side in pairs)
        unlike = pc.or_(pc.fill_null(pc.not_equal(one, two), False), pc.xor(pc.is_null(one), pc.is_null(two)))
        other[owners[unlike.to_numpy(zero_copy_only=False)]] = True
    return np.flatnonzero(other)


def _by_name(pairs: list[JsonObject] | None) -> dict[str, list[bytes | None]]:
    by_name: dict[str, list[bytes | None]] = {}
    for pair in pairs or ():
        if pair["key"] in (REVISION, TABLES):
            # They describe the version of the subscriptions and tables, not the message.
            continue
        value = pair["value"]
        if pair["key"] == ROUTE and value is not None:
            # Two versions have two digests, and say nothing else by them.
            value = value.rpartition(b"@")[0]
        by_name.setdefault(pair["key"], []).append(value)
    return by_name


def _one_or_all(values: list[bytes | None] | None) -> object:
    if values is None:
        return ABSENT
    texts = [None if raw is None else _readable(raw) for raw in values]
    return texts[0] if len(texts) == 1 else [text if isinstance(text, str | None) else repr(text) for text in texts]
