"""Growth of an index with its subscriptions: building, writing, opening and matching, in this process.

A subscription is two equalities, and each record matches exactly one, however many subscriptions there are. So whatever
becomes slower does so because of the size alone. ``--size 10000000`` measures ten million, which takes some minutes and
7 GB of memory. Generating the subscriptions is not part of any figure. No record comes twice.
"""

from __future__ import annotations

import gc
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median

from benchmarks.harness import Case, Options, Result, Setup, Supply, clock, rates
from benchmarks.match import columns_of, size_of
from benchmarks.workloads import rule_id
from turnout.base.startup import paused_gc
from turnout.conditions import Group, Kiwi, Logic
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.index import Manifest, SegmentFiles
from turnout.subscriptions.index.literal_choice import Costs

SMALLEST = 1_000
SIZES = (SMALLEST, 100_000, 1_000_000)

_BATCH = 2_000
_REPEATS = 15
_REGIONS = 10
"""Subscriptions of each customer."""

_CHUNK = 10_000


class _TimedSubscriptions:
    """Subscriptions as they are generated.

    Attributes:
        seconds: processor time that generating them took.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Subscription]:
        rest = generated(self._size)
        while True:
            begun = time.process_time()
            with paused_gc():
                chunk = list(islice(rest, _CHUNK))
            self.seconds += time.process_time() - begun
            if not chunk:
                return
            yield from chunk


def generated(size: int) -> Iterator[Subscription]:
    """Subscriptions of two equalities, ten of each customer."""
    customers = size // _REGIONS
    regions = [Kiwi("region", f"region-{region}") for region in range(_REGIONS)]
    for number in range(size):
        region, customer = divmod(number, customers)
        condition = Group(Logic.AND, (Kiwi("customer", f"customer-{customer}"), regions[region]))
        yield Subscription((f"d{number % 10}",), condition, id=rule_id(number))


def cases(options: Options) -> Iterator[Case]:
    """Growing numbers of subscriptions, the smallest of which is the baseline."""
    sizes = (SMALLEST, options.size) if options.size else (SMALLEST, 10_000) if options.quick else SIZES
    baseline: list[float] = []
    for size in sizes:
        yield Case(f"{size:,} subscriptions", partial(_measured, size, baseline))


def _measured(size: int, baseline: list[float]) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="turnout-growth-") as name:
        folder = Path(name)
        build_seconds = _published(folder, size)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        gc.collect()
        with clock() as opening:
            index = Index.open(folder, 0)
        supply = Supply(_records(size))
        first = supply.take(_BATCH)
        with clock() as first_batch:
            _match(index, first)
        taken = []
        for _ in range(_REPEATS):
            columns = columns_of(index, supply.take(_BATCH))
            begun = time.process_time()
            found = index.match(columns, _BATCH)
            taken.append(time.process_time() - begun)
            assert len(found.rows) == _BATCH, "each record matches one subscription"
        cpu_us = median(taken) / _BATCH * 1e6
        baseline.append(cpu_us)
        extra = {
            "cpu_us": cpu_us,
            "growth": cpu_us / baseline[0],
            "index_bytes": size_of(index) / size,
            "build_per_second": size / build_seconds,
            "open_ms": opening() * 1e3,
            "first_batch_ms": first_batch() * 1e3,
            "build_peak_mb": peak,
        }
    yield Result(f"{size:,} subscriptions", size, rates(_BATCH, taken), Setup("new", _BATCH, 1), extra=extra)


def _published(folder: Path, size: int) -> float:
    """Build an index and write it as revision 0; return the processor seconds of both."""
    subscriptions = _TimedSubscriptions(size)
    begun = time.process_time()
    segment = build(subscriptions, Costs(list(islice(_records(size), 1_000))))
    segment.write(folder / "segment-1.index")
    Manifest(0, (SegmentFiles("segment-1.index", ""),)).write(folder)
    return time.process_time() - begun - subscriptions.seconds


def _match(index: Index, records: list[dict[str, str]]) -> None:
    index.deliveries(index.match(columns_of(index, records), len(records)))


def _records(size: int) -> Iterator[dict[str, str]]:
    random_ = random.Random(7)
    for number in count():
        yield {
            "customer": f"customer-{random_.randrange(size // _REGIONS)}",
            "region": f"region-{random_.randrange(_REGIONS)}",
            "order": str(number),
        }
