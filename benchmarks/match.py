"""Match messages with subscriptions in this process, without Spark.

For each workload: metadata as dicts in batches of 2,000 and of 20 and one by one, and a batch of columns, which is what
the engine does. Times are of the processor, so that other work on the machine disturbs them less. ``one by one`` comes
first on a matcher that was just built: its ``worst_ms`` is the longest that a single message took. ``micro-batch`` is a
hundred changes, the new revision opened, and a thousand records.

Every answer is compared with the interpreter's on a few messages before it is timed. Matchers get a sample of the
messages for their costs, as a route gives them. No message comes twice.
"""

from __future__ import annotations

import gc
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._sigma import copies, events, subscriptions_in
from benchmarks.harness import Case, Options, Result, Setup, Supply, clock, rates
from benchmarks.workloads import KEYS, WORKLOADS, alerts, log_events, rule_id, security_rules, zipf
from turnout.conditions import Condition, all_of, evaluate, kiwi, not_, one_of
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import Column, Index, IndexFolder
from turnout.subscriptions.stores.memory import MemoryStore

SIZE = 100_000
MIXES = ("prefix", "glob", "partial", "negation", "xor")
SIZES = {
    **dict.fromkeys(("mixed with numbers", *MIXES), (10_000,)),
    "zipf": (1_000, 10_000, SIZE),
    "security rules": (2_961,),
}
"""Numbers of subscriptions where it is not `SIZE`."""

AS_ENGINE = ("zipf", "alerts", "mixed with numbers", "security rules")
"""Workloads that are measured as match objects, and as columns, too."""

MATCHES = (1, 100, 1_000)
"""How many subscriptions match a message of *alerts*, besides ten."""

INTERPRETED = 200_000
"""How many conditions the interpreter evaluates at most, for the baseline and to compare answers."""

_BATCHES = {"batches": 2_000, "batches of 20": 20}
_SAMPLE = 1_000
_REPEATS = 5
_SECONDS = 0.5
"""Processor time for one figure, or `_REPEATS` batches if these take longer."""

_SLOW_SECONDS = 0.5
"""A batch that would take longer is made smaller."""

_BASELINE = "interpreter, every subscription"


@dataclass(frozen=True)
class Workload:
    """Subscriptions, and endless messages, for a number of subscriptions."""

    name: str
    size: int
    subscriptions: Callable[[int], Iterator[Subscription]]
    messages: Callable[[int], Iterator[dict[str, str]]]

    def supply(self) -> Supply[dict[str, str]]:
        """Return the messages from the first on."""
        return Supply(self.messages(self.size))


def condition(mix: str, draw: Callable[[], str], random_: random.Random) -> Condition:
    """A condition of two leaves; the mix says of what kind."""
    keys = random_.sample(KEYS, 2)
    first, second = draw(), draw()
    match mix:
        case "prefix":
            return all_of(kiwi(keys[0], first[:8] + "*"), kiwi(keys[1], second))
        case "glob":
            return all_of(kiwi(keys[0], f"*{first[2:8]}*{first[-1]}"), kiwi(keys[1], second[:8] + "?*"))
        case "partial":
            return all_of(kiwi(keys[0], first, partial=True), kiwi(keys[1], second, partial=True))
        case "negation":
            return all_of(kiwi(keys[0], first), not_(kiwi(keys[1], second)))
    return one_of(kiwi(keys[0], first), kiwi(keys[1], second))


def mixed(mix: str) -> Callable[[int], Iterator[Subscription]]:
    """Subscriptions of a mix, over values under Zipf's law."""

    def subscriptions(size: int) -> Iterator[Subscription]:
        random_ = random.Random(size)
        for number in range(size):
            yield Subscription(
                (f"d{number % 10}",), condition(mix, lambda: zipf(size, random_), random_), id=rule_id(number)
            )

    return subscriptions


def zipf_messages(size: int) -> Iterator[dict[str, str]]:
    """Endless messages of eight keys under Zipf's law."""
    random_ = random.Random(7)
    while True:
        yield {key: zipf(size, random_) for key in KEYS}


def workloads(options: Options) -> Iterator[Workload]:
    """Every workload at each of its sizes."""
    generators: dict[str, tuple[Any, Any]] = {
        name: (workload.subscriptions, workload.metadata) for name, workload in WORKLOADS.items()
    }
    generators["security rules"] = security_rules, log_events
    for matches in MATCHES:
        alike = alerts(f"alerts with {matches:,} matches", matches)
        generators[alike.name] = alike.subscriptions, alike.metadata
    generators |= {mix: (mixed(mix), zipf_messages) for mix in MIXES}
    for name, (subscriptions, messages) in generators.items():
        sizes = (options.size,) if options.size else (1_000,) if options.quick else SIZES.get(name, (SIZE,))
        for size in sizes:
            yield Workload(name, size, subscriptions, messages)


