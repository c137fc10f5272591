"""Runs benchmarks, each in a process of its own, and gives a row for each case as soon as there is one.

A case that fails is a row with the error, one that cannot be measured here a row with the reason, and one that hangs is
ended with all its processes when the benchmark's time is over.
"""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from benchmarks.harness import CannotRunError, Options
from turnout.errors import MissingExtraError
from turnout.loops import compile_loops

Row = dict[str, Any]

SHARES = {
    "match": 150, "peers": 170, "transforms": 20, "route": 50, "nats": 100, "store": 30, "feeds": 30, "memory": 15,
    "growth": 40, "subjects": 60, "history": 40, "jetstream": 30, "push_down": 35, "analyze": 20, "kafka": 45,
    "cluster": 110, "codecs": 35, "lake": 60, "webhooks": 30, "scheduled": 30, "overhead": 0, "idle": 0,
}  # fmt: skip
"""Order in which all benchmarks run, and the share of a budget; the last two take minutes and get what is left."""

_GRACE_SECONDS = 30.0
_SETUP = "(setup)"


def rows(name: str, options: Options, seconds: float | None = None) -> Iterator[Row]:
    """Measure the cases of one benchmark, in a child process."""
    if seconds is not None and seconds <= 0:
        yield _unmeasured("(all cases)", "skipped", "the time for all benchmarks was over")
        return
    deadline = None if seconds is None else time.monotonic() + seconds
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, options, deadline, sender))
    process.start()
    sender.close()
    try:
        yield from _received(receiver, None if deadline is None else deadline + _GRACE_SECONDS)
    finally:
        _end(process)


def _received(receiver: Connection, deadline: float | None) -> Iterator[Row]:
    case = _SETUP
    while True:
        if not receiver.poll(None if deadline is None else max(0.0, deadline - time.monotonic())):
            yield _unmeasured(case, "failed", "ended, as the time for this benchmark was over")
            return
        try:
            row = receiver.recv()
        except EOFError:
            yield _unmeasured(case, "failed", "the process of the benchmark died")
            return
        if row is None:
            return
        if row["status"] == "running":
            case = row["case"]
        else:
            yield row


def _end(process: BaseProcess) -> None:
    """Wait for a process that is done, and kill one that is not, with everything below it."""
    process.join(10)
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True) if process.is_alive() else []
        process.kill()
        for child in family:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.join()


def _work(name: str, options: Options, deadline: float | None, sender: Connection) -> None:
    # Whoever asked for the rows may be gone.
    with suppress(BrokenPipeError):
        for row in measured(name, options, deadline):
            sender.send(row)
        sender.send(None)


def measured(name: str, options: Options, deadline: float | None = None) -> Iterator[Row]:
    """Measure the cases of one benchmark in this process; what happens to one case leaves the others alone."""
    # As in the workers of a run.
    compile_loops()
    try:
        for case in importlib.import_module(f"benchmarks.{name}").cases(options):
            if not options.wants(case.name):
                continue
            if deadline is not None and time.monotonic() > deadline:
                yield _unmeasured(case.name, "skipped", "the time for this benchmark was over")
                continue
            yield {"case": case.name, "status": "running"}
            try:
                for result in case.measure():
                    yield result.row()
            except Exception as error:  # noqa: BLE001 - the other cases are worth measuring
                yield _failure(case.name, error)
    except Exception as error:  # noqa: BLE001 - likewise those of the other benchmarks
        yield _failure(_SETUP, error)


def _failure(case: str, error: Exception) -> Row:
    if isinstance(error, CannotRunError):
        return _unmeasured(case, "skipped", str(error))
    if isinstance(error, ModuleNotFoundError):
        return _unmeasured(case, "skipped", str(MissingExtraError("all", error.name or "a module")))
    traceback.print_exception(error)
    return _unmeasured(case, "failed", f"{type(error).__name__}: {error}"[:1000])


def _unmeasured(case: str, status: str, reason: str) -> Row:
    return {"case": case, "status": status, "reason": reason}
