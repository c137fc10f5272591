"""Plugin of pytest that executes the modules of tests in several processes, forked when all tests have been collected.

``python -m pytest -p tools.forked_tests --processes 6``. Importing and collecting the tests takes 16 s of processor
time, and more before there is bytecode. A forked process has them already, where one of pytest-xdist would begin again.

A module is executed by one process, and so are all modules that share a fixture of their package. The processes take
modules in the order of the collection. Those with a test marked ``session`` are executed by a third of the processes
only, as each of these has to start a session, of some 20 s of processor time.

At the end the modules are printed that took longest; with ``--processor-time`` those that used most of it, with all
that they started. Orphans of a process that a test starts then come to the test's process and are counted, so a test
that asks whether such a one is gone may find it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import itertools
import os
import struct
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from _pytest.runner import runtestprotocol

_TICKET: Final = struct.Struct("H")
"""Index of a part, as the processes read them from a pipe: so few bytes are written and read at once."""


_LONGEST: Final = 40
"""How many of the longest parts are printed at the end: what makes a run long is to be seen."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="number of processes that execute the tests")
    parser.addoption("--after", type=int, help="file descriptor of a pipe, at whose end the tests begin")
    parser.addoption("--processor-time", action="store_true", help="print the processor time of modules")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: what is collected stays, and would be traversed again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Execute the tests in several processes; leave it to pytest where one is enough."""
    count = session.config.getoption("--processes")
    is_enough = count < 2 and not session.config.getoption("--processor-time")
    if is_enough or session.testsfailed or session.config.getoption("--collect-only"):
        return None
    after = session.config.getoption("--after")
    if after is not None:
        os.read(after, 1)
    _Run(session, _parts(session.items)).execute(count)
    return True


def _parts(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the items in parts for one process each: a module, or those that share a fixture of their package."""
    packages: dict[Path, str] = {}
    for item in items:
        fixtures = getattr(item, "_fixtureinfo", None)
        for definitions in fixtures.name2fixturedefs.values() if fixtures else ():
            if definitions[-1].scope == "package":
                packages[item.path] = definitions[-1].baseid
    parts: dict[Path | str, list[pytest.Item]] = {}
    for item in items:
        parts.setdefault(packages.get(item.path, item.path), []).append(item)
    return list(parts.values())


_ADOPT_ORPHANS: Final = 36
"""PR_SET_CHILD_SUBREAPER of Linux's prctl."""


def _processor_seconds() -> float:
    """Return the processor time of this process and of all that it has started, of those that have ended too."""
    process = psutil.Process()
    used = 0.0
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            used += sum(one.cpu_times()[:4])
    return used


