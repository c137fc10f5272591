"""Codes for the values of messages: each distinct value of a key is worked on once, and is a small number from then on.

A generation of books is bounded: when it is full, a new one begins, and the old one is freed with the last match that
uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import filterfalse, repeat
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.anchor import Kind
from turnout.subscriptions.index.buckets import GrowingArray, Ints
from turnout.subscriptions.index.facts import encoded_all, hashes_of, salt_of, text_maker
from turnout.subscriptions.index.message_columns import Column
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.tables import Tables

MOST_VALUES = 1 << 17
"""Approximate number of values of one key in a dictionary generation."""

MOST_CHARACTERS = 1 << 24
"""Approximate number of characters in all values of one key."""

_MOST_MAKERS = 16
"""Maximum number of cached conversions from values to text per key."""


class _Codes(dict[str | None, int]):
    """Value → code; a new value gets the next code."""

    def __init__(self, dictionary: ValueDictionary) -> None:
        super().__init__({None: 0})
        self._add = dictionary.add

    def __missing__(self, value: str) -> int:
        return self._add(value)


class _Made(dict[Any, int]):
    """Value that is no text → code of its text."""

    def __init__(self, codes: _Codes, text: Callable[[Any], str | None]) -> None:
        super().__init__({None: 0})
        self._codes = codes
        self._text = text

    def __missing__(self, value: Any) -> int:
        code = self[value] = self._codes[self._text(value)]
        return code


class ValueDictionary:
    """Values of one key seen up to now, by code; code 0 means no value.

    Attributes:
        texts: by code.
        full: whether it is time for a new generation.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.texts: list[str] = [""]
        self.full = False
        self._lock = threading.Lock()
        self._codes = _Codes(self)
        self._codes_by_maker: dict[Any, _Made] = {}
        self._characters = 0
        self._hashes: dict[Kind, GrowingArray] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, value: str) -> int:
        """The code of a value that was not seen before, or that another thread has just seen."""
        self._add_all((value,))
        return self._codes[value]

    def codes(self, column: Column) -> Ints:
        """The code of each value."""
        if column.valued is not None:
            return column.by_row(self.codes(column.dense()))
        values, count = column.values, len(column.values)
        if column.text is not None:
            return np.fromiter(map(self._codes_of(column.text).__getitem__, values), np.int32, count)
        codes = np.fromiter(map(self._codes.get, values, repeat(-1)), np.int32, count)
        new = np.flatnonzero(codes < 0)
        if len(new):
            added = values if len(new) == count else itemgetter(*new.tolist(), 0)(values)[:-1]
            self._add_all(added)
            codes[new] = np.fromiter(map(self._codes.__getitem__, added), np.int32, len(new))
        return codes

    def _add_all(self, values: Iterable[str]) -> None:
        with self._lock:
            new = list(filterfalse(self._codes.__contains__, dict.fromkeys(values)))
            begun = len(self.texts)
            # The texts first: a reader that sees a code can read its text.
            self.texts += new
            self._codes.update(zip(new, range(begun, begun + len(new)), strict=True))
            self._characters += sum(map(len, new))
            self.full = len(self.texts) > MOST_VALUES or self._characters > MOST_CHARACTERS

    def _codes_of(self, text: Callable[[Any], str | None]) -> _Made:
        codes = self._codes_by_maker.get(text)
        if codes is None or len(codes) > MOST_VALUES:
            if len(self._codes_by_maker) >= _MOST_MAKERS:
                # Functions that are created for each batch are not worth remembering.
                self._codes_by_maker.clear()
            codes = self._codes_by_maker[text] = _Made(self._codes, text)
        return codes

    def hashes(self, kind: Kind, upto: int) -> NDArray[np.uint64]:
        """The hashes that a single fact of this kind gives for the first *upto* codes."""
        known = self._hashes.get(kind)
        if known is None or len(known) < upto:
            with self._lock:
                known = self._hashes.setdefault(kind, GrowingArray(np.uint64))
                raws = encoded_all(map(text_maker(kind), self.texts[len(known) : upto]))
                known.extend(hashes_of(raws, salt_of((self.key, kind))))
        return known.values

    def raws(self, kind: Kind, codes: NDArray[np.integer[Any]]) -> list[bytes]:
        """The texts that a single fact of this kind makes of values, as UTF-8."""
        make, texts = text_maker(kind), self.texts
        return encoded_all([make(texts[code]) for code in codes.tolist()])


class ValueDictionaries:
    """One generation of value dictionaries; each segment holds its own tables for their values."""

    def __init__(self) -> None:
        self._dictionaries: dict[str, ValueDictionary] = {}
        self._lock = threading.Lock()

    def dictionary(self, key: str) -> ValueDictionary:
        """Return the dictionary of this key's values."""
        dictionary = self._dictionaries.get(key)
        if dictionary is None:
            with self._lock:
                dictionary = self._dictionaries.setdefault(key, ValueDictionary(key))
        return dictionary

    def tables(self, segment: Segment) -> Tables:
        """Return the segment's tables for the values of these dictionaries."""
        tables = segment.tables.get(self)
        if tables is None:
            with self._lock:
                tables = segment.tables.get(self)
                if tables is None:
                    dictionaries = [
                        self._dictionaries.setdefault(key, ValueDictionary(key)) for key in segment.head.keys
                    ]
                    tables = segment.tables[self] = Tables(segment, dictionaries)
        return tables

    def full(self, keys: Iterable[str]) -> bool:
        """Return True if a new generation is due."""
        return any(dictionary.full for key in keys if (dictionary := self._dictionaries.get(key)) is not None)


class DictionaryCache:
    """Value dictionaries shared by the indexes of several revisions, so that a new one starts warm."""

    def __init__(self) -> None:
        self._dictionaries = ValueDictionaries()

    def dictionaries(self, keys: Iterable[str]) -> ValueDictionaries:
        """Return the present generation of dictionaries."""
        if self._dictionaries.full(keys):
            self._dictionaries = ValueDictionaries()
        return self._dictionaries
