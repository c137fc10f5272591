"""Messages at a steady rate, each with the time at which it was sent, and their ages on arrival.

Publisher and listener are processes of their own, so that the measured system does not delay their clocks:
``python -m turnout.demo.traffic send URL RATE COUNT`` makes the frames of flights, prints ``ready``, and sends them
when it reads a line; ``… listen URL SUBJECT`` prints ``ready``, the percentiles once a second as JSON, and at the end
those of all messages. It ends when its input has ended and no more messages arrive.
"""

from __future__ import annotations

import json
import mmap
import re
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from turnout.base.background import run_once
from turnout.errors import ConnectionLostError, RunError
from turnout.nats.protocol.frames import frame
from turnout.nats.protocol.headers import MESSAGE_ID, encode
from turnout.nats.wire import Connection
from turnout.nats.wire.records import locate, with_room
from turnout.records.types import Fields

_PATIENCE_SECONDS = 60.0


class Traffic:
    """Messages at a steady rate, and their ages where they arrive.

    Args:
        publisher: the arguments of Python for a program that does what `serve` does.
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

    def __exit__(self, *_: object) -> None:
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
        listener = self._started(["-m", "turnout.demo.traffic", "listen", self._url, self._subject])
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


SENT: Final = "Sent"
"""The header with the time at which a message was sent, in seconds."""

_MARK: Final = b"Sent: "
_STAMP: Final = b"%017.6f"
_STAMP_BYTES: Final = 17
_TICK_SECONDS: Final = 0.002
"""Messages are sent in steps of this length: no bursts that a reader would take as a whole."""


class PacedMessages:
    """Frames of messages, kept in a file until they are sent, so that making them delays none of them."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._edges = array("q", [0])
        self._stamps = array("q")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, subject: str, headers: Iterable[tuple[str, str]], payload: bytes) -> None:
        """Add a message, to be sent with one more header."""
        # The first header is the time's, so that its place is known whatever the others hold.
        data = frame(subject, payload, head=encode([(SENT, _STAMP % 0), *headers]))
        self._file.write(data)
        self._stamps.append(self._edges[-1] + data.index(_MARK) + len(_MARK))
        self._edges.append(self._edges[-1] + len(data))

    def send(self, connection: Connection, rate: float) -> None:
        """Send all messages, *rate* of them a second."""
        self._file.flush()
        step = max(1, round(rate * _TICK_SECONDS))
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            begun = time.monotonic()
            for first in range(0, len(self), step):
                time.sleep(max(0.0, begun + first / rate - time.monotonic()))
                connection.send(self._stamped(data, first, min(len(self), first + step)))
        connection.ping()

    def _stamped(self, data: mmap.mmap, first: int, last: int) -> bytearray:
        """Return the frames of some messages with the present time."""
        begin = self._edges[first]
        frames = bytearray(data[begin : self._edges[last]])
        stamp = _STAMP % time.time()
        for at in self._stamps[first:last]:
            frames[at - begin : at - begin + _STAMP_BYTES] = stamp
        return frames


def serve(url: str, rate: float, messages: Iterable[tuple[str, Iterable[tuple[str, str]], bytes]]) -> None:
    """Make the frames, report it, and send them after a line on standard input."""
    with PacedMessages() as paced:
        for subject, headers, payload in messages:
            paced.add(subject, headers, payload)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        # The parent process has ended if the input ends.
        if sys.stdin.readline() and len(paced):
            with Connection.open(url) as connection:
                paced.send(connection, rate)


_SENT: Final = re.compile(rb"\r\n%b: ([0-9.]{1,20})\r\n" % SENT.encode())
_EVERY_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 2.0
_WAIT_SECONDS: Final = 0.1
_LEAST_SECONDS: Final = 1e-5
_LOG_STEP: Final = 0.01
_STEPS: Final = 1800
"""Ages are counted in steps of a hundredth, from a hundredth of a millisecond to ten minutes."""

_PERCENTILES: Final = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "max_ms": 100}


