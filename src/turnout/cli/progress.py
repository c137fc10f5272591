"""Display of a run: a live line on a terminal, plain lines on other outputs, a table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from turnout.engine.counts import Counts
    from turnout.runtime.progress import Progress, RunResult

_PLAIN_EVERY_SECONDS = 5.0


class Advance(Protocol):
    """Callback that updates a progress display."""

    def __call__(self, done: int) -> None:
        """Update the display: *done* of the total are done."""


def console(*, quiet: bool = False) -> Console:
    """Return the console on standard error, with colours only on a terminal."""
    return Console(stderr=True, quiet=quiet, highlight=False)


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


@contextmanager
def run_display(screen: Console, name: str) -> Iterator[_Display]:
    """A display to hand to a run as its ``on_progress``."""
    display = _Display(screen, name)
    try:
        yield display
    finally:
        display.close()


class _Display:
    """Display of each micro-batch: redrawn in place on a terminal, occasional lines on other outputs."""

    def __init__(self, screen: Console, name: str) -> None:
        self._screen = screen
        self._name = name
        self._live: Live | None = None
        self._printed_at = float("-inf")

    def __call__(self, progress: Progress) -> None:
        """Show the progress of the run."""
        if self._screen.is_terminal:
            if self._live is None:
                self._live = Live(console=self._screen, transient=True)
                self._live.start()
            self._live.update(self._table(progress))
        elif time.monotonic() - self._printed_at >= _PLAIN_EVERY_SECONDS:
            self._printed_at = time.monotonic()
            numbers = ", ".join(f"{label} {value:,}" for label, value in _visible_counts(progress.counts))
            self._screen.print(f"batch {progress.batch}: {numbers} ({_rate(progress):,.0f} records/s)", soft_wrap=True)

    def close(self) -> None:
        """Take the display off the screen."""
        if self._live is not None:
            self._live.stop()

    def _table(self, progress: Progress) -> Table:
        table = counts_table(f"route {self._name}, batch {progress.batch}", progress.counts)
        table.add_section()
        table.add_row("records/s", f"{_rate(progress):,.0f}")
        table.add_row("last batch", f"{progress.batch_seconds:.2f} s")
        if progress.revision is not None:
            table.add_row("subscriptions' revision", f"{progress.revision:,}")
        return table


def _rate(progress: Progress) -> float:
    return progress.counts.read / progress.seconds if progress.seconds else 0.0


def _visible_counts(counts: Counts) -> list[tuple[str, int]]:
    """Return the labels and values of counts to show; some counts are omitted while they are zero."""
    from turnout.engine.counts import COUNTS

    numbers = counts.as_dict()
    return [(info.label, numbers[name]) for name, info in COUNTS.items() if numbers[name] or info.shown_at_zero]


def counts_table(title: str, counts: Counts) -> Table:
    """A table with a row for each count."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, value in _visible_counts(counts):
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
