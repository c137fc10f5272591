"""Differences between records that both versions deliver: keys, values and headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from turnout.deferred import pc
from turnout.engine.lineage import REVISION, ROUTE
from turnout.engine.trace import Trace
from turnout.history.case_outcome import read_back
from turnout.history.delivery_comparison import SentDeliveries
from turnout.history.outcome_comparison import ABSENT, Difference, compared
from turnout.records.text import text_of
from turnout.records.types import ArrowArray, RowIds
from turnout.untrusted import JsonObject

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
        if pair["key"] == REVISION:
            # It describes the version of the subscriptions, not the message.
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
