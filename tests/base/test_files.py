"""Atomic writing of files, and locks on files and folders."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from turnout.base.files import FileChanges, FileLock, new_file, read_files_again, replace_file

SIZE = 1 << 20

HALF_WRITER = """
import sys, time
from pathlib import Path
from turnout.base.files import new_file
with new_file(Path(sys.argv[1])) as file:
    file.write(b"new" * 1000)
    file.flush()
    print("half", flush=True)
    time.sleep(60)
"""

ALTERNATING_WRITER = f"""
import sys
from itertools import cycle
from pathlib import Path
from turnout.base.files import replace_file
for number, letter in enumerate(cycle("ab")):
    replace_file(Path(sys.argv[1]), letter * {SIZE}, fsync=False)
    if number == 0:
        print("begun", flush=True)
"""

LOCK_HOLDER = """
import sys, time
from pathlib import Path
from turnout.base.files import FileLock
with FileLock(Path(sys.argv[1])).acquire(shared=sys.argv[2] == "shared"):
    print("locked", flush=True)
    time.sleep(60)
"""


def started(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a script in a process of its own, and wait for its first line."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_kill_in_the_middle_of_a_write_leaves_the_old_file(tmp_path: Path) -> None:
    """The half of the new one is beside it, under another name."""
    path = tmp_path / "state.json"
    replace_file(path, "old")

    kill(started(HALF_WRITER, path))

    assert path.read_text() == "old"
    assert [file.suffix for file in tmp_path.iterdir() if file != path] == [".tmp"]


def test_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    """Each killed writer was in the middle of one of some hundred writes a second."""
    path = tmp_path / "state.json"
    pause = random.Random(11)

    for _ in range(6):
        process = started(ALTERNATING_WRITER, path)
        time.sleep(pause.uniform(0.0, 0.05))
        kill(process)

        assert path.read_text() in ("a" * SIZE, "b" * SIZE)


def test_readers_see_whole_files_only(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    process = started(ALTERNATING_WRITER, path)

    seen = {path.read_text() for _ in range(200)}

    kill(process)
    assert seen <= {"a" * SIZE, "b" * SIZE}


def test_an_exception_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, "old")

    def fail(path: Path) -> None:
        with new_file(path) as file:
            file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(path)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_modes(tmp_path: Path) -> None:
    """A new file is its owner's only unless another mode is asked for; an existing one keeps its mode."""
    path, program = tmp_path / "state.json", tmp_path / "program"

    replace_file(path, "secret")
    replace_file(program, "#!/bin/sh", mode=0o755)
    modes = [mode(path), mode(program)]
    path.chmod(0o640)
    replace_file(path, "secret")

    assert modes == ["0o600", "0o755"]
    assert mode(path) == "0o640"


def test_bytes_and_text(tmp_path: Path) -> None:
    replace_file(tmp_path / "text", "Vänersborg")
    replace_file(tmp_path / "bytes", b"\xff")

    assert (tmp_path / "text").read_bytes() == "Vänersborg".encode()
    assert (tmp_path / "bytes").read_bytes() == b"\xff"


@pytest.mark.parametrize("fsync", [True, False])
def test_content_is_on_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fsync: bool
) -> None:
    """A rename that is written first would name an empty file after a power cut."""
    calls: list[str] = []
    rename: Callable[[Path, Path], Path] = Path.replace

    def replace(source: Path, target: Path) -> Path:
        calls.append("rename")
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    monkeypatch.setattr(Path, "replace", replace)

    replace_file(tmp_path / "file", "content", fsync=fsync)

    assert calls == (["fsync", "rename", "fsync"] if fsync else ["rename"])


def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = started(LOCK_HOLDER, path, "exclusive")

    with FileLock(path) as lock:
        with pytest.raises(BlockingIOError):
            lock.acquire()
        kill(holder)
        lock.acquire(wait=True)

    assert mode(path) == "0o600"


def test_shared_locks_exclude_exclusive_ones_only(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = started(LOCK_HOLDER, path, "shared")

    with FileLock(path) as shared, FileLock(path) as exclusive:
        shared.acquire(shared=True)
        with pytest.raises(BlockingIOError):
            exclusive.acquire()

    kill(holder)


def test_a_folder_can_be_locked(tmp_path: Path) -> None:
    with FileLock(tmp_path).acquire(), FileLock(tmp_path) as other, pytest.raises(BlockingIOError):
        other.acquire()

    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_created_only_if_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "lock", create=False)

    assert list(tmp_path.iterdir()) == []


def test_changes_are_found_once_a_second(tmp_path: Path) -> None:
    """Of content, by an exchanged link and of a file that goes or comes; a second look within a second is none."""
    file, link = tmp_path / "tokens", tmp_path / "link"
    for name in ("old", "new"):
        (tmp_path / name).write_text("same")
    link.symlink_to(tmp_path / "old")
    seconds = [0.0]
    changes = FileChanges([file, link], clock=lambda: seconds[0])

    def found(after: float = 2.0) -> bool:
        seconds[0] += after
        return changes.found()

    assert not found()
    file.write_text("a")
    assert not found(0.5)
    assert found()
    assert not found()
    link.unlink()
    link.symlink_to(tmp_path / "new")
    assert found()
    file.unlink()
    assert found()
    read_files_again()
    assert found(0.0)
    assert not found()
