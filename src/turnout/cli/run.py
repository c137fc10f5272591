"""``turnout run ROUTE``, and the display of work in progress."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from turnout.base.background import Background
from turnout.base.terminal import json_text
from turnout.cli.exits import FAILED, INTERRUPTED, stop_on_signals, tell
from turnout.cli.options import (
    AsJson,
    LogFormat,
    RouteFile,
    SparkLog,
    StoreTimeout,
    check_store,
    loaded_route,
    log_as,
    needs_spark,
)

if TYPE_CHECKING:
    from turnout.engine.counts import Counts
    from turnout.routes import Route
    from turnout.runtime.offsets import Progress, RunResult, StartupStep
    from turnout.runtime.preflight import Lag


_log = logging.getLogger(__name__)


def run(
    route: RouteFile,
    once: Annotated[bool, typer.Option(help="Process everything that is available, then stop.")] = False,
    master: Annotated[str, typer.Option(help="Spark's master, or sc://HOST:PORT for Spark Connect.")] = "local[*]",
    checkpoint: Annotated[str | None, typer.Option(help="The folder of the run's progress.")] = None,
    spark_log: SparkLog = None,
    timeout: StoreTimeout = None,
    log_format: LogFormat = None,
    as_json: AsJson = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Print a line of JSON for each micro-batch, and one at the end.")
    ] = False,
) -> None:
    """Run a route against its servers, continuing from its checkpoint."""
    form = "lines" if json_lines else "json" if as_json else "text"
    log_as(log_format)
    _run(
        loaded_route(route, timeout),
        once=once,
        master=master,
        checkpoint=checkpoint,
        spark_log=spark_log,
        form=form,
    )


def _run(loaded: Route, *, once: bool, master: str, checkpoint: str | None, spark_log: Path | None, form: str) -> None:
    with needs_spark():
        from turnout.base.startup import block_pandas_import
        from turnout.base.terminal import logs_json
        from turnout.loops import fill_cache
        from turnout.runtime.offsets import StartupStep
        from turnout.runtime.preflight import preflight
        from turnout.spark.running.job import run as run_route
        from turnout.spark.session.build import route_session
        from turnout.spark.session.jvm import is_connect

    if not is_connect(master):
        block_pandas_import()
    _log_to_standard_error()
    for warning in loaded.warnings:
        tell(str(warning), level=logging.WARNING, label="warning: ")
    logged = logs_json()
    screen = console(quiet=form != "text" or logged)
    # A Spark Connect server has its own, and its checkpoint is not on this machine.
    local_checkpoint = None if is_connect(master) else checkpoint_here(loaded, checkpoint)
    log = spark_log or (None if is_connect(master) else log_beside(loaded, checkpoint))
    with (
        # A run that ends by itself has no lag to keep.
        lag_watch(
            loaded, local_checkpoint if form == "text" and not (once or loaded.trigger.available_now) else None
        ) as lag,
        nullcontext(RunLog(loaded.name)) if logged else run_display(screen, loaded.name, lag) as display,
    ):
        display.waits_for(StartupStep.SERVERS)
        # Before Spark is started: a server that is away should not take ten seconds to be noticed.
        check_store(loaded)
        preflight(loaded)
        if not is_connect(master):
            fill_cache(lambda: display.waits_for(StartupStep.LOOPS))
        display.waits_for(StartupStep.SESSION)
        ready = None if once else partial(tell, f"route {loaded.name} is ready")
        # The session depends on where the checkpoint is.
        placed = loaded if checkpoint is None else replace(loaded, checkpoint=checkpoint)
        with stop_on_signals(display.says_stopping) as stop, route_session(placed, master=master, log=log) as spark:
            result = run_route(
                loaded,
                spark,
                once=once,
                checkpoint=checkpoint,
                stop=stop,
                on_progress=_print_progress if form == "lines" else display,
                on_step=display.waits_for,
                on_ready=ready,
            )
    if logged:
        _log.info("route %s has ended", loaded.name, extra={"route": loaded.name, **result_json(result)})
    if form != "text":
        typer.echo(json.dumps(result_json(result), indent=1 if form == "json" else None))
    screen.print(run_summary(loaded.name, result))
    if not result.counts.conserved:
        screen.print(f"records are missing: {result.counts.read:,} read, {result.counts.accounted:,} accounted for")
        raise typer.Exit(FAILED)
    if result.stopped and (once or loaded.trigger.available_now):
        raise typer.Exit(INTERRUPTED)


def _log_to_standard_error() -> None:
    """Log warnings on standard error, except for py4j's, which duplicate raised errors."""
    from turnout.base.terminal import TextLines

    handler = logging.StreamHandler()
    handler.setFormatter(TextLines())
    handler.addFilter(lambda record: "py4j" not in record.pathname)
    handler.setLevel(logging.WARNING)
    if not logging.root.handlers:
        logging.root.addHandler(handler)


