"""Metadata of messages as flat arrays: all values one after another, in the form that `turnout.loops.match` reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.pattern import fold, lexemes
from turnout.loops.match import FOLDED, FOLDED_WORDS, VALUE, VALUE_VARIANT, VARIANT, WORDS
from turnout.multivalued import ANY_KEY, MAX_VALUES, Metadata, Multivalued, by_leaf_keys, is_plain_key, metadata_key
from turnout.subscriptions.index.buckets import Indices, Longs
from turnout.subscriptions.index.facts import encoded, encoded_all

_PADDING: Final = bytes(16)
_FEW: Final = 8
"""Up to so many messages, a comprehension takes less time than passes over all values."""


class Column(NamedTuple):
    """Values of one metadata key over a batch.

    Attributes:
        values: by row; None where the key is absent.
        text: None if the values are texts. Else they can be hashed, those that compare equal have equal texts, and
            this gives the text of one; None if it has none, and then the key is absent too.
        several: True if some of the values are tuples of texts: several values of one row.
    """

    values: Sequence[Any]
    text: Callable[[Any], str | None] | None = None
    several: bool = False


class FlatMessages(NamedTuple):
    """Values of messages.

    Attributes:
        texts: the values.
        data: values, and variants of those with letters beyond ASCII, as UTF-8.
        rows: by message: its first value, and the one behind its last.
        values: see `turnout.loops.match.VALUE_KEY`.
        variants: see `turnout.loops.match.FOLDED`.
        longest: bytes of the longest one of all these texts.
        any_of_all: True if the values of all keys are those of `ANY_KEY`; else it has its own.
    """

    texts: Sequence[str]
    data: NDArray[np.uint8]
    rows: Longs
    values: Longs
    variants: Longs
    longest: int
    any_of_all: bool


class KeyNumbers:
    """Numbers of the keys of leaves, for values of messages.

    Args:
        keys: keys of leaves.
        varied: those whose values are read folded or in words.
    """

    def __init__(self, keys: Sequence[str], varied: Collection[str]) -> None:
        self.keys = keys
        self.special = tuple(key for key in keys if not is_plain_key(key))
        self.has_any = ANY_KEY in keys
        self.unknown = len(keys)
        self._of_leaves = {key: number for number, key in enumerate(keys)}
        self._of_metadata = {metadata_key(key): number for key, number in self._of_leaves.items() if key != ANY_KEY}
        self._varied = frozenset(self._of_leaves[key] for key in varied)
        self._varies_any = ANY_KEY in varied

    def of_messages(self, messages: Sequence[Metadata]) -> FlatMessages:
        """Return the values of messages; those of which no leaf tests anything may be left out."""
        types = set(map(type, messages))
        several = any(issubclass(type_, Multivalued) for type_ in types)
        if several or (self.has_any and any(len(message) > MAX_VALUES for message in messages)):
            return self._of_leaf_keys([by_leaf_keys(message, self.special) for message in messages])
        numbers: Iterable[int]
        if len(messages) <= _FEW and not self.has_any:
            known, numbers, texts, counts = self._of_metadata, [], [], []
            for message in messages:
                own = [key for key in message if key in known]
                numbers += [known[key] for key in own]
                texts += [message[key] for key in own]
                counts.append(len(own))
        else:
            counts = list(map(len, messages))
            texts = list(chain.from_iterable([message.values() for message in messages]))
            numbers = map(self._of_metadata.get, chain.from_iterable(messages), repeat(self.unknown))  # type: ignore[arg-type]
        return self._flat(numbers, texts, counts, any_of_all=True)  # type: ignore[arg-type]

    def _of_leaf_keys(self, messages: Sequence[Metadata]) -> FlatMessages:
        """Return the values of messages by the keys of leaves, some of them several of a key."""
        known = self._of_leaves
        numbers: list[int] = []
        texts: list[str] = []
        counts = []
        for message in messages:
            before = len(texts)
            for key, found in message.items():
                number = known.get(key)
                if number is not None:
                    own = (found,) if isinstance(found, str) else found
                    texts += own
                    numbers += [number] * len(own)
            counts.append(len(texts) - before)
        return self._flat(numbers, texts, counts, any_of_all=False)

    def of_columns(self, columns: Mapping[str, Column], rows: Indices) -> FlatMessages:
        """Return the values of some rows of columns by the keys of leaves."""
        listed = rows.tolist()
        whole = listed == list(range(len(listed)))
        texts: list[str] = []
        owners: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        numbers: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        for number, key in enumerate(self.keys):
            column = columns.get(key)
            if column is None:
                continue
            values = column.values
            own = values[: len(listed)] if whole else [values[row] for row in listed]
            if column.text is not None:
                of_value = {value: column.text(value) for value in set(own) if value is not None}
                own = list(map(of_value.get, own))
            before = len(texts)
            places = _append(own, texts, several=column.several)
            owners.append(places)
            numbers.append(np.full(len(texts) - before, number))
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=len(listed))
        flat_texts = [texts[place] for place in order.tolist()]
        return self._flat(np.concatenate(numbers).take(order), flat_texts, counts, any_of_all=False)

    def _flat(
        self, numbers: Iterable[int], texts: list[str], counts: Sequence[int], *, any_of_all: bool
    ) -> FlatMessages:
        """Return values of these keys, in the order of the messages, each of which has so many."""
        count = len(texts)
        joined = "".join(texts)
        is_ascii = joined.isascii()
        raws: Sequence[str | bytes] = texts if is_ascii else encoded_all(texts)
        data = joined.encode() if is_ascii else b"".join(raws)  # type: ignore[arg-type]
        values = np.empty((count, VALUE), np.int64)
        values[:, 0] = numbers if isinstance(numbers, np.ndarray | list) else np.fromiter(numbers, np.int64, count)
        sizes = np.fromiter(map(len, raws), np.int64, count)
        np.cumsum(sizes, out=values[:, 2])
        values[:, 1] = values[:, 2] - sizes
        values[:, VALUE_VARIANT] = -1
        variants = np.zeros((0, VARIANT), np.int64)
        if not is_ascii and self._varied:
            data, variants = self._with_variants(data, texts, values)
        rows = np.zeros((len(counts), 2), np.int64)
        np.cumsum(counts, out=rows[:, 1])
        rows[1:, 0] = rows[:-1, 1]
        longest = int(sizes.max(initial=0))
        if len(variants):
            longest = max(longest, int((variants[:, 1::2] - variants[:, ::2]).max()))
        return FlatMessages(
            texts, np.frombuffer(data + _PADDING, np.uint8), rows, values, variants, longest, any_of_all
        )

    def _with_variants(self, data: bytes, texts: Sequence[str], values: Longs) -> tuple[bytes, Longs]:
        """Return the data with the variants behind it, and where these are; and number them among the values."""
        parts, at = [data], len(data)
        places: list[list[int]] = []
        for value, text in enumerate(texts):
            if text.isascii() or not (self._varies_any or int(values[value, 0]) in self._varied):
                continue
            folded = fold(text)
            values[value, VALUE_VARIANT] = len(places)
            own = [0] * VARIANT
            variants = {FOLDED: folded, WORDS: " ".join(lexemes(text)), FOLDED_WORDS: " ".join(lexemes(folded))}
            for column, variant in variants.items():
                raw = encoded(variant)
                parts.append(raw)
                own[column], own[column + 1] = at, at + len(raw)
                at += len(raw)
            places.append(own)
        return b"".join(parts), np.array(places, np.int64).reshape(-1, VARIANT)


def _append(found: Sequence[Any], texts: list[str], *, several: bool) -> NDArray[np.int64]:
    """Append the texts of a column, and return the row of each."""
    if not several:
        if None in found:
            rows = [row for row, text in enumerate(found) if text is not None]
            texts += [text for text in found if text is not None]
            return np.array(rows, np.int64)
        texts += found
        return np.arange(len(found))
    rows = []
    for row, own in enumerate(found):
        if own is not None:
            several_texts: Iterator[str] | tuple[str, ...] = (own,) if isinstance(own, str) else own
            before = len(texts)
            texts += several_texts
            rows += [row] * (len(texts) - before)
    return np.array(rows, np.int64)
