"""Files: locks, atomic replacement, reading with limits, and folders that only their owner can read."""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
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


_LOOK_SECONDS = 1.0
_hangups = [0]


def read_files_again() -> None:
    """Have every `FileChanges` of this process report a change once, as for SIGHUP."""
    _hangups[0] += 1


class FileChanges:
    """Changes of files, such as renewed certificates: asked as often as one likes, it looks once a second.

    Links are followed, so that a volume of Kubernetes whose link is exchanged has changed. A missing file is a state,
    too. Safe to use from several threads.

    Args:
        paths: the files.
        clock: seconds that only grow.
    """

    def __init__(self, paths: Iterable[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = tuple(paths)
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_at = clock()
        self._state = self._stamp()

    def found(self) -> bool:
        """Return True if a file has changed since the last call that returned True, or since the beginning."""
        with self._lock:
            if self._state[0] == _hangups[0] and self._clock() - self._looked_at < _LOOK_SECONDS:
                return False
            self._looked_at = self._clock()
            before, self._state = self._state, self._stamp()
            return before != self._state

    def _stamp(self) -> tuple[object, ...]:
        stamps: list[object] = [_hangups[0]]
        for path in self._paths:
            try:
                found = path.stat()
            except OSError as failure:
                stamps.append(failure.errno)
            else:
                stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return tuple(stamps)


MAX_BYTES = 16 << 20
"""Bytes of a file: four megabytes of characters of four bytes each."""


def check_file(path: Path, *, max_bytes: int = MAX_BYTES) -> None:
    """Check that a path is a regular file of at most *max_bytes*, without opening it.

    Raises:
        OSError: it is not.
    """
    try:
        found = path.stat()
    except ValueError as failure:
        raise _not_a_name(path) from failure
    _check(found, path, max_bytes)


def read_file(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a regular file of at most *max_bytes*.

    Raises:
        OSError: it is no regular file, too large, or cannot be read.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as failure:
        raise _not_a_name(path) from failure
    with os.fdopen(descriptor, "rb") as file:
        _check(os.fstat(descriptor), path, max_bytes)
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _too_large(path, max_bytes)
    return content


def _check(found: os.stat_result, path: Path, max_bytes: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if found.st_size > max_bytes:
        raise _too_large(path, max_bytes)


def _too_large(path: Path, max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"more than {max_bytes:,} bytes", str(path))


def _not_a_name(path: Path) -> OSError:
    """Return the error for a path with a NUL or a lone surrogate, for which system calls raise ValueError."""
    return OSError(errno.EINVAL, "not a file name", repr(str(path)))


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


def bundled(name: str) -> Path:
    """Return the folder ``examples`` or ``benchmarks``.

    A checkout has precedence over the copy in a wheel, so that edited examples are run.
    """
    checkout = Path(__file__).resolve().parents[3]
    is_checkout = (checkout / "pyproject.toml").exists() and (checkout / name).is_dir()
    return checkout / name if is_checkout else Path(__file__).resolve().parents[1] / "_bundle" / name
