"""Output of work in progress on standard error, and tables of counts."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from turnout.engine.counts import Counts
    from turnout.runtime.progress import RunResult


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