def checkpoint_here(route: Route, checkpoint: str | None) -> Path | None:
    """Return the folder of the run's checkpoint; None if it is not on this machine."""
    from turnout.runtime.checkpoint import checkpoint_of, local_folder

    return local_folder(str(checkpoint or checkpoint_of(route)))


def log_beside(route: Route, checkpoint: str | None) -> Path | None:
    """Return the path for Spark's log, next to the checkpoint; None if the checkpoint is not on this machine."""
    folder = checkpoint_here(route, checkpoint)
    return folder.parent / "spark.log" if folder else None


def _print_progress(progress: Progress) -> None:
    """Print a micro-batch as a line of JSON; the counts are totals since the run began."""
    line = {
        "batch": progress.batch,
        "counts": progress.counts.as_dict(),
        **progress.counts.flow.as_dict(),
        "seconds": round(progress.seconds, 3),
        "batch_seconds": round(progress.batch_seconds, 3),
        "revision": progress.revision,
    }
    typer.echo(json.dumps(line))


def result_json(result: RunResult) -> dict[str, object]:
    """Return the result as ``--json`` prints it."""
    return {
        "counts": result.counts.as_dict(),
        **result.counts.flow.as_dict(),
        "conserved": result.counts.conserved,
        "records_per_second": round(result.records_per_second, 1),
        "seconds": round(result.seconds, 3),
        "batches": result.batches,
        "stopped": result.stopped,
    }


def warm_up(as_json: AsJson = False) -> None:
    """Compile turnout's loops once, so that no later start waits for it.

    Compiled code is kept in the user's cache, or in the folder that TURNOUT_LOOPS_CACHE names. It runs on each CPU
    of this architecture with this version of turnout, Python and Numba.
    """
    from turnout.errors import TurnoutError
    from turnout.loops.compiled import cache_folder, cache_is_filled, compile_loops

    def report(text: str, *, compiled: bool) -> None:
        typer.echo(json_text({"compiled": compiled, "folder": str(cache_folder())}) if as_json else text)

    if cache_is_filled():
        report(f"the loops are compiled already: {cache_folder()}", compiled=False)
        return
    with console(quiet=as_json).status("compiling, once") as status:
        if not compile_loops(lambda name, number, count: status.update(f"compiling {name} ({number} of {count})")):
            raise TurnoutError('Numba, which compiles the loops, is missing: install "turnout[spark]"')
    if not cache_is_filled():
        raise TurnoutError("the loops were compiled, but nothing could be kept; a warning above has the reason")
    report(f"compiled into {cache_folder()}", compiled=True)


class Advance(Protocol):
    """Callback that updates a progress display."""

    def __call__(self, done: int) -> None:
        """Update the display: *done* of the total are done."""


def console(*, quiet: bool = False) -> Console:
    """Return the console on standard error, with colours only on a terminal.

    It has a descriptor of its own: that of the process belongs to the log while the JVM starts.
    """
    try:
        own = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return Console(stderr=True, quiet=quiet, highlight=False)
    screen = Console(file=own, quiet=quiet, highlight=False)
    weakref.finalize(screen, own.close)
    return screen


@contextmanager
def loading(screen: Console, label: str, total: int) -> Iterator[Advance]:
    """A progress bar on a terminal; off one, a line when it is done."""
    if not screen.is_terminal:
        begun = time.monotonic()
        last = [0]

        def remember(done: int) -> None:
            last[0] = done

        yield remember
        seconds = time.monotonic() - begun
        screen.print(f"{label}: {last[0]:,} in {seconds:.1f} s ({last[0] / max(seconds, 1e-9):,.0f}/s)")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=screen) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


