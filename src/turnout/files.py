"""Atomic writing of files, and locks on files and folders."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self


@contextmanager
def new_file(path: Path, *, mode: int = 0o600, fsync: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes its name at the end of this block, in place of the one that had it.

    At every moment, also after a kill or a power cut, the name is that of the old or of the new file, whole. After an
    exception the old one is kept. A kill in the middle leaves ``NAME.NUMBER.tmp`` beside it.

    Args:
        path: replaced atomically; a link of this name is replaced itself, not the file that it points to.
        mode: mode of a new file, less the umask; an existing file keeps its mode.
        fsync: False saves a wait for the disk, for reproducible files: after a power cut the new file may be cut
            off.
    """
    part = path.with_name(f"{path.name}.{secrets.randbelow(1 << 32)}.tmp")
    with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        try:
            yield file
            file.flush()
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            if fsync:
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    if fsync:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o600, fsync: bool = True) -> None:
    """Write a file atomically; text is written in UTF-8. See `new_file`."""
    with new_file(path, mode=mode, fsync=fsync) as file:
        file.write(content.encode() if isinstance(content, str) else content)


class FileLock:
    """Advisory lock on a file, which is created for its owner only if it is missing, or on an existing folder.

    The kernel releases it when the process ends, kill -9 included: a leftover file blocks no other process.

    Args:
        path: path of the file or folder.
        create: False if a missing file is an error.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        flags = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_NOFOLLOW | create * os.O_CREAT
        self.descriptor = os.open(path, flags, 0o600)

    def acquire(self, *, wait: bool = False, shared: bool = False) -> Self:
        """Lock it, against all other processes or, if *shared*, against exclusive locks only.

        Args:
            wait: for the release of other locks.
            shared: allow other shared locks.

        Raises:
            BlockingIOError: another process holds a lock.
            OSError: the file system has no locks.
        """
        fcntl.flock(self.descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        return self

    def release(self) -> None:
        """Release and close it, also if it was not acquired."""
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
