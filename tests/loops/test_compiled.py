"""Tests of turnout.loops.compiled: the same results interpreted and compiled, and the cache."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.loops.conftest import padded
from turnout.base.files import FileLock
from turnout.loops import compiled as module
from turnout.loops.compiled import (
    Bytes,
    Int64Buffer,
    Packed,
    cache_is_filled,
    compile_loops,
    compiled,
    unpacked,
)


@compiled
def _digit(data: Bytes, index: int) -> int:
    return data[index] - 48 if 48 <= data[index] <= 57 else -1


@compiled
def sum_digits(data: Bytes, size: int, squares: Int64Buffer) -> tuple[int, bool]:
    """Add the digits, and write the square of each."""
    total = count = 0
    for index in range(size):
        digit = _digit(data, index)
        if digit >= 0:
            total += digit
            squares[count] = digit * digit
            count += 1
    return total, count == size


class Digits(NamedTuple):
    """Digits behind a text."""

    data: Bytes
    size: int


class Sums(NamedTuple):
    """Arguments that stay the same."""

    digits: Digits
    sums: Int64Buffer


@compiled
def add_digits(text: bytes, packed: Packed) -> int:
    """Add the digits of a text, and of those behind it, and write both sums."""
    own = unpacked(packed, Sums)
    total = 0
    for index in range(len(text)):
        total += text[index] - 48
    own.sums[0] = total
    for index in range(own.digits.size):
        total += _digit(own.digits.data, index)
    own.sums[1] = total
    return total


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(sum_digits, "_dispatcher", None)
    monkeypatch.setattr(_digit, "_dispatcher", None)
    return tmp_path


def test_compiled_and_interpreted_loops_give_the_same(folder: Path) -> None:
    """Results, and what is written into buffers; reading one that is written to is allowed."""
    squares, expected = np.zeros(9, np.int64), np.zeros(9, np.int64)
    data = padded(b"1x9")

    assert sum_digits.interpreted(data, 3, expected) == (10, False)
    assert sum_digits.dispatcher()(data, 3, squares) == (10, False)
    assert squares.tolist() == expected.tolist() == [1, 81, 0, 0, 0, 0, 0, 0, 0]
    assert sum_digits.dispatcher()(np.frombuffer(bytearray(b"42"), np.uint8), 2, squares) == (6, True)


def test_arguments_that_are_packed(folder: Path) -> None:
    """Arrays and numbers of tuples in a tuple; they are kept by what is passed."""
    sums = np.zeros(3, np.int64)
    packed = Packed(Sums(Digits(padded(b"345"), 2), sums))

    for call in (add_digits.interpreted, add_digits.dispatcher()):
        sums[:] = 0
        assert call(b"12", packed) == 10
        assert sums.tolist() == [3, 10, 0]


def test_what_is_interpreted_calls_nothing_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may compile the loops meanwhile: a view of memory is no argument of what it has compiled."""
    monkeypatch.setattr(_digit, "_run", _digit.dispatcher())
    monkeypatch.setattr(sum_digits, "_alone", None)

    assert sum_digits.interpreted(padded(b"42"), 2, np.zeros(2, np.int64)) == (6, True)


def test_compiled_code_is_kept_and_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process loads: here, a second dispatcher. The function that the loop calls is a part of it."""
    sum_digits.dispatcher()
    monkeypatch.setattr(sum_digits, "_dispatcher", None)
    assert [file.suffix for file in sorted(folder.iterdir())].count(".nbi") == 1

    again = sum_digits.dispatcher()

    assert sum(again.stats.cache_hits.values()) == 1
    assert not again.stats.cache_misses


def test_one_process_compiles_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that begin meanwhile wait, and load: six routes that start at once would compile for minutes."""
    monkeypatch.setattr(module, "_compiled", False)
    monkeypatch.setattr(module, "_every_loop", list)
    seen: list[str] = []
    waiting = threading.Thread(target=lambda: (compile_loops(), seen.append("compiled")))
    with FileLock(folder) as other_process:
        other_process.acquire()
        waiting.start()
        waiting.join(0.2)
        seen.append("released")
    waiting.join(60)

    assert seen == ["released", "compiled"]
    assert cache_is_filled()


