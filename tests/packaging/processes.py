"""A process of another environment, in which no wait is without an end, and each end says what was printed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

__all__ = ["Process"]


class Process:
    """A process with what it starts, for as long as the ``with`` block lasts.

    It prints into files: whoever lives on after it holds nobody up, and nobody has to read what it says.

    Args:
        command: the program and its arguments.
        cwd: its folder.
        environment: all of its variables.
    """

    def __init__(self, command: Sequence[str | Path], cwd: Path, environment: Mapping[str, str]) -> None:
        self.command = [str(part) for part in command]
        self._stdout, self._stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - see __exit__
        self._process = subprocess.Popen(
            self.command, cwd=cwd, env=dict(environment),
            stdin=subprocess.DEVNULL, stdout=self._stdout, stderr=self._stderr,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._stdout.close()
        self._stderr.close()

    @property
    def stdout(self) -> str:
        """Standard output so far."""
        return _content(self._stdout)

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        return _content(self._stderr)

    def finish(self, seconds: float) -> subprocess.CompletedProcess[str]:
        """Wait for its end.

        Raises:
            AssertionError: it goes on after *seconds*.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._message(f"goes on after {seconds:g} seconds")) from None
        return subprocess.CompletedProcess(self.command, code, self.stdout, self.stderr)

    def line(self, start: str, seconds: float) -> str:
        """Wait for the line of its standard error that begins with *start*.

        Raises:
            AssertionError: it ends without it, or has not said it after *seconds*.
        """
        deadline = time.monotonic() + seconds
        while True:
            code = self._process.poll()  # before it is read: what an ended process has said is all there
            line = next((line for line in self.stderr.splitlines(keepends=True) if line.startswith(start)), "")
            if line.endswith("\n"):
                return line.rstrip()
            assert code is None, self._message(f"ended with {code} and did not say {start!r}")
            assert time.monotonic() < deadline, self._message(f"has not said {start!r} after {seconds:g} seconds")
            time.sleep(0.1)

    def terminate(self, seconds: float) -> subprocess.CompletedProcess[str]:
        """Ask it to end, and wait for it as `finish` does."""
        self._process.terminate()
        return self.finish(seconds)

    def _kill(self) -> None:
        """End it and what it has started, if it still runs: it has left nothing otherwise."""
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(family, 30)
        self._process.wait(30)

    def _message(self, outcome: str) -> str:
        return f"{' '.join(self.command)}: {outcome}\nstderr: {self.stderr[-3000:]}\nstdout: {self.stdout[-3000:]}"


def _content(file: IO[bytes]) -> str:
    """All of a file that another process writes; its place in it, which both share, is not moved."""
    descriptor = file.fileno()
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
