"""Tests of turnout.loops.segment_arrays: compiled, interpreted, and what was encoded."""

from __future__ import annotations

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

from turnout.loops.segment_arrays import (
    GIVEN_ANSWERS,
    GIVEN_AT,
    ROWS,
    STARTS,
    VALUE,
    VALUES,
    VARIANTS,
    index_literals,
    read_messages,
)

pytestmark = pytest.mark.usefixtures("compiled_loops")

KEYS = ("k", "key", 'a "key"', "ä", "")
MOST = 64

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ['"', "\\", "\n\r\t\b\f\x1f\x7f"]
)
_messages = st.lists(st.dictionaries(st.sampled_from(KEYS) | _texts, _texts, max_size=5), max_size=6)


def read(text: bytes, rows: int, unknown: int) -> list[Any]:
    """Return all results for a text, the same compiled and interpreted."""
    raws = [key.encode() for key in KEYS]
    at = np.cumsum([0, *map(len, raws)])
    keys, slots = np.frombuffer(b"".join(raws), np.uint8), np.zeros(16, np.int64)
    index_literals(keys, at, np.zeros(len(KEYS), np.int32), slots)
    found = []
    for loop in (read_messages, read_messages.interpreted):
        data = np.frombuffer(bytearray(text + bytes(16)), np.uint8)
        numbers = np.zeros(STARTS + 3 * rows + 1 + VALUE * MOST, np.int64)
        order = np.arange(len(KEYS), dtype=np.int32)
        result = loop(data, len(text), rows, keys, at, order, slots, unknown, numbers)
        found.append([result, data.tobytes(), numbers.tolist()])
    assert found[0] == found[1]
    return found[0]


@given(_messages, st.sampled_from([-1, len(KEYS)]))
def test_messages_are_read(messages: list[dict[str, str]], unknown: int) -> None:
    """Keys and values of each message, escapes resolved; values of other keys are left out, or have a number."""
    (count, longest, letters), data, numbers = read(msgspec.json.encode(messages), len(messages), unknown)

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


@given(
    st.lists(st.sampled_from([b"{", b"}", b'"', b":", b",", b"\\", b"\\u", b"[", b"]", b"k", b"\xff"])).map(b"".join)
)
def test_any_bytes_are_read_within_the_buffer(text: bytes) -> None:
    """What is no array of objects gives the same, whatever that is, interpreted and compiled."""
    read(text, 3, len(KEYS))


@pytest.mark.heavy
def test_the_loop_reads_inside_of_its_buffers(tmp_path: Path) -> None:
    """The tests above hold with bounds checks, which are an error of the process that compiles."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "TURNOUT_LOOPS_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "read and not inside"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
