"""End and output of a command: exit codes, a stable interface for scripts, signals that stop it, colours and notes.

Output copes with encodings that lack a letter.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO

import typer

from turnout.base.terminal import did_you_mean, printable, printable_lines
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


GOOD: Final = "green"
BAD: Final = "red"
DOUBTFUL: Final = "yellow"

Colours = Mapping[str, str]
"""Colours by the pattern of what is coloured in a line; the first that is found there wins."""

_ESCAPES: Final = "turnout.escapes"


def prepare_streams() -> None:
    r"""Have letters that the encoding of standard output or error lacks written as ``\uXXXX``, which JSON has, too."""
    codecs.register_error(_ESCAPES, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=_ESCAPES)


def _escaped(failure: UnicodeError) -> tuple[str, int]:
    if not isinstance(failure, UnicodeEncodeError):
        raise failure
    units = failure.object[failure.start : failure.end].encode("utf-16-be", errors="surrogatepass")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(f"\\u{code:04x}" for code in codes), failure.end


def has_colours(stream: TextIO) -> bool:
    """Return True for a terminal, unless NO_COLOR is set or the terminal has no colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def echo_lines(lines: Iterable[str], colours: Colours | None = None, *, err: bool = False) -> None:
    """Print lines without what controls a terminal, on a terminal with the parts coloured that patterns name."""
    stream = sys.stderr if err else sys.stdout
    if not colours or not has_colours(stream):
        typer.echo(printable_lines(lines), err=err)
        return
    pattern = re.compile("|".join(f"({part})" for part in colours))
    names = list(colours.values())

    def styled(found: re.Match[str]) -> str:
        assert found.lastindex is not None
        return typer.style(found[0], fg=names[found.lastindex - 1], bold=names[found.lastindex - 1] == BAD)

    for line in lines:
        typer.echo(pattern.sub(styled, printable_lines([line]), count=1), err=err)


def tell(text: str, *, level: int = logging.INFO, label: str = "") -> None:
    """Print a sentence about the command itself on standard error; a line of the log if that is JSON.

    Args:
        text: the sentence.
        level: its level in the log.
        label: the beginning of the printed line, as ``note: ``.
    """
    logs = sys.modules.get("turnout.base.terminal")
    if logs is not None and logs.logs_json():
        logging.getLogger("turnout").log(level, "%s", text)
    else:
        sys.stderr.write(f"{label}{printable(text)}\n")
        sys.stderr.flush()


def similar_file(path: Path) -> str:
    """Return ``; did you mean "x"?`` for a path that does not exist, if its folder has a file of a similar name."""
    try:
        guess = did_you_mean(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        return ""
    # As it is typed: with its folder.
    return guess.replace('"', f'"{path.parent}/', 1) if guess and path.parent != Path() else guess
