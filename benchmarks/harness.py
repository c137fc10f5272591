"""What every benchmark shares: options in, results out, a table for people and JSON for programs.

A benchmark is a module beside this one with ``run(options) -> list[Result]``.
"""

from __future__ import annotations

import json
import os
import pkgutil
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_NOT_BENCHMARKS = {"harness", "workloads"}


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    size: int | None = None
    quick: bool = False
    cases: tuple[str, ...] = ()

    def rows(self, usual: int, quick: int) -> int:
        """How many rows to use: the caller's number, else *quick* or *usual*."""
        return self.size or (quick if self.quick else usual)

    def wants(self, case: str) -> bool:
        """Whether a case of this name was asked for."""
        return not self.cases or any(part in case for part in self.cases)


@dataclass(frozen=True)
class Result:
    """One measured case. *ratio* is rows_per_second over the baseline's, where there is a baseline."""

    case: str
    size: int
    rows_per_second: float
    baseline: str | None = None
    ratio: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """The benchmarks there are."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name for module in modules if module.name not in _NOT_BENCHMARKS and module.name[0] != "_")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def cpu_seconds(pid: int | None = None) -> float:
    """The processor time until now of the process *pid*, or of this one and all below it."""
    import psutil

    family = [psutil.Process(pid)] if pid else [psutil.Process(), *psutil.Process().children(recursive=True)]
    total = 0.0
    for workload in family:
        with suppress(psutil.NoSuchProcess):
            times = workload.cpu_times()
            total += times.user + times.system
    return total


def texts(size: int) -> Any:
    """A column of *size* letters that end in the column ``id``; of a literal, as padding takes longer than sending."""
    from pyspark.sql import functions as F

    return F.concat(F.lit("x" * (size - 8)), F.lpad(F.col("id").cast("string"), 8, "0"))


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """Seconds of the median run of *work*, after one warm-up that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        with clock() as seconds:
            work()
        times.append(seconds())
    return sorted(times)[len(times) // 2]


@contextmanager
def clock() -> Iterator[Callable[[], float]]:
    """Time a block: the value is a function that gives the seconds, running or ended."""
    begun = time.perf_counter()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.perf_counter()) - begun
    ended.append(time.perf_counter())


def report(name: str, results: list[Result], *, as_json: bool) -> None:
    """Print what was measured, with the machine it was measured on."""
    if as_json:
        rows = [{**{k: v for k, v in asdict(r).items() if k != "extra"}, **r.extra} for r in results]
        sys.stdout.write(json.dumps({"benchmark": name, "machine": machine(), "results": rows}, indent=1) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    extras = list(dict.fromkeys(key for result in results for key in result.extra))
    table = Table(title=f"turnout bench {name}")
    for heading in ("case", "size", "rows/s", "baseline", "ratio", *extras):
        table.add_column(heading, justify="left" if heading in ("case", "baseline") else "right")
    for r in results:
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
        more = [_cell(r.extra.get(key, "")) for key in extras]
        table.add_row(r.case, f"{r.size:,}", f"{r.rows_per_second:,.0f}", r.baseline or "", ratio, *more)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(" ".join(f"{key}={value}" for key, value in machine().items()), style="dim")


def _cell(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