Details = Callable[[Callable[[], str]], None]
"""Takes a function that returns what to show of work in progress."""


@contextmanager
def working(label: str, *, quiet: bool = False) -> Iterator[Details]:
    """Show on a terminal the time and the details of work in progress; off one, nothing."""
    screen = console(quiet=quiet)
    details: list[Callable[[], str]] = [lambda: ""]
    if quiet or not screen.is_terminal:
        yield details.append
        return
    begun = time.monotonic()
    spinner = Spinner("dots")

    def renderable() -> RenderableType:
        detail = details[-1]()
        spinner.update(text=f"{label}{detail and f': {detail}'} ({time.monotonic() - begun:.0f} s)")
        return spinner

    with Live(console=screen, transient=True, get_renderable=renderable):
        yield details.append


def visible_counts(counts: Counts) -> list[tuple[str, int]]:
    """Return the labels and values of counts to show; some counts are omitted while they are zero."""
    from turnout.engine.counts import COUNTS

    numbers = counts.as_dict()
    return [(info.label, numbers[name]) for name, info in COUNTS.items() if numbers[name] or info.shown_at_zero]


def counts_table(title: str, counts: Counts) -> Table:
    """Return a table with a row for each count."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, value in visible_counts(counts):
        table.add_row(label, f"{value:,}")
    return table


def run_summary(name: str, result: RunResult, *, rows: Sequence[tuple[str, str]] = ()) -> Table:
    """Return the table at the end of a run, with more *rows* if given."""
    table = counts_table(f"route {name}" + (", stopped" if result.stopped else ""), result.counts)
    table.add_section()
    table.add_row("micro-batches", f"{result.batches:,}")
    table.add_row("seconds", f"{result.seconds:.1f}")
    table.add_row("records/s", f"{result.records_per_second:,.0f}")
    for label, text in rows:
        table.add_row(label, text)
    return table


_PLAIN_EVERY_SECONDS = 5.0
_RATE_SECONDS = 10.0
"""Seconds over which the rate is measured."""


@contextmanager
def run_display(screen: Console, name: str, lag: Callable[[], Lag | None] | None = None) -> Iterator[RunDisplay]:
    """Return a display to hand to a run as its ``on_progress``; it is taken off the screen at the end of the block."""
    display = RunDisplay(screen, name, lag)
    try:
        yield display
    finally:
        display.close()


class RunDisplay:
    """Display of a run's startup and of each micro-batch.

    Args:
        screen: terminal or file for the output.
        name: the route's.
        lag: returns the number of unread records; None if unknown.
    """

    def __init__(self, screen: Console, name: str, lag: Callable[[], Lag | None] | None = None) -> None:
        self._screen = screen
        self._name = name
        self._lag = lag or (lambda: None)
        self._live: Live | None = None
        self._printed_at = float("-inf")
        self._step: tuple[StartupStep, float] | None = None
        self._reads: deque[tuple[float, int]] = deque()

    def waits_for(self, step: StartupStep) -> None:
        """Show the phase of the run before its first micro-batch."""
        self._step = (step, time.monotonic())
        if self._screen.is_terminal:
            self._show(Spinner("dots"))
        else:
            self._screen.print(f"route {self._name}: {step}", soft_wrap=True, markup=False)

    def __call__(self, progress: Progress) -> None:
        """Show the progress of the run."""
        self._step = None
        self._reads.append((progress.seconds, progress.counts.read))
        while self._reads[0][0] < progress.seconds - _RATE_SECONDS and len(self._reads) > 2:
            self._reads.popleft()
        if self._screen.is_terminal:
            self._show(self._table(progress))
        elif time.monotonic() - self._printed_at >= _PLAIN_EVERY_SECONDS:
            self._printed_at = time.monotonic()
            numbers = ", ".join(f"{label} {value:,}" for label, value in visible_counts(progress.counts))
            lag = "".join(f", {label} {text}" for label, text in _lag_rows(self._lag()))
            rate = f"({self._rate(progress):,.0f} records/s{lag})"
            self._screen.print(f"batch {progress.batch}: {numbers} {rate}", soft_wrap=True)

    def says_stopping(self) -> None:
        """Say that the run was asked to stop: a micro-batch under way may take a while."""
        again = "; Ctrl-C again ends at once, and the next run repeats it" if self._screen.is_terminal else ""
        self._screen.print(f"route {self._name}: stopping after the micro-batch under way{again}", soft_wrap=True)

    def close(self) -> None:
        """Take the display off the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self, shown: RenderableType) -> None:
        self._shown = shown
        if self._live is None:
            # Redrawn four times a second, so that the seconds of a step pass.
            self._live = Live(console=self._screen, transient=True, get_renderable=self._renderable)
            self._live.start()
        self._live.refresh()

    def _renderable(self) -> RenderableType:
        if self._step is not None and isinstance(self._shown, Spinner):
            step, since = self._step
            self._shown.update(text=f"route {self._name}: {step} ({time.monotonic() - since:.0f} s)")
        return self._shown

    def _table(self, progress: Progress) -> Table:
        table = counts_table(f"route {self._name}, batch {progress.batch}", progress.counts)
        table.add_section()
        table.add_row("records/s", f"{self._rate(progress):,.0f}")
        for label, text in _lag_rows(self._lag()):
            table.add_row(label, text)
        table.add_row("last batch", f"{progress.batch_seconds:.2f} s")
        if progress.revision is not None:
            table.add_row("subscriptions' revision", f"{progress.revision:,}")
        return table

    def _rate(self, progress: Progress) -> float:
        """Return the records read per second of the last ten seconds; of all until there are two micro-batches."""
        since, before = self._reads[0] if len(self._reads) > 1 else (0.0, 0)
        return (progress.counts.read - before) / max(progress.seconds - since, 1e-9)