def cases(options: Options) -> Iterator[Case]:
    """All workloads, and what matching adds to a micro-batch."""
    seconds = 0.1 if options.quick else _SECONDS
    if options.rules is not None:
        yield Case("real rules", partial(of_real_rules, options.rules, options.size, seconds))
    for workload in workloads(options):
        if options.quick and workload.name in MIXES[1:]:
            continue
        yield Case(workload.name, partial(of_workload, workload, seconds))
    for workload in workloads(options):
        if workload.name in ("zipf", "alerts") and workload.size in (SIZE, options.size, 1_000 if options.quick else 0):
            yield Case(f"{workload.name}: micro-batch", partial(of_micro_batch, workload, quick=options.quick))


def of_workload(workload: Workload, seconds: float) -> Iterator[Result]:
    """One by one, in batches of dicts, and in batches of columns."""
    supply = workload.supply()
    subscriptions = list(workload.subscriptions(workload.size))
    few = max(1, INTERPRETED // workload.size)
    sample = supply.take(_SAMPLE)
    begun = time.process_time()
    matcher = Matcher(subscriptions, sample=sample)
    build = time.process_time() - begun
    gc.collect()
    gc.freeze()
    single = one_by_one(workload, matcher, supply, seconds, build)
    yield single
    matches = {"matches": single.extra["matches"]}
    compare_matcher(subscriptions, matcher, supply, few)
    for name, batch in _BATCHES.items():
        result = in_batches(workload, partial(_ids, matcher), supply, seconds, batch, name)
        yield replace(result, extra={**result.extra, **matches})
    if workload.name in AS_ENGINE:
        yield in_batches(workload, partial(_objects, matcher), supply, seconds, 2_000, "batches as objects")
        yield of_index(workload, Index.of(subscriptions, sample=sample), subscriptions, supply, seconds)
    gc.unfreeze()


def of_real_rules(folder: Path, size: int | None, seconds: float) -> Iterator[Result]:
    """One by one and in batches, with the rules of a folder, or *size* of them; its memory is that of the process."""
    rules = subscriptions_in(folder)
    chosen = copies(rules, size or len(rules))
    workload = Workload("real rules", len(chosen), lambda _: iter(chosen), lambda _: events(rules))
    supply = workload.supply()
    sample = supply.take(_SAMPLE)
    begun = time.process_time()
    matcher = Matcher(chosen, sample=sample)
    build = time.process_time() - begun
    gc.collect()
    gc.freeze()
    single = one_by_one(workload, matcher, supply, seconds, build)
    yield single
    compare_matcher(chosen, matcher, supply, max(1, INTERPRETED // len(chosen)))
    for batch in (1_000, 20):
        result = in_batches(workload, partial(_ids, matcher), supply, seconds, batch, f"batches of {batch:,}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield replace(result, extra={**result.extra, "matches": single.extra["matches"], "peak_mb": peak})
    gc.unfreeze()


def _ids(matcher: Matcher, records: list[dict[str, str]]) -> object:
    return matcher.match_many(records).ids()


def _objects(matcher: Matcher, records: list[dict[str, str]]) -> object:
    return list(map(list, matcher.match_many(records)))


def one_by_one(
    workload: Workload, matcher: Matcher, supply: Supply[dict[str, str]], seconds: float, build: float
) -> Result:
    """Single messages, from the first one on."""
    taken: list[float] = []
    matched = 0
    while sum(taken) < seconds and len(taken) < 5_000:
        for record in supply.take(20):
            begun = time.process_time()
            matched += len(matcher.match(record))
            taken.append(time.process_time() - begun)
    # The first ones teach the matcher its values.
    later = taken[len(taken) // 5 :]
    parts = [later[begin : begin + 20] for begin in range(0, len(later), 20)]
    extra = {
        "cpu_us": sum(later) / len(later) * 1e6,
        "worst_ms": max(taken) * 1e3,
        "first_ms": taken[0] * 1e3,
        "matches": matched / len(taken),
        "build_s": build,
    }
    each = tuple(len(part) / sum(part) for part in parts)
    return Result(f"{workload.name}: one by one", workload.size, each, Setup("new", 1, 1), extra=extra)


def in_batches(
    workload: Workload,
    match: Callable[[list[dict[str, str]]], Any],
    supply: Supply[dict[str, str]],
    seconds: float,
    batch: int,
    name: str,
) -> Result:
    """Batches of one size, until the time is over; what is slow gets smaller ones."""
    # The first batch warms up, and tells whether a whole one is too much.
    first = supply.take(20)
    begun = time.process_time()
    match(first)
    batch = max(20, min(batch, int(_SLOW_SECONDS * 20 / (time.process_time() - begun + 1e-9))))
    taken = _taken(match, supply, seconds, batch)
    figures = {"cpu_us": median(taken) / batch * 1e6, "worst_ms": max(taken) * 1e3}
    return Result(f"{workload.name}: {name}", workload.size, rates(batch, taken), Setup("new", batch, 1), extra=figures)


def _taken(match: Callable[[Any], Any], supply: Supply[dict[str, str]], seconds: float, batch: int) -> list[float]:
    match(supply.take(batch))
    taken: list[float] = []
    while len(taken) < _REPEATS or (sum(taken) < seconds and len(taken) < 500):
        records = supply.take(batch)
        begun = time.process_time()
        match(records)
        taken.append(time.process_time() - begun)
    return taken


def interpreted(
    subscriptions: Sequence[Subscription], messages: Sequence[dict[str, str]]
) -> tuple[list[tuple[int, str]], float]:
    """The pairs (message, subscription) of some messages by the interpreter, and how many messages it took a second."""
    with clock() as seconds:
        true = [
            (row, subscription.id)
            for subscription in subscriptions
            for row, message in enumerate(messages)
            if evaluate(subscription.condition, message)
        ]
    return sorted(true), len(messages) / seconds()


def compare_matcher(
    subscriptions: Sequence[Subscription], matcher: Matcher, supply: Supply[dict[str, str]], few: int
) -> None:
    """See that a matcher finds what the interpreter finds, one by one and many at once."""
    messages = supply.take(few)
    true, _ = interpreted(subscriptions, messages)
    found = [(row, match.subscription_id) for row, one in enumerate(messages) for match in matcher.match(one)]
    assert true == sorted(found), "the matcher and the interpreter differ"
    messages = supply.take(few)
    true, _ = interpreted(subscriptions, messages)
    found = [(row, match.subscription_id) for row, own in enumerate(matcher.match_many(messages)) for match in own]
    assert true == sorted(found), "the matcher and the interpreter differ for many messages"


def columns_of(index: Index, messages: Sequence[dict[str, str]]) -> dict[str, Column]:
    """The messages by key."""
    return {key: Column([message.get(key) for message in messages]) for key in index.keys}


def of_index(
    workload: Workload,
    index: Index,
    subscriptions: Sequence[Subscription],
    supply: Supply[dict[str, str]],
    seconds: float,
) -> Result:
    """Batches of columns: answers compared, then timed."""
    few = supply.take(max(1, INTERPRETED // workload.size))
    true, baseline = interpreted(subscriptions, few)
    matches = index.match(columns_of(index, few), len(few))
    ids = index.subscription_ids(matches.subscriptions).to_pylist()
    assert true == sorted(zip(matches.rows.tolist(), ids, strict=True)), "the index and the interpreter differ"

    def match(records: list[dict[str, str]]) -> None:
        index.match(columns_of(index, records), len(records))

    result = in_batches(workload, match, supply, seconds, 2_000, "batches of columns")
    extra = {**result.extra, "index_bytes": size_of(index) / workload.size}
    ratio = result.rows_per_second / baseline
    return Result(result.case, workload.size, result.rates, result.setup, _BASELINE, ratio, extra)


def size_of(index: Index) -> int:
    """The bytes that an index takes as a file."""
    ((layer, _),) = index._layers  # noqa: SLF001 - the benchmark looks inside
    arrays = layer.segment.arrays
    columns = (getattr(arrays, field.name) for field in fields(arrays))
    return sum(
        column.nbytes if hasattr(column, "nbytes") else column.data.nbytes + column.offsets.nbytes for column in columns
    )


def of_micro_batch(case: Workload, *, quick: bool) -> Iterator[Result]:
    """What matching adds to a micro-batch of a thousand records before which a hundred subscriptions were changed."""
    store = MemoryStore()
    store.create_many(case.subscriptions(case.size))
    folder = Path(tempfile.mkdtemp(prefix="turnout-bench-"))
    rounds = 5 if quick else 20
    supply = case.supply()
    refreshing, opening, matching = [], [], []
    try:
        with clock() as building:
            writer = IndexFolder(folder / "index", store)
        with writer:
            Index.open(writer.folder, writer.revision)
            for turn in range(rounds):
                store.create_many(
                    Subscription(("d",), all_of(kiwi(KEYS[0], f"new{turn}"), kiwi(KEYS[1], f"v{n}")))
                    for n in range(100)
                )
                with clock() as seconds:
                    revision = writer.refresh()
                refreshing.append(seconds())
                with clock() as seconds:
                    index = Index.open(writer.folder, revision)
                opening.append(seconds())
                messages = supply.take(1_000)
                with clock() as seconds:
                    index.deliveries(index.match(columns_of(index, messages), len(messages)))
                matching.append(seconds())
    finally:
        shutil.rmtree(folder)
    added = list(map(sum, zip(refreshing, opening, matching, strict=True)))
    extra = {
        "build_s": building(),
        "adds_ms": median(added) * 1e3,
        "worst_ms": max(added) * 1e3,
        "refresh_ms": median(refreshing) * 1e3,
        "open_ms": median(opening) * 1e3,
        "match_ms": median(matching) * 1e3,
    }
    yield Result(f"{case.name}: micro-batch", case.size, rates(1_000, added), Setup("new", 1_000, 1), extra=extra)
