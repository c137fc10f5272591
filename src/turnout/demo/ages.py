"""Ages of messages on arrival, by the time at which each was sent.

``python -m turnout.demo.ages URL SUBJECT`` listens in a process of its own: it prints ``ready``, the percentiles once a
second as JSON, and at the end those of all messages. It ends when its input has ended and no more messages arrive.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from turnout.background import run_once
from turnout.demo.pace import SENT
from turnout.errors import ConnectionLostError
from turnout.nats.wire import Connection
from turnout.nats.wire.frames import locate, with_room
from turnout.records.types import Fields

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


if __name__ == "__main__":
    try:
        listen(sys.argv[1], sys.argv[2])
    except ConnectionLostError as lost:
        raise SystemExit(str(lost)) from None
