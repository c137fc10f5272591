"""Lock of a checkpoint: one run at a time; the error of a second run names the first."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from turnout.base.files import FileLock
from turnout.errors import RunError

_NAME: Final = "run.lock"

_log = logging.getLogger(__name__)


@contextmanager
def claimed(folder: Path | None) -> Iterator[None]:
    """Keep the checkpoint in *folder* for this run; None, for one that is not on this machine, keeps nothing.

    The contents of a leftover file are ignored: it counts only while it is locked.

    Raises:
        RunError: another run has the checkpoint (the message names its process, host and beginning), or the folder
            cannot be written.
    """
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _NAME)
    except OSError as failure:
        raise RunError(f"the checkpoint {folder} cannot be written: {failure.strerror}") from failure
    with lock:
        _acquire(lock, folder)
        yield


def _acquire(lock: FileLock, folder: Path) -> None:
    try:
        lock.acquire()
    except BlockingIOError:
        raise RunError(
            f"another run has the checkpoint {folder}: {_holder(lock)};"
            " wait for its end or stop it, or give this run a checkpoint of its own"
        ) from None
    except OSError as failure:
        _log.warning("the checkpoint %s is not guarded against a second run: %s", folder, failure.strerror)
        return
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    # The lock is what counts: a full disk has its own, clearer words later.
    with suppress(OSError):
        os.truncate(lock.descriptor, 0)
        os.write(lock.descriptor, json.dumps(about).encode())


def _holder(lock: FileLock) -> str:
    """Return the first run's description of itself."""
    try:
        about = json.loads(os.pread(lock.descriptor, 4096, 0))
        return f"process {about['pid']} on {about['host']}, since {about['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has not said which it is"
