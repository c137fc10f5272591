"""How a person, or whoever runs the process, asks a command to end."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["stop_on_signals"]


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that the work ends at a place from which it can go on.

    A second signal does what it always did: a person who presses Ctrl-C twice does not want to wait.
    """
    stop = threading.Event()
    usual: dict[int, Any] = {}
    # A handler runs in the main thread, which may wait for the event just then and hold its lock: to set it there
    # would wait for ever. A SimpleQueue may be put into from anywhere.
    requests: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def request(number: int, _frame: FrameType | None) -> None:
        requests.put(True)
        signal.signal(number, usual[number])

    def pass_on() -> None:
        if requests.get():
            stop.set()

    listener = threading.Thread(target=pass_on, name="turnout-signals", daemon=True)
    listener.start()
    for one in (signal.SIGINT, signal.SIGTERM):
        usual[one] = signal.signal(one, request)
    try:
        yield stop
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        requests.put(False)
        listener.join()
