"""What ``turnout subscriptions analyze`` takes for more and more subscriptions: processor time, and memory at its most.

Each case runs in a process of its own, so that its peak is its own. ``growth`` is the exponent of the growth of the
processor time since the size before: 1 is linear, 2 is quadratic.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import active_children, get_context
from typing import Any, NamedTuple

from benchmarks.harness import Case, Options, Result, Setup
from benchmarks.store import generated_subscriptions
from benchmarks.workloads import WORKLOADS
from turnout.demo.flights import generated
from turnout.subscriptions import Subscription
from turnout.subscriptions.analysis import Analysis, Catalogue, analysis_of
from turnout.subscriptions.model import new_id

SIZES = (10_000, 40_000)


class Measured(NamedTuple):
    """What one analysis took.

    Attributes:
        cpu: seconds of a processor's time.
        before: bytes that the process held at its most before the analysis, subscriptions included.
        peak: likewise behind it.
        facts: of the report.
    """

    cpu: float
    before: int
    peak: int
    facts: dict[str, Any]


def _flights(size: int) -> Iterator[Subscription]:
    for one in generated(size):
        yield Subscription(one.destinations, one.condition, one.metadata, new_id())


GENERATORS: dict[str, Callable[[int], Iterator[Subscription]]] = {
    "store": generated_subscriptions,
    "flights": _flights,
    "alerts": WORKLOADS["alerts"].subscriptions,
    "dense": WORKLOADS["dense"].subscriptions,
}
"""Subscriptions by workload: those of the benchmark of stores, of the demo, and two of the matchers'."""


def cases(options: Options) -> Iterator[Case]:
    """Every workload at growing sizes."""
    sizes = (options.size,) if options.size else (500, 2_000) if options.quick else SIZES
    for name in GENERATORS:
        yield Case(f"analyze/{name}", partial(_grown, name, sizes))


def _grown(name: str, sizes: tuple[int, ...]) -> Iterator[Result]:
    before: tuple[int, float] | None = None
    for size in sizes:
        measured = _alone(name, size)
        growth = None if before is None else math.log(measured.cpu / before[1]) / math.log(size / before[0])
        before = size, measured.cpu
        yield Result(
            f"analyze/{name}",
            size,
            (size / measured.cpu,),
            Setup("none", None, 1),
            extra={
                "cpu_seconds": measured.cpu,
                "cpu_us": measured.cpu / size * 1e6,
                **({} if growth is None else {"growth": growth}),
                "peak_memory_mb": measured.peak / 2**20,
                "of_that_subscriptions_mb": measured.before / 2**20,
                **measured.facts,
            },
        )


def _alone(name: str, size: int) -> Measured:
    """`analyzed` in a process of its own, which an interrupt ends too."""
    alone = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    try:
        return alone.submit(analyzed, name, size).result()
    except BaseException:
        for child in active_children():
            child.kill()
        raise
    finally:
        alone.shutdown()


def analyzed(name: str, size: int) -> Measured:
    """Analyse so many subscriptions of a workload, in this process."""
    subscriptions = tuple(GENERATORS[name](size))
    before = _peak()
    begun = time.process_time()
    analysis = analysis_of(Catalogue(subscriptions))
    return Measured(time.process_time() - begun, before, _peak(), _facts(analysis))


def _facts(analysis: Analysis) -> dict[str, Any]:
    return {
        "forms": analysis.forms,
        "subsumed": len(analysis.subsumed),
        "compared": analysis.compared,
        "unknown": len(analysis.undecided) + analysis.cut + sum(analysis.crowded.values()),
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