def _pipe_of(numbers: Iterable[int]) -> int:
    """Return the reading end of a pipe with these numbers."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(map(_TICKET.pack, numbers)))
    os.close(writing)
    return reading


@dataclass(slots=True)
class _Process:
    """Forked process, as its parent sees it.

    Attributes:
        id: its process id.
        output: where its messages are read.
        open_items: items of the parts it has taken that have not ended.
        taken: the parts it has taken, and when, in monotonic seconds; after its end, the time of that.
    """

    id: int
    output: Connection[Any, Any]
    open_items: dict[str, pytest.Item] = field(default_factory=dict)
    taken: list[tuple[int | None, float]] = field(default_factory=list)


class _Run:
    """Execution of all parts.

    Args:
        session: pytest's session, in which reports of all processes arrive.
        parts: the items that one process executes, one after the other.
    """

    def __init__(self, session: pytest.Session, parts: list[list[pytest.Item]]) -> None:
        self._session = session
        self._hook = session.config.hook
        self._parts = parts
        self._used: Counter[str] = Counter()
        with_session = [any(item.get_closest_marker("session") for item in part) for part in parts]
        self._session_tickets = _pipe_of(number for number, has in enumerate(with_session) if has)
        self._tickets = _pipe_of(number for number, has in enumerate(with_session) if not has)

    def execute(self, count: int) -> None:
        """Execute the parts in *count* processes, and pass on their reports as they come."""
        factory = self._session.config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001
        folder = factory.getbasetemp()
        begun = time.monotonic()
        reporter = self._session.config.pluginmanager.getplugin("terminalreporter")
        if reporter:
            # Tests of several modules end in turn: their names would be a line for each.
            reporter.showfspath = False
        gc.collect()
        # What has been collected lives to the end: neither the parent nor a child has to traverse it again.
        gc.freeze()
        both = [self._session_tickets, self._tickets]
        processes = [
            self._fork(folder / f"process-{number}", both if number < -(-count // 3) else [self._tickets])
            for number in range(min(count, len(self._parts)))
        ]
        try:
            self._pass_on(processes)
        finally:
            for tickets in both:
                os.close(tickets)
            for process in processes:
                process.output.close()
                os.waitpid(process.id, 0)
        if reporter:
            reporter.write_line("")
            for line in self._times(processes, begun):
                reporter.write_line(line)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)

    def _fork(self, folder: Path, tickets: list[int]) -> _Process:
        """Fork a process that takes the parts of these pipes, with its temporary files in *folder*."""
        reading, writing = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        process_id = os.fork()
        if process_id:
            writing.close()
            return _Process(process_id, reading)
        code = 1
        try:
            reading.close()
            folder.mkdir(0o700)
            self._session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]  # noqa: SLF001
            _Executor(self._session, self._parts, tickets, writing).execute()
            code = 0
        except KeyboardInterrupt:
            pass  # The parent has had it, too, and says so.
        except BaseException:  # noqa: BLE001 - the stack above is the parent's
            traceback.print_exc()
        finally:
            # Temporary folders are removed there. More would be to end the parent's session a second time.
            atexit._run_exitfuncs()  # noqa: SLF001
            os._exit(code)

    def _pass_on(self, processes: list[_Process]) -> None:
        """Pass on what the processes report until all have ended."""
        reporting = {process.output: process for process in processes}
        while reporting:
            for output in wait(list(reporting)):
                process = reporting[output]  # type: ignore[index]
                try:
                    message = process.output.recv()
                except (EOFError, OSError):
                    # It has ended, perhaps in the middle of a message.
                    del reporting[process.output]
                    process.taken.append((None, time.monotonic()))
                    self._fail_open_items(process)
                else:
                    self._take(process, message)

    def _take(self, process: _Process, message: dict[str, Any]) -> None:
        """Take one message of a process."""
        if "part" in message:
            process.taken.append((message["part"], time.monotonic()))
            process.open_items |= {item.nodeid: item for item in self._parts[message["part"]]}
        elif "used" in message:
            self._used[message["module"]] += message["used"]
        elif "warning" in message:
            warning = warnings.WarningMessage(UserWarning(message["warning"]), UserWarning, *message["line"])
            recorded = {"warning_message": warning, "when": "runtest", "nodeid": message["nodeid"], "location": None}
            self._hook.pytest_warning_recorded.call_historic(kwargs=recorded)
        elif "begun" in message:
            item = process.open_items[message["begun"]]
            self._hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif "ended" in message:
            item = process.open_items.pop(message["ended"])
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        else:
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=message)
            self._hook.pytest_runtest_logreport(report=report)
            if self._session.shouldfail:
                # No process takes another part.
                for tickets in (self._session_tickets, self._tickets):
                    while os.read(tickets, _TICKET.size):
                        pass

    def _times(self, processes: list[_Process], begun: float) -> Iterator[str]:
        """Yield a line about the end of each process, and one for each of the longest parts."""
        ends = sorted(process.taken[-1][1] - begun for process in processes if process.taken)
        yield f"processes had nothing left to execute after {', '.join(f'{end:.0f}' for end in ends)} s"
        times = [
            (following - at, at - begun, self._parts[part][0].nodeid.partition("::")[0])
            for process in processes
            for (part, at), (_, following) in itertools.pairwise(process.taken)
            if part is not None
        ]
        for taken, at, module in sorted(times, reverse=True)[:_LONGEST]:
            yield f"{taken:7.1f} s from {at:5.0f} s: {module}"
        if self._used:
            yield f"{self._used.total():7.1f} s of processor time in the tests"
        for module, used in self._used.most_common(_LONGEST):
            yield f"{used:7.1f} s of processor time: {module}"

    def _fail_open_items(self, process: _Process) -> None:
        """Report items as failed that a process had taken when it ended."""
        for item in process.open_items.values():
            text = f"the process {process.id} ended before this test did"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
            self._hook.pytest_runtest_logreport(report=report)
        process.open_items.clear()


class _Executor:
    """Execution of parts in a forked process.

    Args:
        session: pytest's session.
        parts: the items that one process executes, one after the other.
        tickets: pipes with the indexes of parts that no process has taken, the first to be emptied first.
        output: where messages to the parent are written.
    """

    def __init__(
        self, session: pytest.Session, parts: list[list[pytest.Item]], tickets: list[int], output: Connection[Any, Any]
    ) -> None:
        self._session = session
        self._parts = parts
        self._tickets = tickets
        self._output = output

    def execute(self) -> None:
        """Execute parts while there are any."""
        capture = self._session.config.pluginmanager.getplugin("capturemanager")
        # The files that the parent captures in have one position for all processes.
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        self._session.config.pluginmanager.register(self)
        measures = self._session.config.getoption("--processor-time")
        if measures:
            ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
        used = _processor_seconds()
        try:
            # The next part is taken before the last test of the one before, which then keeps what both of them share.
            for item, following in itertools.pairwise(itertools.chain(self._items(), [None])):
                self._session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if measures and item and (following is None or following.path != item.path):
                    before, used = used, _processor_seconds()
                    self._output.send({"module": item.nodeid.partition("::")[0], "used": used - before})
        finally:
            self._session._setupstate.teardown_exact(None)  # noqa: SLF001 - after Ctrl-C nothing has called it
            capture.stop_global_capturing()
            self._output.close()

    def _items(self) -> Iterator[pytest.Item]:
        """Yield the items of parts; a part is taken when its first item is asked for."""
        for tickets in self._tickets:
            while ticket := os.read(tickets, _TICKET.size):
                (part,) = _TICKET.unpack(ticket)
                self._output.send({"part": part})
                yield from self._parts[part]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Execute one test, and send its reports to the parent instead of this process's terminal."""
        self._output.send({"begun": item.nodeid})
        config = self._session.config
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            self._output.send(config.hook.pytest_report_to_serializable(config=config, report=report))
        self._output.send({"ended": item.nodeid})
        return True

    @pytest.hookimpl
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        """Send a warning to the parent, which prints them all at the end."""
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        self._output.send(
            {"warning": text, "line": [warning_message.filename, warning_message.lineno], "nodeid": nodeid}
        )
