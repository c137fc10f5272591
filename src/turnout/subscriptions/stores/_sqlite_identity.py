"""Identity of a store's file by its inode, by which replacement or removal of an open file is detected."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeAlias

from turnout.base.files import FileLock
from turnout.subscriptions.stores import _sqlite_past as past

_Inode: TypeAlias = tuple[int, int]
"""Device and number."""

_COMPANION_ENDS = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """Open database file, and the files that SQLite keeps next to it.

    Attributes:
        path: path that it was opened by.
        inode: inode of the file; None where there was none.
        companions: the inodes of SQLite's other files, by the end of their names.
    """

    path: str
    inode: _Inode | None
    companions: dict[str, _Inode] = field(default_factory=dict)

    @classmethod
    def at(cls, path: Path) -> Self:
        """Return the files that the path names now."""
        companions = {end: inode for end in _COMPANION_ENDS if (inode := _inode_of(f"{path}{end}")) is not None}
        return cls(str(path), _inode_of(path), companions)

    def is_there(self) -> bool:
        """True if the path still names the file."""
        return self.inode is not None and _inode_of(self.path) == self.inode

    def is_removed(self) -> bool:
        """True if the path names nothing."""
        return _inode_of(self.path) is None

    def clear_leftovers(self) -> None:
        """Take SQLite's files of this one away from the file that has its name now.

        SQLite finds a log by its name alone, and would write its contents over the pages of another file.
        """
        for end, inode in self.companions.items():
            name = Path(f"{self.path}{end}")
            if _inode_of(name) != inode:
                continue
            with suppress(FileNotFoundError):
                if end == "-wal" and name.stat().st_size:
                    # Not all of it could be written to the file that it belongs to.
                    name.replace(f"{name}.replaced")
                else:
                    name.unlink()


def _inode_of(path: str | Path) -> _Inode | None:
    try:
        # Checked before each transaction: a Path takes three times as long.
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Let one process at a time follow a replaced file of the folder."""
    with FileLock(folder, create=False).acquire(wait=True):
        yield


def continue_revisions(connection: sqlite3.Connection, reached: int) -> int:
    """Have everyone that follows revisions up to *reached* of another history begin again, in a write transaction.

    The numbers continue above those of the other history, and this file's changes are known from there on only: asked
    for changes since an earlier revision, it answers with everything. A process that has done so for the same
    replacement leaves nothing to do for the next one.

    Returns:
        The revision of the file now.
    """
    revision, horizon = connection.execute("SELECT revision, horizon FROM state").fetchone()
    if horizon <= reached:
        revision = max(revision, reached) + 1
        connection.execute("UPDATE state SET revision = ?, horizon = ?", (revision, revision))
        past.note_time(connection, revision)
    return int(revision)
