"""Folders and files that only their owner can read: temporary ones, removed after the run, and permanent ones.

A temporary folder is in use as long as a process holds a lock on the file ``.owner`` in it. The lock ends with the
process, so the creator of the next folder removes those of killed processes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from turnout.files import FileLock

_OWNER = ".owner"
_NAMES = "turnout-*"

_locks: dict[Path, FileLock] = {}
"""The folders that this process holds, and their locks."""


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """Create a temporary folder for this block, removed at its end, or by the next run after a kill."""
    folder = _new_folder(kind)
    try:
        yield folder
    finally:
        remove(folder)


def lasting_folder(kind: str) -> Path:
    """Create a temporary folder that is removed when this process ends, or by the next run after a kill."""
    folder = _new_folder(kind)
    atexit.register(_remove_of, os.getpid(), folder)
    return folder


def _remove_of(process: int, folder: Path) -> None:
    # A process that was forked ends before its parent does.
    if process == os.getpid():
        remove(folder)


def _new_folder(kind: str) -> Path:
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"turnout-{kind}-"))
    hold(folder)
    return folder


def remove(folder: Path) -> None:
    """Remove a temporary folder before its owner ends."""
    shutil.rmtree(folder, ignore_errors=True)
    lock = _locks.pop(folder, None)
    if lock is not None:
        lock.release()


def hold(folder: Path) -> None:
    """Create the folder if it is missing, and keep it from removal by `sweep` until this process ends."""
    while folder not in _locks:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = FileLock(folder / _OWNER).acquire(wait=True, shared=True)
        except FileNotFoundError:
            continue
        if os.fstat(lock.descriptor).st_nlink:
            _locks[folder] = lock
        else:
            # It was swept away before it was ours.
            lock.release()


def sweep() -> None:
    """Remove this user's temporary folders of turnout whose owners have ended. Folders that cannot be removed stay."""
    for folder in Path(tempfile.gettempdir()).glob(_NAMES):
        with suppress(OSError):
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                _sweep(folder)


def _sweep(folder: Path) -> None:
    # Without the file it is none of ours, or one that is just being made.
    with FileLock(folder / _OWNER, create=False) as lock:
        lock.acquire()
        (folder / _OWNER).unlink()
        shutil.rmtree(folder, ignore_errors=True)


def private_folder(folder: Path) -> Path:
    """Create the folder for its owner only if it is missing; an existing one keeps its mode."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def private_file(file: Path) -> Path:
    """Create the file, empty and for its owner only, if it is missing; an existing one keeps its mode."""
    with suppress(OSError):
        # A failure is reported when the file is opened.
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    return file


def append_privately(file: Path) -> BinaryIO:
    """Open a file for appending; a new one is readable by its owner only."""
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
