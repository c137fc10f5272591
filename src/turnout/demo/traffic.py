"""Publisher and listener in processes of their own, so that the measured system does not delay their clocks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from turnout.background import run_once
from turnout.errors import RunError
from turnout.records.types import Fields

_PATIENCE_SECONDS = 60.0


class Traffic:
    """Messages at a steady rate, and their ages where they arrive.

    Args:
        publisher: the arguments of Python for a program that does what `turnout.demo.pace.serve` does.
        url: URL of the server.
        subject: subject of the delivered messages.
        folder: working folder of the programs; None for the current one.
    """

    def __init__(self, publisher: Sequence[str], url: str, subject: str, folder: Path | None = None) -> None:
        self._folder = folder
        self._processes = ExitStack()
        self._publisher = self._started(publisher)
        self._url, self._subject = url, subject

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()

    def measured(
        self, on_second: Callable[[Fields], None] | None = None, stop: threading.Event | None = None
    ) -> Fields:
        """Have everything sent, and return the ages of all messages.

        Args:
            on_second: called about once a second with the ages so far, and of the last second.
            stop: ends it early.

        Raises:
            RunError: a process failed, or nothing was delivered.
        """
        self._expect(self._publisher, "ready")
        listener = self._started(["-m", "turnout.demo.ages", self._url, self._subject])
        self._expect(listener, "ready")
        assert self._publisher.stdin is not None
        self._publisher.stdin.write("go\n")
        self._publisher.stdin.flush()
        ender = run_once("end of the measurement", lambda: self._end(listener, stop or threading.Event()))
        summary: Fields = {"count": 0}
        for line in self._lines(listener):
            report = json.loads(line)
            summary = report["all"]
            if on_second is not None and "last" in report:
                on_second(report)
        ender.join(_PATIENCE_SECONDS)
        for process in (self._publisher, listener):
            if process.wait(_PATIENCE_SECONDS) and not (stop is not None and stop.is_set()):
                raise RunError(f"the latency was not measured: {self._complaint(process)}")
        if not summary["count"]:
            raise RunError("no message was delivered")
        return summary

    def _end(self, listener: subprocess.Popen[str], stop: threading.Event) -> None:
        """End the listener's input when the publisher has ended."""
        while self._publisher.poll() is None:
            if stop.wait(0.1):
                self._publisher.terminate()
                self._publisher.wait()
        assert listener.stdin is not None
        listener.stdin.close()

    def _started(self, arguments: Sequence[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder,
        )
        self._processes.callback(_ended, process)
        return process

    def _expect(self, process: subprocess.Popen[str], word: str) -> None:
        if next(self._lines(process), "") != word:
            process.wait(_PATIENCE_SECONDS)
            raise RunError(f"the latency was not measured: {self._complaint(process)}")

    @staticmethod
    def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
        assert process.stdout is not None
        return (line.strip() for line in iter(process.stdout.readline, ""))

    @staticmethod
    def _complaint(process: subprocess.Popen[str]) -> str:
        assert process.stderr is not None
        return process.stderr.read().strip()[-500:] or f"a process ended with {process.returncode}"


def _ended(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
