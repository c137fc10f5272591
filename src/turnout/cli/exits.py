"""End of a command: its exit code, a stable interface for scripts, and the signals that stop it."""

from __future__ import annotations

import logging
import signal
import sys
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

_log = logging.getLogger(__name__)

DONE = 0
FAILED = 1
WRONG_REQUEST = 2
# A signal cut the work off: 128 and the number of SIGINT. Commands without an end of their own (run, serve, tail …) are
# done; with one (run --once, tail --limit, deliver --drain …) they are not.
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


def say_stopping() -> None:
    """Say that a signal has arrived: until the work can stop, nothing else is to be seen of it."""
    if sys.stderr.isatty():
        # The terminal has written ^C.
        sys.stderr.write("\nstopping after the work under way; Ctrl-C again ends at once\n")
        sys.stderr.flush()
    else:
        _log.info("stopping after the work under way")


def read_again() -> None:
    """Have files that are followed, as certificates and tokens, read again: what SIGHUP asks for."""
    from turnout.base.files import read_files_again

    read_files_again()
    _log.info("SIGHUP: certificates and tokens are read again")


@contextmanager
def stop_on_signals(
    on_stop: Callable[[], None] = say_stopping, on_hangup: Callable[[], None] | None = None
) -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, so that the work stops at a point where it can be resumed.

    A second signal has its default effect: pressing Ctrl-C twice does not wait.

    Python runs handlers in the main thread, when that thread runs. It may wait for the event just then: a handler that
    set it would wait for its lock for ever. If the system gives the signal to another thread, of which gRPC has some,
    the main thread does not even wake up. So a thread of its own gets signals by the descriptor that Python's C
    code writes to, whichever thread gets them.

    Args:
        on_stop: called on that thread when the first signal arrives.
        on_hangup: called on that thread at each SIGHUP, which ends the process if there is none.
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
        listener = run_once("listener of signals", lambda: _listen(receiver, stop, on_stop, on_hangup))
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            usual[number] = signal.signal(number, give_back)
        if on_hangup is not None:
            # A handler has to be there for the number to be written.
            usual[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: None)
        try:
            yield stop
        finally:
            for signal_, handler in usual.items():
                signal.signal(signal_, handler)
            signal.set_wakeup_fd(before)
            sender.shutdown(socket.SHUT_WR)
            listener.join()


def _listen(
    receiver: socket.socket,
    stop: threading.Event,
    on_stop: Callable[[], None],
    on_hangup: Callable[[], None] | None,
) -> None:
    """Set the event after one of the signals' numbers is received; end after the other socket is closed."""
    while numbers := receiver.recv(64):
        if on_hangup is not None and signal.SIGHUP in numbers:
            on_hangup()
        if any(number in _SIGNALS for number in numbers) and not stop.is_set():
            stop.set()
            on_stop()