class Ages:
    r"""Ages of messages, in seconds.

    >>> ages = Ages()
    >>> ages.take(b"HMSG out 1 40 42\r\nNATS/1.0\r\nSent: 100.000000\r\n\r\nhi\r\n", now=100.004)
    >>> ages.second()["last"]
    {'count': 1, 'p50_ms': 4.0, 'p90_ms': 4.0, 'p99_ms': 4.0, 'max_ms': 4.0}
    >>> ages.second()["last"], ages.summary()["count"]
    ({'count': 0}, 1)
    """

    def __init__(self) -> None:
        self._ages = array("d")
        self._reported_count = 0
        self._steps = np.zeros(_STEPS, np.int64)

    def take(self, frames: bytes | bytearray | memoryview, now: float) -> None:
        """Add the ages of the messages of some whole frames, which have arrived now."""
        self._ages.extend(now - float(sent) for sent in _SENT.findall(frames))

    def second(self) -> Fields:
        """Return the numbers and percentiles since the last call, and of all messages to within a hundredth.

        Those of all are taken from counts: to sort millions of ages would delay the messages that arrive meanwhile.
        """
        ages = np.frombuffer(self._ages, np.float64)[self._reported_count :].copy()
        self._reported_count = len(self._ages)
        if len(ages):
            steps = np.log(np.maximum(ages, _LEAST_SECONDS) / _LEAST_SECONDS) / _LOG_STEP
            self._steps += np.bincount(np.minimum(steps.astype(np.int64), _STEPS - 1), minlength=_STEPS)
        reached = np.cumsum(self._steps)
        ranks = np.array(list(_PERCENTILES.values())) / 100 * reached[-1]
        values = _LEAST_SECONDS * np.exp((np.searchsorted(reached, ranks) + 0.5) * _LOG_STEP)
        return {"last": _summary(ages), "all": _named(int(reached[-1]), values)}

    def summary(self) -> Fields:
        """Return the number of all messages and their exact percentiles in milliseconds."""
        return _summary(np.frombuffer(self._ages, np.float64))


def _summary(ages: NDArray[np.float64]) -> Fields:
    return _named(len(ages), np.percentile(ages, list(_PERCENTILES.values())) if len(ages) else ages)


def _named(count: int, values: NDArray[np.float64]) -> Fields:
    if not count:
        return {"count": 0}
    named = {name: round(1000 * float(value), 3) for name, value in zip(_PERCENTILES, values, strict=True)}
    return {"count": count, **named}


def listen(url: str, subject: str) -> None:
    """Print the ages of the messages on a subject, until the input has ended and it is quiet."""
    ended, ages = threading.Event(), Ages()
    run_once("reading of the input", lambda: _set_at_end_of_input(ended))
    with Connection.open(url) as connection:
        connection.subscribe(subject)
        connection.ping()
        _print("ready")
        memory, filled = bytearray(1 << 20), 0
        heard = reported = time.monotonic()
        while not ended.is_set() or time.monotonic() < heard + _QUIET_SECONDS:
            memory = with_room(memory, filled)
            with memoryview(memory) as view:
                count = connection.receive_into(view[filled:], _WAIT_SECONDS)
            now = time.time()
            if count:
                heard, filled = time.monotonic(), filled + count
                filled = _take_frames(connection, ages, memory, filled, now)
            if time.monotonic() >= reported + _EVERY_SECONDS:
                reported = time.monotonic()
                _print(json.dumps(ages.second()))
    _print(json.dumps({"all": ages.summary()}))


def _set_at_end_of_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _take_frames(connection: Connection, ages: Ages, memory: bytearray, filled: int, now: float) -> int:
    """Take the whole frames of a buffer; return how many bytes are left, now at its beginning."""
    located = locate(memory, filled)
    for line in located.lines:
        connection.control(line)
    ages.take(memory[: located.consumed], now)
    remaining = filled - located.consumed
    memory[:remaining] = memory[located.consumed : filled]
    return remaining


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _send_flights(url: str, rate: str, count: str) -> None:
    from turnout.demo.flights import messages

    flights = islice(messages(), int(count))
    serve(
        url,
        float(rate),
        ((one.subject, [*one.headers, (MESSAGE_ID, one.message_id)], one.payload) for one in flights),
    )


def _main(task: str, *arguments: str) -> None:
    if task == "send":
        _send_flights(*arguments)
    else:
        listen(*arguments)


if __name__ == "__main__":
    try:
        _main(*sys.argv[1:])
    except ConnectionLostError as lost:
        raise SystemExit(str(lost)) from None
