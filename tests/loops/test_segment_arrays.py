"""Tests of turnout.loops.segment_arrays: compiled, interpreted, and what was encoded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.base.multivalued import MAX_VALUES
from turnout.loops.segment_arrays import (
    GIVEN_ANSWERS,
    GIVEN_AT,
    MOST_VALUES,
    OTHER_KEYS,
    ROWS,
    STARTS,
    VALUE,
    VALUES,
    VARIANTS,
    index_literals,
    read_objects,
)
from turnout.records.text import texts_of_values

pytestmark = pytest.mark.usefixtures("compiled_loops")

_encode_lines = msgspec.json.Encoder().encode_lines
KEYS = ("k", "key", 'a "key"', "ä", "")
MOST = 64

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ['"', "\\", "\n\r\t\b\f\x1f\x7f"]
)
_messages = st.lists(st.dictionaries(st.sampled_from(KEYS) | _texts, _texts, max_size=5), max_size=6)


def read(text: bytes, rows: int, unknown: int, separator: int = 10) -> list[Any]:
    """Return all results for a text, the same compiled and interpreted."""
    raws = [key.encode() for key in KEYS]
    at = np.cumsum([0, *map(len, raws)])
    keys, slots = np.frombuffer(b"".join(raws), np.uint8), np.zeros(16, np.int64)
    index_literals(keys, at, np.zeros(len(KEYS), np.int32), slots)
    found = []
    for loop in (read_objects, read_objects.interpreted):
        data = np.frombuffer(bytearray(text + bytes(16)), np.uint8)
        numbers = np.zeros(STARTS + 3 * rows + 1 + VALUE * MOST + len(KEYS) + OTHER_KEYS, np.int64)
        order = np.arange(len(KEYS), dtype=np.int32)
        result = loop(data, len(text), rows, separator, keys, at, order, slots, unknown, numbers)
        found.append([result, data.tobytes(), numbers.tolist()])
    assert found[0] == found[1]
    return found[0]


@given(_messages, st.sampled_from([-1, len(KEYS)]))
def test_messages_are_read(messages: list[dict[str, str]], unknown: int) -> None:
    """Keys and values of each message, escapes resolved; values of other keys are left out, or have a number."""
    (count, longest, letters), data, numbers = read(_encode_lines(messages), len(messages), unknown)

    numbered = [
        [(KEYS.index(key) if key in KEYS else unknown, text) for key, text in message.items()] for message in messages
    ]
    expected = [[pair for pair in own if pair[0] >= 0] for own in numbered]
    values = [numbers[first : first + VALUE] for first in range(numbers[VALUES], numbers[VARIANTS], VALUE)]
    texts = [(number, data[begin:end].decode()) for number, begin, end, _ in values]
    assert [texts[numbers[at] : numbers[at + 1]] for at in range(numbers[ROWS], numbers[VALUES], 2)] == expected
    given = numbers[VARIANTS]
    assert (numbers[GIVEN_AT], numbers[GIVEN_ANSWERS]) == (given, given + len(messages) + 1)
    raws = [text.encode() for own in expected for _, text in own]
    assert (count, longest) == (len(raws), max(map(len, raws), default=0))
    assert (letters > 127) == (not all(map(bytes.isascii, raws)))


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-10_000, 10_000, places=4).map(float)
    | _texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_texts, inner, max_size=2),
    max_leaves=3,
)


@given(
    st.dictionaries(st.sampled_from(KEYS) | _texts, _values, max_size=5),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_objects_of_anyone(message: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    """Values have the texts that conditions see, or the object is left to the reference."""
    text = json.dumps(message, ensure_ascii=ascii_only, indent=indent).encode() + b"\0"
    (count, _, _), data, numbers = read(text, 1, -1, 0)

    seen = texts_of_values(msgspec.json.decode(text[:-1]))
    assert count >= 0 or any(type(value) in (float, int, list, dict) for value in message.values()) or ascii_only
    if count >= 0:
        values = [numbers[first : first + VALUE] for first in range(numbers[VALUES], numbers[VARIANTS], VALUE)]
        texts = {KEYS[number]: data[begin:end].decode() for number, begin, end, _ in values}
        assert texts == {key: value for key, value in seen.items() if key in KEYS}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{} {}",
        b'{"k":"1",}',
        b'{"k":"1" "key":"2"}',
        b'{"k":"1"',
        b'{"k":01}',
        b'{"k":"\x01"}',
        b'{"k":"\\q"}',
        b'{"k":"\\ud800"}',
        b'{"k":"\xff"}',
        b'{"k":"1","k":"2"}',
        b'{"k":1e3}',
        b'{"k":-0}',
        b'{"k":[]}',
        b'{"other":[1,}',
        b"{}\0{}",
    ],
)
def test_what_is_left_to_the_reference(text: bytes) -> None:
    """No objects, and those that mean something else than their bytes."""
    assert read(text + b"\0", 1, -1, 0)[0][0] == -1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b'{"x":"1","k":"2","y":"3"}', 3),
        (b'{"x":"1","k":"2","x":"3"}', -1),
        (b'{"x":"1","x":null}', -1),
        (b'{"x":[1]}', -1),
        (b"{%s}" % b",".join(b'"x%d":""' % n for n in range(OTHER_KEYS)), OTHER_KEYS),
        (b"{%s}" % b",".join(b'"x%d":null' % n for n in range(OTHER_KEYS + 1)), -1),
    ],
)
def test_values_of_all_keys(text: bytes, count: int) -> None:
    """Other keys are read, too, if none is there twice, or there may be one."""
    assert read(text + b"\0", 1, len(KEYS), 0)[0][0] == count
    assert read(text + b"\0", 1, -1, 0)[0][0] == text.count(b'"k"')


def test_most_values() -> None:
    """The limit is that of conditions."""
    assert MOST_VALUES == MAX_VALUES


_parts = [b"{", b"}", b'"', b":", b",", b"\\", b"\\u", b"[", b"]", b"k", b"\xff", b"\0", b"\n", b" ", b"1", b"null"]


@given(st.lists(st.sampled_from(_parts)).map(b"".join), st.sampled_from([0, 10]))
def test_any_bytes_are_read_within_the_buffer(text: bytes, separator: int) -> None:
    """What is no object gives the same, whatever that is, interpreted and compiled."""
    read(text, 3, len(KEYS), separator)


@pytest.mark.heavy
def test_the_loop_reads_inside_of_its_buffers(tmp_path: Path) -> None:
    """The tests above hold with bounds checks, which are an error of the process that compiles."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "TURNOUT_LOOPS_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "read and not inside"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
