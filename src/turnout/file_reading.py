"""Bounded reading of files that a configuration names or that a watched folder contains.

Such a name may be that of a pipe, which blocks forever, of a device, which has no end, or of a file of a gigabyte.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

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
