"""Metadata of messages as flat arrays: all values one after another, in the form that `turnout.loops.match` reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from turnout.base.multivalued import (
    ANY_KEY,
    MAX_VALUES,
    Metadata,
    Multivalued,
    by_leaf_keys,
    is_plain_key,
    metadata_key,
)
from turnout.conditions.pattern import fold, lexemes
from turnout.errors import RecordError
from turnout.loops import loops_are_compiled
from turnout.loops import segment_arrays as layout
from turnout.records.spans import MAX_LISTED_VALUES, ArrowTexts, SpanColumn
from turnout.records.text import texts_of_values
from turnout.subscriptions.index.arrays import Indices, Longs, Texts
from turnout.subscriptions.index.facts import encoded, encoded_all

_PADDING: Final = bytes(16)
_ROOM_FOR_ANSWERS: Final = 16 * layout.GIVEN_COLUMNS
"""Room behind the values for what is given for one message; more is given with a copy."""

_DICT: Final = frozenset({dict})
_ESCAPE: Final = rb"\u"
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encoder: Final = msgspec.json.Encoder()
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


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
        texts: the values; None where they are only in *data*.
        distinct: how many there are.
        data: values, and variants of those with letters beyond ASCII, as UTF-8.
        numbers: starts, rows, values and variants, without anything given; see
            `turnout.loops.segment_arrays.Messages`.
        size: number of messages.
        longest: bytes of the longest one of all these texts.
        any_of_all: True if the values of all keys are those of `ANY_KEY`; else it has its own.
    """

    texts: Sequence[str] | None
    distinct: int
    data: NDArray[np.uint8]
    numbers: Longs
    size: int
    longest: int
    any_of_all: bool

    def text(self, value: int) -> str:
        """Return a value."""
        if self.texts is not None:
            return self.texts[value]
        _, begin, end, _ = self.values[value].tolist()
        return self.data[begin:end].tobytes().decode()

    @property
    def rows(self) -> Longs:
        """By message: its first value, and the one behind its last."""
        return self.numbers[layout.STARTS : layout.STARTS + 2 * self.size].reshape(-1, 2)

    @property
    def values(self) -> Longs:
        """The values; see `turnout.loops.segment_arrays.VALUE_KEY`."""
        return self.numbers[self.numbers[layout.VALUES] : self.numbers[layout.VARIANTS]].reshape(-1, layout.VALUE)

    @property
    def variants(self) -> Longs:
        """The variants; see `turnout.loops.segment_arrays.FOLDED`."""
        return self.numbers[self.numbers[layout.VARIANTS] : self.numbers[layout.GIVEN_AT]].reshape(-1, layout.VARIANT)


