"""Display of a run: one line with its phase, then its progress; redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from turnout.cli.progress import counts_table, visible_counts

if TYPE_CHECKING:
    from turnout.runtime.lag import Lag
    from turnout.runtime.progress import Progress, StartupStep

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


def _lag_rows(lag: Lag | None) -> list[tuple[str, str]]:
    """Return the label and text of the lag; nothing if it is not known."""
    if lag is None:
        return []
    records = f"{sum(lag.records.values()):,} records"
    return [("lag", records if not lag.seconds else f"{records}, {lag.seconds:,.0f} s")]
