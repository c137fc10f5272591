"""Loops over frames and header blocks: the same interpreted and compiled, and wherever the calls are divided."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.loops.compiled import Loop
from turnout.loops.frames import (
    BODY,
    DESCENDING,
    EDGES,
    END,
    FRAME_FIELDS,
    FULL,
    GAP,
    HEADER_FIELDS,
    ORDERED,
    PAYLOAD,
    POSITION_FIELDS,
    SIZE,
    START,
    fill_request,
    find_frames,
    mark_answers,
    read_answers,
    read_headers,
    read_positions,
    survey,
)

LEAD = np.frombuffer(b"$JS.ACK.", np.uint8)
NAMES = np.frombuffer(b'"seq":"error""duplicate":', np.uint8)
KEY = np.frombuffer(b"Nats-Msg-Id", np.uint8)
COLUMNS = 32

_pieces = st.sampled_from(
    [
        b"MSG a.b 1 $JS.ACK.S.C.1.2.3.1700000000000000000.5 3\r\nabc\r\n",
        b"HMSG a.b 17 $JS.ACK.hub.ACC.S.C.1.2.3.4.5 32 33\r\nNATS/1.0\r\nNats-Msg-Id:  7\t\r\n\r\nx\r\n",
        b"HMSG i 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
        b'MSG _INBOX.x.12 1 38\r\n{"stream":"O","seq":1,"duplicate":true}\r\n',
        b'MSG _INBOX.x.9223372036854775807 1 9\r\n{"seq":1}\r\n',
        b"MSG a 1 9223372036854775808 0\r\n\r\n",
        b"MSG ",
        b"HMSG ",
        b"\r\n",
        b"\r",
        b" ",
        b".",
        b"1",
        b":",
        b'"error"',
    ]
)
_bytes = st.lists(_pieces | st.binary(max_size=3), max_size=12).map(b"".join)


def run(loop: Loop[Any, Any], compiled: bool, *arguments: Any) -> Any:
    return loop.dispatcher()(*arguments) if compiled else loop.interpreted(*arguments)


def read(text: bytes, compiled: bool, step: int = COLUMNS) -> list[Any]:
    """Return all results for a buffer: frames, *step* of them at most at a time, positions, answers and headers."""
    data = np.frombuffer(bytearray(text), np.uint8) if text else np.zeros(0, np.uint8)
    table = np.zeros((FRAME_FIELDS, COLUMNS), np.int64)
    count, at, stop = 0, 0, FULL
    while stop == FULL and count < COLUMNS:
        part = np.zeros((FRAME_FIELDS, min(step, COLUMNS - count)), np.int64)
        found, at, stop = run(find_frames, compiled, data, len(data), at, 1 << 20, part, 0)
        table[:, count : count + found] = part[:, :found]
        count += found
    results: list[Any] = [count, at, stop, table[:, :count].tolist()]
    numbers, known = np.zeros(COLUMNS, np.int64), np.zeros(COLUMNS, np.int64)
    if run(read_answers, compiled, data, table, count, NAMES, numbers, known):
        results += [numbers.tolist(), known.tolist()]
    headers, edges = np.zeros((HEADER_FIELDS, COLUMNS), np.int64), np.zeros((EDGES, COLUMNS + 1), np.int64)
    total = run(read_headers, compiled, data, table, count, KEY, headers, edges)
    results += [total, headers.tolist(), edges.tolist()]
    positions = np.zeros((POSITION_FIELDS, COLUMNS), np.int64)
    row = kept = 0
    while row < count:
        row, kept = run(read_positions, compiled, data, table, row, count, LEAD, positions, kept)
        results.append((row, kept))
        row += 1
    results.append(run(survey, compiled, positions, kept, 0, 0, 1 << 40))
    results.append(run(fill_request, compiled, positions, 0, kept, 2, 64))
    return [*results, table[:, :kept].tolist(), positions[:, :kept].tolist()]


@given(_bytes)
def test_any_bytes_give_the_same_interpreted_and_compiled(text: bytes) -> None:
    """All results, also those that are left to the strict parsers; nothing is found outside of the buffer."""
    results = read(text, compiled=True)

    assert results == read(text, compiled=False)
    for start, body, payload, end in zip(*(results[3][name] for name in (START, BODY, PAYLOAD, END)), strict=True):
        assert 0 <= start < body <= payload <= end <= len(text) - 2


@given(_bytes, st.integers(1, 20))
def test_results_do_not_depend_on_the_calls(text: bytes, step: int) -> None:
    """One frame in a call, two, and all."""
    assert read(text, compiled=True, step=step) == read(text, compiled=True)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3), st.integers(1, 9)), max_size=8),
    st.integers(0, 3),
    st.integers(0, 12),
)
def test_order_of_messages(steps: list[tuple[int, int, int]], first: int, end: int) -> None:
    """What is in the range, the first hole, and the first fault, compiled, interpreted and by comparing lists."""
    sequences = np.cumsum([step for _, step, _ in steps]) + first
    consumer = np.arange(len(steps)) + 1 + np.array([lost == 0 for lost, *_ in steps], np.int64).cumsum() // 4
    positions = np.zeros((POSITION_FIELDS, len(steps)), np.int64)
    positions[:2] = sequences, consumer
    arguments = positions, len(steps), 1, 0, end

    found = run(survey, True, *arguments)

    assert found == run(survey, False, *arguments)
    expected = np.concatenate([[1], sequences[:-1] + 1])
    if consumer.tolist() != list(range(1, len(steps) + 1)):
        assert found[2] == GAP
    elif (sequences < expected).any():
        assert found[2] == DESCENDING
    else:
        inside = sequences < end
        holes = expected[inside & (sequences > expected)].tolist()
        assert found == (int(inside.sum()), holes[0] if holes else 0, ORDERED)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 12), st.integers(1, 40))
def test_messages_of_a_request(sizes: list[int], messages: int, size: int) -> None:
    """A request ends with its last message, or with the one that uses up its bytes."""
    positions = np.zeros((POSITION_FIELDS, len(sizes)), np.int64)
    positions[SIZE] = sizes
    used = np.cumsum(sizes[:messages]).tolist()
    taken = used.index(size) + 1 if size in used else len(used)

    for compiled in (True, False):
        assert run(fill_request, compiled, positions, 0, len(sizes), messages, size) == (taken, used[taken - 1])


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12), st.integers(0, 5), st.integers(0, 6))
def test_answers_are_marked_once(answers: list[tuple[int, bool]], first: int, count: int) -> None:
    """Of several answers to a message the first one counts; those to others do not."""
    mine = {number: known for number, known in reversed(answers) if first <= number < first + count}
    numbers, known = (np.array([one[column] for one in answers], np.int64) for column in range(2))

    for compiled in (True, False):
        answered = np.zeros(count, np.uint8)
        found = run(mark_answers, compiled, numbers, known, len(answers), first, answered)
        assert found == (len(mine), sum(mine.values()))
        assert np.flatnonzero(answered).tolist() == sorted(number - first for number in mine)


@pytest.mark.heavy
def test_no_loop_reads_outside_of_its_buffers(tmp_path: Path) -> None:
    """The tests above hold with bounds checks, which are an error of the process that compiles."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "TURNOUT_LOOPS_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "any_bytes"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