def test_python_has_its_own_turn_of_threads_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two threads compile, of which the second begins before the first has ended."""
    before, turns, begun = sys.getswitchinterval(), [], threading.Semaphore(0)

    def compile_loops() -> None:
        turns.append(sys.getswitchinterval())
        begun.release()
        # The other one, if nothing keeps it from beginning.
        begun.acquire(timeout=0.2)
        begun.acquire(timeout=0.2)

    monkeypatch.setattr(module, "compile_loops", compile_loops)
    threads = [threading.Thread(target=module._compile_beside_others) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert max(turns) < before
    assert sys.getswitchinterval() == before


def test_damaged_cache_is_compiled_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that was cut off by a full disk is named, and does not stop the program."""
    sum_digits.dispatcher()
    monkeypatch.setattr(sum_digits, "_dispatcher", None)
    for file in folder.glob("*.nbc"):
        file.write_bytes(file.read_bytes()[:100])

    with caplog.at_level(logging.WARNING):
        assert sum_digits.dispatcher()(padded(b"7"), 1, np.zeros(1, np.int64)) == (7, True)

    assert "cannot be read and is compiled anew" in caplog.text


def test_folder_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is in it is executed."""
    tmp_path.chmod(0o777)
    monkeypatch.setenv("TURNOUT_LOOPS_CACHE", str(tmp_path))

    with caplog.at_level(logging.WARNING):
        assert module.cache_folder.__wrapped__() is None

    assert "is not only its owner's to write" in caplog.text


def test_a_type_that_no_loop_takes_is_named() -> None:
    """The annotation is part of the message."""

    @compiled
    def wrong(text: str) -> int:
        return len(text)

    with pytest.raises(TypeError, match="wrong: text: 'str' is no type of a loop"):
        wrong.dispatcher()


def test_without_numba_loops_are_interpreted(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The library goes on, and says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(module, "_compiled", False)
    module._warn_without_numba.cache_clear()

    with caplog.at_level(logging.WARNING):
        assert not module.compile_loops()

    assert 'install "turnout[spark]"' in caplog.text
    assert sum_digits(padded(b"12"), 2, np.zeros(2, np.int64)) == (3, True)


@pytest.mark.heavy
def test_warm_up_fills_the_cache_of_the_next_process(tmp_path: Path) -> None:
    """`turnout warm-up` compiles every loop, and again finds them."""
    environment = {**os.environ, "TURNOUT_LOOPS_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "turnout", "warm-up"]
    texts = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in "12"]

    assert texts[0].startswith("compiled into ")
    assert texts[1].startswith("the loops are compiled already: ")


def test_no_import_of_numba_before_a_loop_is_compiled() -> None:
    """`check`, `explain` and `test` run interpreted."""
    program = "import sys, turnout.loops, turnout.engine.explain; sys.exit('numba' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_two_processes_fill_the_cache(tmp_path: Path, compiled_loops: None) -> None:
    """Another one compiles from the last loop on; this one loads what that has compiled.

    Few loops are missing: all of them would take twenty seconds of processor time.
    """
    known, cache = module.cache_folder(), tmp_path / "loops"
    assert known is not None
    shutil.copytree(known, cache / known.name, ignore=shutil.ignore_patterns("complete", "frames.*", "texts.*"))
    program = (
        "import turnout.loops.compiled as own; own._processors = lambda: 2; own.compile_loops();"
        "missing = [loop for loop in own._every_loop() if loop.is_entry and loop.name[:5] in ('frame', 'texts')];"
        "print(len(missing), sum(sum(loop.dispatcher().stats.cache_hits.values()) for loop in missing))"
    )
    environment = {**os.environ, "TURNOUT_LOOPS_CACHE": str(cache)}

    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    missing, loaded = map(int, done.stdout.split())
    assert 0 < loaded < missing
    assert [path.name for path in cache.glob("*/complete")] == ["complete"]
