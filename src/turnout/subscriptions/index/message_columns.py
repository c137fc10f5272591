"""Metadata of messages as columns of a batch, and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.evaluate import parsed_number
from turnout.multivalued import Metadata, Multivalued, Texts, seen_texts, single_values
from turnout.subscriptions.index.buckets import Indices, Ints

_RARE = 4
"""A key that at most one in so many messages has is rare."""


class Column(NamedTuple):
    """Values of one metadata key over a batch.

    Attributes:
        values: by row; None where the key is absent.
        text: None if the values are texts. Else they can be hashed, those that compare equal have equal texts, and
            this gives the text of one; None if it has none, and then the key is absent too.
        several: True if some of the values are tuples of texts: several values of one row.
        valued: the rows that have the key, where these are few and known.
    """

    values: Sequence[Any]
    text: Callable[[Any], str | None] | None = None
    several: bool = False
    valued: Sequence[int] | None = None

    def part(self, rows: slice) -> Column:
        """Return the values of consecutive rows."""
        if len(range(*rows.indices(len(self.values)))) == len(self.values):
            return self
        return Column(self.values[rows], self.text, self.several)

    def dense(self) -> Column:
        """Return the values of the rows that have the key, where these are few and known; else all values."""
        return self if self.valued is None else self.of_rows(self.valued)

    def by_row(self, numbers: Ints) -> Ints:
        """Return the numbers of the values of `dense` by row; 0 for the other rows."""
        if self.valued is None:
            return numbers
        of_rows = np.zeros(len(self.values), np.int32)
        of_rows[self.valued] = numbers
        return of_rows

    def of_rows(self, rows: Iterable[int]) -> Column:
        """Return the values of some rows."""
        values = self.values
        return Column([values[row] for row in rows], self.text, self.several)


def have_several(columns: Iterable[Column], rows: Indices) -> NDArray[np.bool_]:
    """Return a mask of the rows with several values in one of the columns."""
    listed = rows.tolist()
    mask = np.zeros(len(rows), np.bool_)
    for column in columns:
        values = column.values
        mask |= np.fromiter((type(values[row]) is tuple for row in listed), np.bool_, len(rows))
    return mask


def has_number(texts: Texts | None) -> bool:
    """Return True if one of the texts is a number."""
    return any(parsed_number(value) is not None for value in single_values((texts,)))


def columns_of(messages: Sequence[Metadata], keys: Collection[str]) -> dict[str, Column]:
    """Return the metadata of messages by the keys that conditions test."""
    first = messages[0] if messages else {}
    # Mostly all messages have the keys of the first one.
    columns = {key: Column(_values_of(messages, key)) for key in keys if key in first}
    if len(columns) < len(keys):
        columns |= _filled(messages, {key for key in keys if key not in columns})
    return columns


def _filled(messages: Sequence[Metadata], keys: AbstractSet[str]) -> dict[str, Column]:
    """Return the columns of those of the keys that some message has, in less time where few have each."""
    columns: dict[str, tuple[list[Texts | None], list[int]]] = {}
    for row, message in enumerate(messages):
        for key in message.keys() & keys:
            column = columns.get(key)
            if column is None:
                column = columns[key] = [None] * len(messages), []
            column[0][row] = message[key]
            column[1].append(row)
    most = len(messages) // _RARE
    return {key: Column(values, valued=rows if len(rows) <= most else None) for key, (values, rows) in columns.items()}


def columns_of_special(
    messages: Sequence[Metadata], keys: Collection[str], special: Collection[str]
) -> dict[str, Column]:
    """Return the metadata of messages by the keys of leaves; *special* are those that are not metadata keys."""
    columns = columns_of(messages, [key for key in keys if key not in special])
    if any(isinstance(message, Multivalued) for message in messages):
        columns = {key: _with_several(column.values) for key, column in columns.items()}
    return columns | {key: _with_several([seen_texts(message, key) for message in messages]) for key in special}


def _with_several(values: Sequence[Texts | None]) -> Column:
    return Column(values, several=tuple in set(map(type, values)))


def _values_of(messages: Sequence[Metadata], key: str) -> Sequence[Texts | None]:
    try:
        return list(map(itemgetter(key), messages))
    except KeyError:
        return [message.get(key) for message in messages]


def messages_of(columns: Mapping[str, Column], keys: Iterable[str], rows: Iterable[int]) -> list[dict[str, str]]:
    """Return the metadata of rows by the keys that conditions test."""
    present = [(key, column.values, column.text) for key in keys if (column := columns.get(key)) is not None]
    messages = []
    for row in rows:
        message = {}
        for key, values, text in present:
            value = values[row]
            if value is not None and text is not None:
                value = text(value)
            if value is not None:
                message[key] = value
        messages.append(message)
    return messages
