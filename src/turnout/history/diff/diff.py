"""Comparison of two versions of a route on the same records: the outcome of each record, and what is sent for it."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from turnout.base.startup import pc
from turnout.base.untrusted import JsonObject
from turnout.engine import Program, pieces
from turnout.engine.counts import Outcome
from turnout.engine.messages import REVISION, ROUTE, TABLES
from turnout.engine.trace import Trace
from turnout.errors import ConfigError, Mistake
from turnout.history.diff.differences import (
    Cost,
    Differences,
    EndNumbers,
    Example,
    Examples,
    Matrix,
    OutcomeWatch,
    RecordPositions,
    Tally,
    text_of_value,
)
from turnout.history.diff.report import DiffReport
from turnout.history.suite.outcomes import ABSENT, Difference, compared, read_back
from turnout.records.text import text_of
from turnout.records.types import ArrowArray, ArrowBatch, RowIds, Strings
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.preflight import preflight_of_reachable
from turnout.subscriptions.import_set import Effect
from turnout.subscriptions.index import Index
from turnout.subscriptions.past import Snapshot


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


@dataclass(frozen=True, slots=True)
class Traced:
    """Result of one version for a batch.

    Attributes:
        trace: trace of the batch.
        watch: has watched it.
        labels: names of the version's sinks in addresses.
        letters_to: the topic of its dead letters; None where it has none.
        cost: cost of the batch.
    """

    trace: Trace
    watch: OutcomeWatch
    labels: tuple[str, ...] = ("",)
    letters_to: str | None = None
    cost: Cost = field(default_factory=Cost)


def compare(old: Traced, new: Traced, batch: ArrowBatch, *, examples: int = 5) -> Differences:
    """Compare the results of two versions for the records of a batch.

    Args:
        old: outcome of the old version.
        new: outcome of the new version.
        batch: the records as they were read.
        examples: how many are kept of each kind.
    """
    assert len(old.trace) == len(new.trace) == batch.num_rows, "both versions have the same records"
    return _BatchDiff(old, new, batch, examples).differences()


class Diff:
    """Two versions of a route, one batch after the other; it keeps what their programs learn between batches.

    Args:
        old: the old version.
        new: the new one.
        examples: how many are kept of each kind.
    """

    def __init__(self, old: Route, new: Route, *, examples: int = 5) -> None:
        old_labels, new_labels = sink_labels(old, new)
        self._old, self._new = _Version(old, tuple(old_labels)), _Version(new, tuple(new_labels))
        self._examples = examples
        self._new_first = False

    def of(self, batch: ArrowBatch, old_index: Index | None = None, new_index: Index | None = None) -> Differences:
        """Run both versions on a batch and compare the results.

        Args:
            batch: as for `Program.run`.
            old_index: the old version's subscriptions; None for a route without.
            new_index: likewise of the new one.
        """
        # The first version runs with cold caches: they alternate, so that their costs can be compared.
        self._new_first = not self._new_first
        if self._new_first:
            new = self._new.traced(batch, new_index)
            old = self._old.traced(batch, old_index)
        else:
            old = self._old.traced(batch, old_index)
            new = self._new.traced(batch, new_index)
        return compare(old, new, batch, examples=self._examples)


class _Version:
    """A version's program, with a watch.

    Args:
        route: the version.
        labels: labels of its sinks.
    """

    def __init__(self, route: Route, labels: tuple[str, ...]) -> None:
        self._program = Program.of(route)
        self._labels = labels
        self._letters_to = None if route.dead_letter is None else route.dead_letter.topic

    def traced(self, batch: ArrowBatch, index: Index | None) -> Traced:
        """Run the version on a batch; the result contains its cost."""
        watch = OutcomeWatch()
        begun = time.thread_time_ns()
        trace = self._program.trace(batch, index, watch)
        cost = Cost(time.thread_time_ns() - begun)
        return Traced(trace, watch, self._labels, self._letters_to, cost)


class _BatchDiff:
    """Comparison of one batch, whose steps collect changed rows and examples.

    Args:
        old: outcome of the old version.
        new: outcome of the new version.
        batch: the records as they were read.
        limit: how many examples are kept of each kind.
    """

    def __init__(self, old: Traced, new: Traced, batch: ArrowBatch, limit: int) -> None:
        self._old, self._new = old, new
        self._positions = RecordPositions(batch)
        self._limit = limit
        self._otherwise = np.zeros(batch.num_rows, np.bool_)
        self._changed = np.zeros(batch.num_rows, np.bool_)
        self._examples: dict[tuple[str, str], list[Example]] = defaultdict(list)

    def differences(self) -> Differences:
        """Return the differences of the batch."""
        old, new = self._old.trace, self._new.trace
        sent = SentDeliveries.of(old, self._old.labels), SentDeliveries.of(new, self._new.labels)
        matrix = self._endings()
        gained, lost, moved = changed(*sent)
        for kind, changes in (("gained", gained), ("lost", lost), ("moved", moved)):
            self._deliveries(kind, changes)
        delivered = Delivered.of((old, new), sent)
        values, fields = self._values(delivered)
        keys = self._keys(delivered)
        headers, names = self._changes("header", delivered.rows, header_changes(delivered))
        failures = self._failures()
        return Differences(
            records=len(old),
            changed=int(self._changed.sum()),
            matrix=matrix,
            gained=len(gained),
            lost=len(lost),
            moved=len(moved),
            values=values,
            keys=keys,
            headers=headers,
            failures=failures,
            fields=fields,
            header_names=names,
            losers=_subscriptions(lost),
            gainers=_subscriptions(gained),
            movers=_subscriptions(moved),
            old_cost=self._old.cost,
            new_cost=self._new.cost,
            examples=Examples.of(self._limit, self._examples),
        )

    def _endings(self) -> Matrix:
        old, new = self._old, self._new
        matrix, self._otherwise, pairs = Matrix.of(EndNumbers(old.trace, old.watch), EndNumbers(new.trace, new.watch))
        self._changed |= self._otherwise
        rows = np.flatnonzero(self._otherwise)
        by_pair: dict[str, list[int]] = defaultdict(list)
        for row, (before, after) in zip(rows.tolist(), pairs, strict=True):
            by_pair[f"{before} → {after}"].append(row)
        for pair, rows_of_pair in by_pair.items():
            for row in self._first(np.array(rows_of_pair, np.int64)):
                self._show("outcome", pair, row, self._reason(old, row), self._reason(new, row))
        return matrix

    def _reason(self, version: Traced, row: int) -> object:
        failure = version.trace.failures.get(row)
        return ABSENT if failure is None else f"{failure.stage}: {failure.message}"

    def _deliveries(self, kind: str, changes: Changed) -> None:
        self._changed[changes.rows] = True
        for at in self._positions.first(changes.rows, self._limit):
            row, subscription = int(changes.rows[at]), changes.subscriptions[at]
            self._show(
                kind, "", row, _delivery(subscription, changes.old[at]), _delivery(subscription, changes.new[at])
            )

    def _values(self, delivered: Delivered) -> tuple[int, Tally]:
        indices = delivered.other("value")
        old, new = (side.take(indices).to_pylist() for side in delivered.column("value"))
        changes = (
            (at, value_changes(*pair)) for at, pair in zip(indices.tolist(), zip(old, new, strict=True), strict=True)
        )
        return self._changes("value", delivered.rows, changes)

    def _keys(self, delivered: Delivered) -> int:
        indices = delivered.other("key")
        rows = delivered.rows[indices]
        self._changed[rows] = True
        old, new = delivered.column("key")
        for at in self._positions.first(rows, self._limit):
            index = int(indices[at])
            self._show("key", "", int(rows[at]), _content(old[index].as_py()), _content(new[index].as_py()))
        return len(indices)

    def _changes(
        self, kind: str, rows: RowIds, record_changes: Iterable[tuple[int, list[Change]]]
    ) -> tuple[int, Tally]:
        """Note changes by name; return the number of changed records, and the changes by name."""
        by_name: dict[str, list[tuple[int, object, object]]] = defaultdict(list)
        counts: dict[str, int] = defaultdict(int)
        number = 0
        for at, changes in record_changes:
            number += 1
            row = int(rows[at])
            self._changed[row] = True
            for name, old, new in changes:
                counts[name] += 1
                by_name[name].append((row, old, new))
        for name, named_changes in by_name.items():
            for at in self._positions.first(np.array([row for row, _, _ in named_changes], np.int64), self._limit):
                self._show(kind, name, *named_changes[at])
        return number, Tally() + Tally(counts)

    def _failures(self) -> int:
        """Note records that fail differently, or in one version only with equal outcomes; return their number."""
        old, new = self._old, self._new
        elsewhere = old.letters_to != new.letters_to
        both = old.trace.failures.keys() & new.trace.failures.keys()
        failed = {row for row in both if elsewhere or self._reason(old, row) != self._reason(new, row)}
        failed_in_one = old.trace.failures.keys() ^ new.trace.failures.keys()
        more = np.flatnonzero(_letters(old.trace) != _letters(new.trace)).tolist()
        failed.update(row for row in (*failed_in_one, *more) if not self._otherwise[row])
        rows = sorted(failed)
        self._changed[rows] = True
        for row in self._first(np.array(rows, np.int64)):
            reasons = [self._reason(side, row) for side in (old, new)]
            if elsewhere:
                reasons = [
                    {"reason": one, "to": side.letters_to} for one, side in zip(reasons, (old, new), strict=True)
                ]
            self._show("failure", "", row, *reasons)
        return len(rows)

    def _first(self, rows: RowIds) -> Iterator[int]:
        return (int(rows[at]) for at in self._positions.first(rows, self._limit))

    def _show(self, kind: str, name: str, row: int, old: object, new: object) -> None:
        example = Example(self._positions.of(row), self._positions.topic(row), text_of_value(old), text_of_value(new))
        self._examples[kind, name].append(example)


def _delivery(subscription: str | None, address: str | None) -> object:
    if address is None:
        return ABSENT
    return {"to": address} if subscription is None else {"subscription": subscription, "to": address}


def _content(raw: bytes | None) -> object:
    return ABSENT if raw is None else read_back(raw)


def _letters(trace: Trace) -> RowIds:
    """Return the number of dead letters by row: one for a failed record, one for each failed delivery."""
    letters: RowIds = np.bincount(trace.rows[len(trace.rows) - trace.letters :], minlength=len(trace))
    return letters


def _subscriptions(changes: Changed) -> Tally:
    return Tally.of(id_ for id_ in changes.subscriptions if id_ is not None)


def import_report(route: Route, last: int, before: Snapshot, after: Snapshot, *, examples: int = 5) -> DiffReport:
    """Match the last records of a route with the subscriptions before an import and after it.

    Args:
        route: route that matches; its source keeps its records.
        last: how many sequences of each stream or partition are read.
        before: the stored subscriptions.
        after: those after the import.
        examples: how many are kept of each kind.

    Raises:
        ConfigError: the route has no subscriptions, or a source without history.
        StreamError: a stream does not exist.
        ConnectionLostError: the server is away.
    """
    if route.subscriptions is None:
        raise ConfigError([Mistake("route", f"{route.name} has no subscriptions: an import does not change it")])
    source = route.source_with_history("route")
    route, _ = preflight_of_reachable(route)
    diff, total = Diff(route, route, examples=examples), Differences()
    old, new = Index.of(before), Index.of(after)
    begun = time.monotonic()
    for batch in adapter_of(source).last_records(last):
        for piece in pieces(batch):
            total += diff.of(piece, old, new)
    seconds = time.monotonic() - begun
    return DiffReport("without the import", "with it", f"the last {last:,} of each stream", total, seconds)


def effect_of(differences: Differences) -> Effect:
    """Return the numbers of a comparison, without content of records."""
    return Effect(
        differences.records,
        differences.changed,
        differences.gained,
        differences.lost,
        differences.gainers.counts,
        differences.losers.counts,
    )
