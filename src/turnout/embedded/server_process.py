"""Processes of servers: started in their own session, and ended with the program that started them."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

_PR_SET_PDEATHSIG = 1


def start_server(command: Sequence[str | Path], log: BinaryIO) -> subprocess.Popen[bytes]:
    """Start a server, with its output in *log*.

    Ctrl-C at the terminal reaches the program only, which then stops the server. If the program is killed, Linux ends
    the server; other systems leave it.
    """
    return subprocess.Popen(
        command,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def _die_with_parent() -> None:
    """Make Linux send SIGTERM to the child when the thread that started it ends, also by kill -9."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