def metadata_of_json(text: bytes) -> Metadata:
    """Return the metadata that an object of JSON is, as `turnout.records.text.texts_of_values` sees it.

    Raises:
        RecordError: it is no object of JSON.
    """
    try:
        return texts_of_values(_decode_object(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RecordError(f"the message is no JSON object: {problem}") from problem


def object_of(message: Metadata) -> bytes | None:
    """Return a message as an object of JSON; None if a key has several values, or half of a surrogate pair."""
    try:
        return _encode(message) if type(message) is dict else None
    except UnicodeEncodeError:
        return None


class JsonMessages(Sequence[Metadata]):
    """Messages that are objects of JSON, decoded when they are read.

    Args:
        texts: the objects.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> JsonMessages:
        """Return some of the messages."""
        return JsonMessages([self.texts[row] for row in rows])

    @overload
    def __getitem__(self, index: int) -> Metadata: ...
    @overload
    def __getitem__(self, index: slice) -> JsonMessages: ...
    def __getitem__(self, index: int | slice) -> Metadata | JsonMessages:
        texts = self.texts[index]
        return metadata_of_json(texts) if isinstance(texts, bytes) else JsonMessages(texts)


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
        if isinstance(messages, JsonMessages):
            return self.of_texts(messages.texts)
        types = set(map(type, messages))
        several = types != _DICT and any(issubclass(type_, Multivalued) for type_ in types)
        if several or (self.has_any and any(len(message) > MAX_VALUES for message in messages)):
            return self._of_leaf_keys([by_leaf_keys(message, self.special) for message in messages])
        if types == _DICT and loops_are_compiled():
            flat = self._of_dicts(messages)
            if flat is not None:
                return flat
        counts = list(map(len, messages))
        texts = list(chain.from_iterable([message.values() for message in messages]))
        numbers = map(self._of_metadata.get, chain.from_iterable(messages), repeat(self.unknown))
        return self._flat(numbers, texts, counts, any_of_all=True)  # type: ignore[arg-type]

    def _of_dicts(self, messages: Sequence[Metadata]) -> FlatMessages | None:
        """Return the values of messages that become JSON, which a loop reads; None if they need variants."""
        try:
            lines = _encode_lines(messages)
        except UnicodeEncodeError:
            # A lone surrogate.
            return None
        return self._read(lines, len(messages), ord("\n"), sum(map(len, messages)) if self.has_any else 0)

    def rows_with_variants(self, messages: Sequence[Metadata]) -> list[int]:
        """Return the rows of objects of JSON whose values may have variants: they are read in another way."""
        if not self._varied or not isinstance(messages, JsonMessages):
            return []
        return [row for row, text in enumerate(messages.texts) if not text.isascii() or _ESCAPE in text]

    def of_texts(self, texts: Sequence[bytes]) -> FlatMessages:
        """Return the values of messages that are objects of JSON.

        Raises:
            RecordError: one of them is no object of JSON.
        """
        flat = None
        if loops_are_compiled():
            objects = b"\0".join([*texts, b""])
            flat = self._read(objects, len(texts), 0, objects.count(b":") if self.has_any else 0)
        return self.of_messages(list(map(metadata_of_json, texts))) if flat is None else flat

    def _read(self, objects: bytes, rows: int, separator: int, most: int) -> FlatMessages | None:
        """Return the values of objects, *most* of them, or one of each known key; None if a loop does not decide."""
        size = len(objects)
        data = np.frombuffer(bytearray(objects + _PADDING), np.uint8)
        table = self._key_table
        known = len(table.numbers)
        room = layout.VALUE * (most or rows * known) + known + layout.OTHER_KEYS
        numbers = np.empty(layout.STARTS + 3 * rows + 1 + room, np.int64)
        unknown = self.unknown if most else -1
        count, longest, letters = layout.read_objects.direct(data, size, rows, separator, *table, unknown, numbers)
        if count < 0 or (letters >= layout.BEYOND_ASCII and self._varied):
            return None
        return FlatMessages(None, count, data, numbers, rows, longest, True)

    def buffers(self, values: int, size: int) -> tuple[NDArray[np.uint8], Longs, layout.Keys, int, int]:
        """Return buffers for objects of JSON with so many values and bytes, and how `match_objects` reads the keys."""
        room = (layout.VALUE + 3) * values + len(self._key_table.numbers) + layout.OTHER_KEYS
        numbers = np.empty(layout.STARTS + 1 + room, np.int64)
        data = np.frombuffer(bytearray(size + len(_PADDING)), np.uint8)
        unknown = self.unknown if self.has_any else -1
        return data, numbers, self._key_table, unknown, layout.BEYOND_ASCII if self._varied else 2 * layout.BEYOND_ASCII

    @cached_property
    def _key_table(self) -> layout.Keys:
        """The keys of metadata as a table, see `turnout.loops.segment_arrays.read_objects`."""
        texts = Texts.of([encoded(key) for key in self._of_metadata])
        slots = np.zeros(1 << max(2, (2 * len(texts)).bit_length()), np.int64)
        layout.index_literals(texts.data, texts.offsets, np.zeros(len(texts), np.int32), slots)
        numbers = np.array([*self._of_metadata.values(), 0], np.int32)
        return layout.Keys(texts.data, fixed(texts.offsets), fixed(numbers), fixed(slots))

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
        spans = self._of_spans(columns, rows)
        if spans is not None:
            return spans
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
            offsets = _append(own, texts, several=column.several)
            owners.append(offsets)
            numbers.append(np.full(len(texts) - before, number))
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        counts: list[int] = np.bincount(owner, minlength=len(listed)).tolist()
        flat_texts = [texts[index] for index in order.tolist()]
        return self._flat(np.concatenate(numbers).take(order), flat_texts, counts, any_of_all=False)

    def _of_spans(self, columns: Mapping[str, Column], rows: Indices) -> FlatMessages | None:
        """Return the values of columns of which most are still bytes; None if texts are needed, or some are several."""
        present = [(number, columns[key]) for number, key in enumerate(self.keys) if key in columns]
        if len(rows) <= MAX_LISTED_VALUES or any(column.several for _, column in present):
            return None
        if not any(isinstance(column.values, SpanColumn) for _, column in present):
            return None
        try:
            found = [(number, *_bytes_of(column, rows)) for number, column in present]
        except UnicodeEncodeError:
            # A lone surrogate.
            return None
        contents: dict[int, tuple[int, NDArray[np.uint8]]] = {}
        size = 0
        bounds = np.empty((2, len(found), len(rows)), np.int64)
        for at, (_, content, begins, ends) in enumerate(found):
            if id(content) not in contents:
                contents[id(content)] = size, content
                size += len(content)
            start, _ = contents[id(content)]
            np.add(begins, start, out=bounds[0, at])
            np.add(ends, start, out=bounds[1, at])
        data = np.concatenate([*(own for _, own in contents.values()), np.frombuffer(_PADDING, np.uint8)])
        if self._varied and data.max() >= layout.BEYOND_ASCII:
            return None
        keys = np.array([number for number, *_ in found], np.int32)
        numbers = np.empty(layout.STARTS + 3 * len(rows) + 1 + layout.VALUE * len(found) * len(rows), np.int64)
        count, longest = layout.fill_values(bounds.reshape(-1), keys, len(rows), numbers)
        return FlatMessages(None, count, data, numbers, len(rows), longest, False)

    def _flat(
        self, numbers: Iterable[int], texts: list[str], counts: Sequence[int], *, any_of_all: bool
    ) -> FlatMessages:
        """Return values of these keys, in the order of the messages, each of which has so many."""
        count, rows = len(texts), len(counts)
        joined = "".join(texts)
        is_ascii = joined.isascii()
        raws: Sequence[str | bytes] = texts if is_ascii else encoded_all(texts)
        data = joined.encode() if is_ascii else b"".join(raws)  # type: ignore[arg-type]
        offsets: list[list[int]] = []
        variants: list[int] | None = None
        if not is_ascii and self._varied:
            numbers = list(numbers)
            data, offsets, variants = self._with_variants(data, texts, numbers)
        at = np.cumsum([layout.STARTS, 2 * rows, layout.VALUE * count, layout.VARIANT * len(offsets), rows + 1])
        flat = np.zeros(int(at[-1]) + _ROOM_FOR_ANSWERS, np.int64)
        flat[: layout.STARTS] = at
        values = flat[at[layout.VALUES] : at[layout.VARIANTS]].reshape(-1, layout.VALUE)
        values[:, layout.VALUE_KEY] = (
            numbers if isinstance(numbers, np.ndarray | list) else np.fromiter(numbers, np.int64, count)
        )
        sizes = np.fromiter(map(len, raws), np.int64, count)
        np.cumsum(sizes, out=values[:, layout.VALUE_END])
        values[1:, layout.VALUE_BEGIN] = values[:-1, layout.VALUE_END]
        values[:, layout.VALUE_VARIANT] = -1 if variants is None else variants
        flat[at[layout.VARIANTS] : at[layout.GIVEN_AT]] = np.array(offsets, np.int64).ravel()
        of_rows = flat[layout.STARTS : at[layout.VALUES]].reshape(-1, 2)
        np.cumsum(counts, out=of_rows[:, 1])
        of_rows[1:, 0] = of_rows[:-1, 1]
        longest = max(
            int(sizes.max(initial=0)), *(own[column + 1] - own[column] for own in offsets for column in _VARIANTS), 0
        )
        encoded_texts = np.frombuffer(bytearray(data) + _PADDING, np.uint8)
        return FlatMessages(texts, count, encoded_texts, flat, rows, longest, any_of_all)

    def _with_variants(
        self, data: bytes, texts: Sequence[str], numbers: Sequence[int]
    ) -> tuple[bytes, list[list[int]], list[int]]:
        """Return the data with the variants behind it, where each is, and the number of each value's, -1 for none."""
        parts, end = [data], len(data)
        offsets: list[list[int]] = []
        variants = [-1] * len(texts)
        for value, text in enumerate(texts):
            if text.isascii() or not (self._varies_any or int(numbers[value]) in self._varied):
                continue
            folded = fold(text)
            variants[value] = len(offsets)
            own = [0] * layout.VARIANT
            for column, variant in zip(
                _VARIANTS, (folded, " ".join(lexemes(text)), " ".join(lexemes(folded))), strict=True
            ):
                raw = encoded(variant)
                parts.append(raw)
                own[column], own[column + 1] = end, end + len(raw)
                end += len(raw)
            offsets.append(own)
        return b"".join(parts), offsets, variants


_VARIANTS: Final = (layout.FOLDED, layout.WORDS, layout.FOLDED_WORDS)


_Array = TypeVar("_Array", bound=NDArray[np.generic])


def fixed(numbers: _Array) -> _Array:
    """Return the numbers, which are not written any more: what a loop reads."""
    numbers.flags.writeable = False
    return numbers


def _bytes_of(column: Column, rows: Indices) -> tuple[NDArray[np.uint8], Longs, Longs]:
    """Return bytes with the texts of some rows' values, and begin and end of each; of one that is absent end and begin.

    Raises:
        UnicodeEncodeError: a text has no bytes.
    """
    values = column.values
    if isinstance(values, SpanColumn) and values.form in _ENCODED_FORMS:
        data, (begins, ends) = values.data_bounds()
        if values.form != "string" or not values.spans.source.has_escapes:
            if len(rows) < len(values):
                begins, ends = begins[rows], ends[rows]
            is_null = data[begins] == _NULL
            quotes = 1 if values.form == "string" else 0
            return data, np.where(is_null, 1, begins + quotes), np.where(is_null, 0, ends - quotes)
    if isinstance(values, ArrowTexts) and len(rows) == len(values):
        data, (begins, ends) = values.bounds()
        return data, begins, ends
    own = values if len(rows) == len(values) else [values[row] for row in rows.tolist()]
    if column.text is not None:
        of_value = {value: column.text(value) for value in set(own) if value is not None}
        own = list(map(of_value.get, own))
    texts = own if None not in own else ["" if text is None else text for text in own]
    joined = "".join(texts)
    sizes = np.fromiter(map(len, texts if joined.isascii() else map(str.encode, texts)), np.int64, len(texts))
    ends = np.cumsum(sizes)
    if texts is not own:
        sizes[[text is None for text in own]] = -1
    return np.frombuffer(joined.encode(), np.uint8), ends - sizes, ends


_ENCODED_FORMS: Final = frozenset({"string", "int8", "int16", "int32", "int64"})
"""Forms of JSON whose values are their texts, but for quotes and escapes."""

_NULL: Final = ord("n")


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
