"""End of a command: its exit code, a stable interface for scripts, and the signals that stop it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

from turnout.errors import (
    ConditionError,
    ConfigError,
    MissingExtraError,
    RouteError,
    SubjectError,
    SubscriptionInvalidError,
    TurnoutError,
)

if TYPE_CHECKING:
    import socket

DONE = 0
FAILED = 1
WRONG_REQUEST = 2
# A signal cut the work off: 128 and the number of SIGINT. Commands without an end of their own (run, serve, tail …) are
# done; with one (run --once, tail --count, deliver --drain …) they are not.
INTERRUPTED = 130
# What reads the output has ended (`turnout tail … | head`): 128 and the number of SIGPIPE.
OUTPUT_CLOSED = 141

_WRONG_REQUESTS = (
    SubjectError,
    ConditionError,
    ConfigError,
    RouteError,
    SubscriptionInvalidError,
    MissingExtraError,
)


def exit_code_of(failure: TurnoutError) -> int:
    """Return 2 for a request that cannot be fulfilled, 1 for work that failed."""
    return WRONG_REQUEST if isinstance(failure, _WRONG_REQUESTS) else FAILED


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, so that the work stops at a point where it can be resumed.

    A second signal has its default effect: pressing Ctrl-C twice does not wait.

    Python runs handlers in the main thread, when that thread runs. It may wait for the event just then: a handler that
    set it would wait for its lock for ever. If the system gives the signal to another thread, of which gRPC has some,
    the main thread does not even wake up. So a thread of its own gets signals by the descriptor that Python's C
    code writes to, whichever thread gets them.
    """
    import socket

    from turnout.base.background import run_once

    stop = threading.Event()
    usual: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def give_back(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, usual[number])

    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        listener = run_once("listener of signals", lambda: _listen(receiver, stop))
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            usual[number] = signal.signal(number, give_back)
        try:
            yield stop
        finally:
            for signal_, handler in usual.items():
                signal.signal(signal_, handler)
            signal.set_wakeup_fd(before)
            sender.shutdown(socket.SHUT_WR)
            listener.join()


def _listen(receiver: socket.socket, stop: threading.Event) -> None:
    """Set the event after one of the signals' numbers is received; end after the other socket is closed."""
    while numbers := receiver.recv(64):
        if any(number in _SIGNALS for number in numbers):
            stop.set()
