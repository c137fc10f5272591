"""The parts that every benchmark shares: options, cases, results, and records that are given out once.

A benchmark is a module beside this one with ``cases(options) -> Iterator[Case]``. The cases of a benchmark are measured
one by one while the generator waits, so a server or session that several cases share is a ``with`` block around their
``yield``.
"""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
import xxhash

from turnout.errors import TurnoutError

_NOT_BENCHMARKS = {"harness", "workloads"}

T = TypeVar("T")


class CannotRunError(TurnoutError):
    """Raised when a case cannot be measured on this machine; the message is the reason."""


@dataclass(frozen=True)
class Options:
    """Arguments of the command line."""

    size: int | None = None
    quick: bool = False
    cases: tuple[str, ...] = ()
    rules: Path | None = None
    minutes: float | None = None

    def rows(self, usual: int, quick: int) -> int:
        """Return the number of rows to use: the caller's, else *quick* or *usual*."""
        return self.size or (quick if self.quick else usual)

    def wants(self, case: str) -> bool:
        """Return whether a case of this name was requested."""
        return not self.cases or any(part in case for part in self.cases)


class Setup(NamedTuple):
    """Circumstances of a figure.

    Attributes:
        records: ``new`` where no record was seen before, ``none`` where no records are measured.
        batch: records that are processed together, or None where it is the program that decides.
        threads: threads or processes that work at once.
    """

    records: Literal["new", "none"]
    batch: int | None
    threads: int


@dataclass(frozen=True)
class Result:
    """Measured case.

    Attributes:
        case: its name.
        size: records, subscriptions or whatever else grows.
        rates: records per second of each repeat.
        setup: circumstances.
        baseline: name of what *ratio* compares with.
        ratio: speed relative to the baseline.
        extra: more figures; the last word of a name is the unit where there is one.
    """

    case: str
    size: int
    rates: tuple[float, ...]
    setup: Setup
    baseline: str | None = None
    ratio: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        """Median of all repeats."""
        return median(self.rates)

    def row(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "case": self.case,
            "status": "measured",
            "size": self.size,
            **self.setup._asdict(),
            "unit": "1/s",
            "rows_per_second": self.rows_per_second,
            "min": min(self.rates),
            "max": max(self.rates),
            "repeats": len(self.rates),
            "baseline": self.baseline,
            "ratio": self.ratio,
            "figures": {name: {"value": value, "unit": unit_of(name)} for name, value in self.extra.items()},
        }


_UNITS = {
    "us": "µs", "ms": "ms", "s": "s", "seconds": "s", "mb": "MB", "bytes": "B", "percent": "%", "ratio": "",
    "per_second": "1/s",
}  # fmt: skip


def unit_of(figure: str) -> str:
    """Return the unit that the name of a figure ends in, or nothing for a count or a share."""
    return next((unit for end, unit in _UNITS.items() if figure == end or figure.endswith(f"_{end}")), "")


@dataclass(frozen=True)
class Case:
    """Something to measure; *measure* may give several results."""

    name: str
    measure: Callable[[], Iterable[Result]]


class RepeatedRecordError(AssertionError):
    """Raised when a generator of records gives one for a second time."""


class Supply(Generic[T]):
    """Records, each given out once.

    A cache of values or of verdicts helps as much as it would in production, and not as much as it does where the same
    records come again with each repeat.

    Args:
        records: endless generator of them.
    """

    def __init__(self, records: Iterator[T]) -> None:
        self._records = records
        self._digests: set[int] = set()

    def take(self, count: int) -> list[T]:
        """Return the next records.

        Raises:
            RepeatedRecordError: one of them was there before.
        """
        taken = list(islice(self._records, count))
        for record in taken:
            digest = xxhash.xxh3_64_intdigest(msgspec.msgpack.encode(record))
            if digest in self._digests:
                raise RepeatedRecordError(f"a record was generated twice: {record!r}")
            self._digests.add(digest)
        return taken


def names() -> list[str]:
    """Return the names of all benchmarks."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name for module in modules if module.name not in _NOT_BENCHMARKS and module.name[0] != "_")


def cpu_seconds(pid: int | None = None) -> float:
    """Return the processor time until now of the process *pid*, or of this one and all below it."""
    import psutil

    family = [psutil.Process(pid)] if pid else [psutil.Process(), *psutil.Process().children(recursive=True)]
    total = 0.0
    for process in family:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def texts(size: int) -> Any:
    """Return a column of *size* letters that end in the column ``id``; of a literal, as padding takes longer."""
    from pyspark.sql import functions as F

    return F.concat(F.lit("x" * (size - 12)), F.lpad(F.col("id").cast("string"), 12, "0"))


def timed(
    repeats: int,
    prepare: Callable[[], T],
    work: Callable[[T], object],
    now: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the seconds of *work* over what *prepare* gives it, once for each repeat after one for warming up."""
    taken = []
    for _ in range(repeats + 1):
        given = prepare()
        begun = now()
        work(given)
        taken.append(now() - begun)
    return taken[1:]


def rates(count: int, seconds: Iterable[float]) -> tuple[float, ...]:
    """Return how many of *count* a second were done in each repeat."""
    return tuple(count / each for each in seconds)


@contextmanager
def clock() -> Iterator[Callable[[], float]]:
    """Time a block: the value is a function that gives the seconds, running or ended."""
    begun = time.perf_counter()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.perf_counter()) - begun
    ended.append(time.perf_counter())
