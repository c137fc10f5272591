"""Columns that are read at the first look."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from turnout.records import Block
from turnout.records.block import rows_of
from turnout.records.spans import MAX_LISTED_VALUES, ArrowBytes, Bounds, EncodedColumn


class Letters:
    """Column of the letters of a text, and how often it was read."""

    def __init__(self, text: str, *, nullable: bool = False) -> None:
        self.reads = 0
        places = np.arange(len(text))
        self.column = EncodedColumn("letter", text.encode(), (places, places + 1), self._read, nullable=nullable)

    def _read(self, bounds: Bounds) -> list[str]:
        self.reads += 1
        return [self.column.content[begin:end].decode() for begin, end in zip(*bounds, strict=True)]


def test_is_read_once_at_the_first_look() -> None:
    letters = Letters("abc")
    column = letters.column

    assert (len(column), None in column, letters.reads) == (3, False, 0)
    assert (list(column), column[1], column[1:], "c" in column, letters.reads) == (
        ["a", "b", "c"], "b", ["b", "c"], True, 1,
    )  # fmt: skip
    assert column == ["a", "b", "c"]
    assert repr(column) == "['a', 'b', 'c']"


def test_null_is_looked_for_where_there_may_be_one() -> None:
    letters = Letters("abc", nullable=True)

    assert None not in letters.column
    assert letters.reads == 1


def test_block_takes_it_unread() -> None:
    """Unselected records are never read; values that were read are not read again."""
    letters = Letters("abcdef")
    block = Block(rows_of(6), None, columns={"letter": letters.column})

    part = block.take(np.array([0, 4]))
    assert letters.reads == 0
    assert part.columns["letter"] == ["a", "e"]
    assert block.columns["letter"] == ["a", "b", "c", "d", "e", "f"]
    assert block.take(np.array([1, 2])).columns["letter"] == ["b", "c"]
    assert letters.reads == 2


def test_bytes_of_arrow_are_a_sequence_of_bytes() -> None:
    """Of a part of an array, too; empty ones and nulls are looked for without objects."""
    texts = ArrowBytes(pa.array([b"x", b"Oulu", b"Kemi", b"y"]).slice(1, 2))

    assert (b"" in texts, None in texts, "_listed" in vars(texts)) == (False, False, False)
    assert (len(texts), texts[1], texts[-2:], list(texts), b"Kemi" in texts, b"x" in texts) == (
        2, b"Kemi", [b"Oulu", b"Kemi"], [b"Oulu", b"Kemi"], True, False,
    )  # fmt: skip
    assert texts == [b"Oulu", b"Kemi"]
    assert texts == ArrowBytes(pa.array([b"Oulu", b"Kemi"]))
    assert repr(texts) == "[b'Oulu', b'Kemi']"
    assert b"" in ArrowBytes(pa.array([b"x", b""]))


def test_bytes_between_offsets_are_an_array_if_they_are_many() -> None:
    for count in (1, MAX_LISTED_VALUES - 1, MAX_LISTED_VALUES, 100):
        expected = [b"%d" % number for number in range(count)]
        offsets = np.cumsum([0, *map(len, expected)])

        texts = ArrowBytes.of_offsets(np.frombuffer(b"".join(expected), np.uint8), offsets)

        assert isinstance(texts, list) == (count < MAX_LISTED_VALUES)
        assert list(texts) == expected
