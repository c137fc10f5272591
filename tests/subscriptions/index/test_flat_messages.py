"""Values of columns as flat arrays: bytes that nobody has decoded are those of their texts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from turnout.codecs import Format, codec_of
from turnout.engine.metadata import Metadata
from turnout.loops import segment_arrays as layout
from turnout.records import Batch, Block, Headers
from turnout.records.block import rows_of
from turnout.records.headers import headers_type
from turnout.records.spans import MAX_LISTED_VALUES, ArrowTexts, SpanColumn
from turnout.subscriptions.index.flat_messages import Column, FlatMessages, KeyNumbers

CODEC = codec_of(Format("json", schema="a STRING, n INT, m BIGINT, b STRING"))
METADATA = Metadata({name: f"value.{name}" for name in "anmb"})
KEYS = ("a", "n", "topic", "m", "h", "b", "absent")
HEADERS = st.lists(st.sampled_from([b"x", b"", "Ä".encode(), None, b"y" * 90]), max_size=2)
TEXTS = st.sampled_from(["", "x", "null", "nn", "1", "Ä", "\\u00e4", "\\ud83d\\ude00", '\\"', "7" * 200])
VALUES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "a": TEXTS.map(lambda text: f'"{text}"') | st.just("null"),
            "n": st.sampled_from(["0", "-7", "2147483647", "null"]),
            "m": st.sampled_from(["123456789012345678", "-1"]),
            "b": TEXTS.map(lambda text: f'"{text}"'),
        },
    ),
    min_size=MAX_LISTED_VALUES + 1,
    max_size=MAX_LISTED_VALUES + 8,
)


def columns_of(
    values: list[dict[str, str]], topics: list[str | None], headers: list[list[bytes | None]]
) -> dict[str, Column]:
    texts = [("{" + ", ".join(f'"{name}": {text}' for name, text in value.items()) + "}").encode() for value in values]
    count = len(texts)
    blocks, errors = CODEC.decode(rows_of(count), texts)
    assert not errors
    pairs = [[("other", b"0"), ("other", b"1"), *(("h", text) for text in own)] for own in headers]
    batch = Batch(
        topics,
        [0] * count,
        None,
        [None] * count,
        [Block(rows_of(count), None)],
        blocks,
        Headers.of_arrow(pa.array(pairs, headers_type())),
    )
    return METADATA.columns(batch, batch.alive, KEYS)


def seen(flat: FlatMessages) -> tuple[int, list[list[tuple[int, str]]]]:
    """The longest text, and the keys and values of each message."""
    keys = flat.values[:, 0].tolist()
    return flat.longest, [
        [(keys[value], flat.text(value)) for value in range(begin, end)] for begin, end in flat.rows.tolist()
    ]


@given(VALUES, st.booleans(), st.data())
def test_columns_of_json_are_read_as_their_texts(
    values: list[dict[str, str]], some_are_varied: bool, data: st.DataObject
) -> None:
    """Of all rows, and of some; with escapes and letters beyond ASCII, which may have variants."""
    topics = data.draw(
        st.lists(st.sampled_from(["t", "", "Ö.x", None, "\ud800"]), min_size=len(values), max_size=len(values))
    )
    numbers = KeyNumbers(KEYS, ("a",) if some_are_varied else ())
    headers = data.draw(st.lists(HEADERS, min_size=len(values), max_size=len(values)))
    columns = columns_of(values, topics, headers)
    listed = {key: Column(list(column.values), column.text) for key, column in columns.items()}
    rows = rows_of(len(values))
    left_out = data.draw(st.sets(st.integers(0, len(values) - 1)))
    some = rows[[row not in left_out for row in range(len(values))]]
    for chosen in (rows, some):
        assert seen(numbers.of_columns(columns, chosen)) == seen(numbers.of_columns(listed, chosen))


def test_plain_columns_are_not_decoded() -> None:
    values: list[dict[str, Any]] = [{"a": json.dumps(f"text {n}"), "n": str(n), "m": "1"} for n in range(50)]
    columns = columns_of(values, ["t"] * 50, [[b"h"]] * 50)

    flat = KeyNumbers(KEYS, ()).of_columns(columns, rows_of(50))

    assert [flat.text(value) for value in range(5)] == ["text 0", "0", "t", "1", "h"]
    assert flat.distinct == 250
    assert all(column.values._values is None for column in columns.values() if isinstance(column.values, SpanColumn))
    assert isinstance(columns["h"].values, ArrowTexts)
    assert "_listed" not in vars(columns["h"].values)


@given(st.lists(st.lists(st.integers(-1, 9), min_size=3, max_size=3), max_size=8))
def test_values_are_written_the_same_interpreted(sizes: list[list[int]]) -> None:
    """Of each message those that are not absent, whose size is -1."""
    rows, keys = len(sizes), np.array([5, 0, 7], np.int32)
    ends = np.array(sizes, np.int64).reshape(rows, 3).T
    found = []
    for loop in (layout.fill_values.dispatcher(), layout.fill_values.interpreted):
        numbers = np.full(layout.STARTS + 3 * rows + 1 + layout.VALUE * 3 * rows, 99, np.int64)
        count, longest = loop(np.concatenate([np.zeros_like(ends), ends]).reshape(-1), keys, rows, numbers)
        flat = FlatMessages(None, count, np.zeros(0, np.uint8), numbers, rows, longest, False)
        found.append((numbers.tolist(), count, longest, flat.rows.tolist(), flat.values.tolist()))

    assert found[0] == found[1]
    _, count, longest, of_rows, values = found[0]
    expected = [[[int(key), 0, size, -1] for key, size in zip(keys, own, strict=True) if size >= 0] for own in sizes]
    assert [values[begin:end] for begin, end in of_rows] == expected
    assert (count, longest) == (sum(map(len, expected)), max([0, *(size for own in sizes for size in own)]))