class RunLog:
    """Phases of a run and its micro-batches as lines of the log, in place of a display; see `RunDisplay`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logged_at = float("-inf")

    def waits_for(self, step: StartupStep) -> None:
        """Log the phase of the run before its first micro-batch."""
        _log.info("route %s: %s", self._name, step, extra={"route": self._name})

    def __call__(self, progress: Progress) -> None:
        """Log the progress of the run, every few seconds."""
        if time.monotonic() - self._logged_at >= _PLAIN_EVERY_SECONDS:
            self._logged_at = time.monotonic()
            details = {"route": self._name, "batch": progress.batch, "counts": progress.counts.as_dict()}
            _log.info("route %s: batch %s", self._name, progress.batch, extra=details)

    def says_stopping(self) -> None:
        """Log that the run was asked to stop."""
        _log.info("route %s: stopping after the micro-batch under way", self._name, extra={"route": self._name})


def _lag_rows(lag: Lag | None) -> list[tuple[str, str]]:
    """Return the label and text of the lag; nothing if it is not known."""
    if lag is None:
        return []
    records = f"{sum(lag.records.values()):,} records"
    return [("lag", records if not lag.seconds else f"{records}, {lag.seconds:,.0f} s")]


_EVERY_SECONDS = 2.0


@contextmanager
def lag_watch(route: Route, checkpoint: Path | None) -> Iterator[Callable[[], Lag | None]]:
    """Return a function that gives the last known lag; None before it is known, and without a checkpoint here.

    A server that is away is the run's failure to report: the lag is unknown meanwhile.
    """
    if checkpoint is None or not route.source.streams:
        yield lambda: None
        return
    latest: list[Lag | None] = [None]

    def watch() -> None:
        try:
            _watch(route, checkpoint, latest, background.stopped)
        finally:
            latest[0] = None

    background = Background(f"lag of {route.name}", watch, every=_EVERY_SECONDS, delay=_EVERY_SECONDS)
    with background:
        yield lambda: latest[0]


def _watch(route: Route, checkpoint: Path, latest: list[Lag | None], ended: threading.Event) -> None:
    from turnout.errors import TurnoutError
    from turnout.runtime.endpoints import adapter_of
    from turnout.runtime.preflight import lag_of

    with suppress(TurnoutError), adapter_of(route.source).session() as session:
        while not ended.wait(_EVERY_SECONDS):
            latest[0] = lag_of(route.source, checkpoint, session, time.time())
