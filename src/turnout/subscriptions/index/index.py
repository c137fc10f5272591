"""The index of all subscriptions at one revision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.epoch import milliseconds_now
from turnout.multivalued import ANY_KEY, MAX_VALUES, Expanded, Metadata, Multivalued, is_plain_key
from turnout.subscriptions.index.anchor_frequencies import Costs
from turnout.subscriptions.index.any_value import AnyCodes, asks_numbers, matched_any
from turnout.subscriptions.index.buckets import Indices, TooManyError, indices_of
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.dictionary import DictionaryCache, ValueDictionaries
from turnout.subscriptions.index.layers import Deliveries, Layer, Layers, Matches, RecordTimes
from turnout.subscriptions.index.match_any import any_of
from turnout.subscriptions.index.match_batch import joined, matched
from turnout.subscriptions.index.match_one import MOST_CANDIDATES, single_of
from turnout.subscriptions.index.match_several import several_of
from turnout.subscriptions.index.message_columns import (
    Column,
    columns_of,
    columns_of_special,
    has_number,
    have_several,
    messages_of,
)
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.snapshot import Snapshot
from turnout.subscriptions.store import Store

ROWS = 16384
"""Rows of a batch that are processed at a time."""


_FEW_ROWS = 24
"""Up to so many rows are matched one after another, where each finds at most `_CANDIDATES_OF_FEW` entries to verify."""

_CANDIDATES_OF_FEW = 64

_SKIPPED_BATCHES = 16
"""After a batch whose rows found more than that, so many are matched with all rows together, without an attempt."""

_VERY_FEW_ROWS = 4
"""Up to so many rows are matched one after another even where each finds many entries."""


_MOST_ANY = 1 << 19
"""Values under `ANY_KEY` of the rows that are processed at a time; rows are halved until they have no more."""

_Messages: TypeAlias = "Sequence[Mapping[str, str]]"


class Index:
    """All subscriptions of one revision. It is never changed, and safe to use from several threads.

    Attributes:
        revision: revision of the store.
        keys: those of leaves: metadata keys that some condition tests, and `turnout.multivalued.ANY_KEY`.
        expires: whether some subscription expires: only then times are checked.
        projects: whether some subscription has a projection.
    """

    def __init__(self, layers: Sequence[Layer], revision: int, dictionary_cache: DictionaryCache | None = None) -> None:
        self.revision = revision
        self.keys: tuple[str, ...] = tuple(dict.fromkeys(key for layer in layers for key in layer.segment.head.keys))
        self._special = tuple(key for key in self.keys if not is_plain_key(key))
        self._numbers_of_any = any(asks_numbers(layer.segment) for layer in layers)
        self._layers = Layers(layers)
        self._dictionary_cache = dictionary_cache or DictionaryCache()
        self._batches_to_skip = 0
        self.expires = any(layer.segment.expires for layer in layers)
        self.projects = any(len(layer.segment.arrays.project) for layer in layers)
        segments = [layer.segment for layer in layers]
        self._direct: set[str] = set()
        self._coded: set[str] = set()
        for segment in segments:
            for key, is_direct in zip(segment.head.keys, segment.direct_keys.tolist(), strict=True):
                (self._direct if is_direct else self._coded).add(key)

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
        # Now: the first message of a small batch would wait for it.
        single_of(segment)
        return cls([Layer(segment)], revision)

    @classmethod
    def open(cls, folder: Path, revision: int) -> Index:
        """The index that an `IndexFolder` wrote for this revision, mapped into memory.

        Raises:
            IndexFileError: one of its files is missing, damaged or of another version.
        """
        from turnout.subscriptions.index.open_index import open_index

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
        return self._current(self._of_columns(columns, rows, whole=len(rows) == count), times, now)

    def _of_columns(self, columns: Mapping[str, Column], rows: Indices, *, whole: bool) -> Matches:
        """Match rows of a batch."""
        several = [column for key in self.keys if (column := columns.get(key)) is not None and column.several]
        if not several:
            return self._of_single(columns, rows, whole=whole)
        of_any = columns.get(ANY_KEY)
        if of_any is None or not of_any.several or len(rows) <= _FEW_ROWS:
            return self._of_some_several(columns, rows, several)
        others = [column for column in several if column is not of_any]
        separate = have_several(others, rows)
        if self._numbers_of_any:
            separate |= np.array([has_number(of_any.values[row]) for row in rows.tolist()], np.bool_)
        if not separate.any():
            return self._of_many(columns, rows, whole=whole)
        found = self._of_many(columns, rows[~separate], whole=False)
        return _merged(found, self._of_several_rows(columns, rows[separate]))

    def _of_single(self, columns: Mapping[str, Column], rows: Indices, *, whole: bool) -> Matches:
        """Match rows without several values of a key."""
        if len(rows) <= _FEW_ROWS:
            few = self._of_few(messages_of(columns, self.keys, rows.tolist()))
            if few is not None:
                return Matches(rows.take(few.rows), few.subscriptions)
        return self._of_many(columns, rows, whole=whole)

    def _of_some_several(self, columns: Mapping[str, Column], rows: Indices, several: Sequence[Column]) -> Matches:
        """Match rows, some of which have several values of a key: these one after another, the others as usual."""
        separate = have_several(several, rows)
        # With at most one value of each key, `AnyCodes`, which knows no numbers, is not needed.
        single = {key: column._replace(several=False) for key, column in columns.items()}
        found = self._of_single(single, rows[~separate], whole=False)
        return _merged(found, self._of_several_rows(columns, rows[separate]))

    def _of_several_rows(self, columns: Mapping[str, Column], rows: Indices) -> Matches:
        """Match rows with several values of a key, one after another."""
        few = rows.tolist()
        return self._of_several(few, map(Expanded, messages_of(columns, self.keys, few)))

    def _of_several(self, rows: Iterable[int], messages: Iterable[Multivalued]) -> Matches:
        """Match messages with several values of a key, one after another."""
        found_rows: list[int] = []
        found: list[int] = []
        for row, message in zip(rows, messages, strict=True):
            for (segment, gone), first in self._layers:
                numbers = several_of(segment).matched_several(message)
                found += [first + number for number in numbers if gone is None or not gone[number]]
            found_rows += [row] * (len(found) - len(found_rows))
        return Matches(np.array(found_rows, np.int64), np.array(found, np.int64))

    def match_messages(
        self, messages: Sequence[Metadata], *, times: RecordTimes = None, now: int | None = None
    ) -> Matches:
        """Return the subscriptions that each message, given by its metadata, matches; see `match`."""
        if self._special:
            if (few := self._of_few_with_any(messages)) is not None:
                return self._current(few, times, now)
            columns = columns_of_special(messages, self.keys, self._special)
            return self.match(columns, len(messages), times=times, now=now)
        if Multivalued not in set(map(type, messages)):
            return self._current(self._of_messages(cast("_Messages", messages)), times, now)
        several = {row: message for row, message in enumerate(messages) if isinstance(message, Multivalued)}
        others = [row for row in range(len(messages)) if row not in several]
        found = self._of_messages([cast("Mapping[str, str]", messages[row]) for row in others])
        found = Matches(np.array(others, np.int64).take(found.rows), found.subscriptions)
        return self._current(_merged(found, self._of_several(several.keys(), several.values())), times, now)

    def _of_few_with_any(self, messages: Sequence[Metadata]) -> Matches | None:
        """Match a few messages of which leaves test all values together; None where that is not possible."""
        if self._special != (ANY_KEY,) or len(messages) > _FEW_ROWS:
            return None
        if any(isinstance(message, Multivalued) or len(message) > MAX_VALUES for message in messages):
            return None
        return self._of_few(cast("_Messages", messages))

    def _of_messages(self, messages: _Messages) -> Matches:
        """Match messages without several values of a key."""
        few = self._of_few(messages) if len(messages) <= _FEW_ROWS else None
        return few or self._of_many(columns_of(messages, self.keys), np.arange(len(messages)), whole=True)

    def _current(self, matches: Matches, times: RecordTimes, now: int | None) -> Matches:
        """Return the matches without those of expired subscriptions."""
        if not self.expires or not len(matches.rows):
            return matches
        return self._layers.unexpired(matches, times, milliseconds_now() if now is None else now)

    def _of_few(self, messages: Sequence[Mapping[str, str]]) -> Matches | None:
        """Match one message after another; None if they find so much that all at once take less time."""
        most = MOST_CANDIDATES
        if len(messages) > _VERY_FEW_ROWS:
            most = _CANDIDATES_OF_FEW
            self._batches_to_skip -= 1
            if self._batches_to_skip > 0:
                return None
        layers = [(any_of(segment) or single_of(segment), gone, first) for (segment, gone), first in self._layers]
        rows: list[int] = []
        subscriptions: list[int] = []
        try:
            for row, message in enumerate(messages):
                for single, gone, first in layers:
                    numbers = single.matched(message, most)
                    subscriptions += [first + number for number in numbers if gone is None or not gone[number]]
                rows += [row] * (len(subscriptions) - len(rows))
        except TooManyError:
            self._batches_to_skip = _SKIPPED_BATCHES
            return None
        return Matches(np.array(rows, np.int64), np.array(subscriptions, np.int64))

    def _of_many(self, columns: Mapping[str, Column], rows: Indices, *, whole: bool) -> Matches:
        dictionaries = self._dictionary_cache.dictionaries(self.keys)
        parts = [
            self._of_rows(columns, rows[begin : begin + ROWS], dictionaries, whole=whole)
            for begin in range(0, len(rows), ROWS)
        ]
        if len(parts) == 1:
            return parts[0]
        none = np.zeros(0, np.int64)
        return Matches(
            np.concatenate([none, *(part.rows for part in parts)]),
            np.concatenate([none, *(part.subscriptions for part in parts)]),
        )

    def _of_rows(
        self, columns: Mapping[str, Column], rows: Indices, dictionaries: ValueDictionaries, *, whole: bool
    ) -> Matches:
        codes, texts, of_any = {}, {}, None
        for key in self.keys:
            column = columns.get(key)
            if column is None:
                continue
            values = column.values
            if key == ANY_KEY and column.several:
                of_any = AnyCodes.of(dictionaries, [values[row] for row in rows.tolist()])
                if len(of_any.codes) > _MOST_ANY and len(rows) > 1:
                    return self._of_halves(columns, rows, dictionaries)
                continue
            column = column.part(slice(rows[0], rows[-1] + 1)) if whole else column.of_rows(rows.tolist())
            if column.text is None and key in self._direct:
                texts[key] = column
            if column.text is not None or key in self._coded:
                of_rows = dictionaries.dictionary(key).codes(column)
                # A key that no row has need not be looked up.
                if of_rows.any():
                    codes[key] = of_rows
        pairs = []
        for (segment, gone), first in self._layers:
            direct = {}
            if texts:
                keys = enumerate(segment.head.keys)
                direct = {number: texts[key] for number, key in keys if segment.direct_keys[number] and key in texts}
            codes_by_key = [
                None if number in direct else codes.get(key) for number, key in enumerate(segment.head.keys)
            ]
            if of_any is not None and ANY_KEY in segment.head.keys:
                batch_rows, subscriptions = matched_any(
                    segment, dictionaries.tables(segment), codes_by_key, len(rows), direct, of_any
                )
            else:
                batch_rows, subscriptions = matched(
                    segment, dictionaries.tables(segment), codes_by_key, len(rows), direct
                )
            if gone is not None and len(batch_rows):
                here = indices_of(~gone.take(subscriptions))
                batch_rows, subscriptions = batch_rows.take(here), subscriptions.take(here)
            pairs.append((batch_rows, subscriptions + first))
        batch_rows, subscriptions = joined(pairs)
        # Sixteen bits are sorted by counting.
        order = np.argsort(batch_rows.astype(np.uint16), kind="stable")
        return Matches(rows.take(batch_rows.take(order)), subscriptions.take(order))

    def _of_halves(self, columns: Mapping[str, Column], rows: Indices, dictionaries: ValueDictionaries) -> Matches:
        middle = len(rows) // 2
        first, second = (
            self._of_rows(columns, half, dictionaries, whole=False) for half in (rows[:middle], rows[middle:])
        )
        return _merged(first, second)

    def match_one(self, segment: Segment, metadata: Mapping[str, str]) -> list[int]:
        """Return the subscriptions of one of the index's segments that a message matches, deleted ones too."""
        dictionaries = self._dictionary_cache.dictionaries(self.keys)
        codes = [
            None if (value := metadata.get(key)) is None else dictionaries.dictionary(key).codes(Column([value]))
            for key in segment.head.keys
        ]
        numbers: list[int] = matched(segment, dictionaries.tables(segment), codes, 1)[1].tolist()
        return numbers

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


def _merged(first: Matches, second: Matches) -> Matches:
    """Return the matches of different rows in one, sorted by row."""
    rows = np.concatenate([first.rows, second.rows])
    order = np.argsort(rows, kind="stable")
    return Matches(rows.take(order), np.concatenate([first.subscriptions, second.subscriptions]).take(order))


def _rows_of(alive: Sequence[int] | NDArray[np.generic] | None, count: int) -> Indices:
    if alive is None:
        return np.arange(count)
    rows = np.asarray(alive)
    return indices_of(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
