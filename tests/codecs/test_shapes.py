"""Schemaless values put into columns some at a time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.codecs import Format, codec_of, json_reading, shapes
from turnout.records import Block
from turnout.records.block import rows_of

MEMBER: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
        {"b": "z", "a": 3},
        {"a": 4},
        {},
        [],
        None,
        7,
        "text",
        {"a": {"b": [None]}},
    ]
)


def values_of(blocks: list[Block]) -> dict[int, Any]:
    return {row: value for block in blocks for row, value in zip(block.rows.tolist(), block.whole(), strict=True)}


@given(st.lists(MEMBER, max_size=60), st.integers(1, 20), st.integers(1, 20))
def test_every_value_keeps_its_row(members: list[Any], chunk: int, many: int) -> None:
    """However they come, blocks have one shape each, their rows ascend, and the order of an object's names is kept."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shapes, "_MIN_COLUMN_OBJECTS", many)
        together = shapes.Shapes()
        for start in range(0, len(members), chunk):
            part = members[start : start + chunk]
            together.add(range(start, start + len(part)), part)
        rows = np.arange(len(members), dtype=np.intp) * 3
        blocks = together.blocks(rows)

    assert {row: json.dumps(value) for row, value in values_of(blocks).items()} == {
        row: json.dumps(member) for row, member in zip(rows.tolist(), members, strict=True)
    }
    assert all((np.diff(block.rows) > 0).all() for block in blocks)


@given(
    st.lists(
        st.sampled_from([b'{"a":1}', b'{"a":2,"b":0}', b"{", b"null", b"12345678901234567890123", b"\xff"]), max_size=40
    )
)
def test_what_cannot_be_read_leaves_the_others_in_place(texts: list[bytes]) -> None:
    """Errors name their rows, and what is read leniently stands where it stood."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_reading, "_CHUNK", 3)
        blocks, errors = codec_of(Format.from_config({"format": "json"})).decode(rows_of(len(texts)), texts)

    wrong = {b"{", b"\xff"}
    assert set(errors) == {row for row, text in enumerate(texts) if text in wrong}
    assert values_of(blocks) == {row: json.loads(text) for row, text in enumerate(texts) if text not in wrong}
