"""Match messages with subscriptions in this process, without Spark.

Cases are ``index/WORKLOAD`` (a batch of columns: what the engine does), ``matcher/WORKLOAD`` (metadata as dicts, many
and one at a time) and ``micro-batch/WORKLOAD`` (a hundred changes, the new revision opened, a thousand records).
Every answer is compared with the interpreter's on a few messages before it is timed. The matches per message are
printed with each figure.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median

from benchmarks.harness import Options, Result, best_of, clock
from benchmarks.workloads import KEYS, WORKLOADS, rule_id, zipf
from turnout.conditions import Condition, all_of, evaluate, kiwi, not_, one_of
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import Column, Index, IndexFolder
from turnout.subscriptions.stores.memory import MemoryStore

SIZES = (10_000, 100_000, 1_000_000)
MIXES = ("prefix", "glob", "partial", "negation", "xor")
INTERPRETED = 200_000
"""How many conditions the interpreter evaluates at most, for the baseline and to compare answers."""

MATCHED = 400_000
"""How many matches are made as objects at most, in one go."""


@dataclass(frozen=True)
class Case:
    """A case: so many subscriptions and messages of a workload."""

    name: str
    size: int
    subscriptions: Callable[[int], Iterator[Subscription]]
    messages: Callable[[int, int], Iterator[dict[str, str]]]


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


def zipf_messages(count: int, size: int) -> Iterator[dict[str, str]]:
    """Messages of eight keys under Zipf's law."""
    random_ = random.Random(7)
    for _ in range(count):
        yield {key: zipf(size, random_) for key in KEYS}


def workloads() -> Iterator[tuple[str, Callable[..., Iterator[Subscription]], Callable[..., Iterator[dict[str, str]]]]]:
    """Every workload: its name, its subscriptions and its messages."""
    for name, workload in WORKLOADS.items():
        yield (
            name,
            workload.subscriptions,
            lambda count, size, one=workload: (m.metadata() for m in one.messages(count, size)),
        )
    for mix in MIXES:
        yield mix, mixed(mix), zipf_messages


def cases(options: Options, where: str, sizes: Sequence[int]) -> Iterator[Case]:
    """The cases that were asked for."""
    sizes = (options.size,) if options.size else sizes[:1] if options.quick else sizes
    for (name, subscriptions, messages), size in itertools.product(workloads(), sizes):
        # The rarer mixes show their kind, not their growth: one size will do unless one is asked for.
        if name in (*MIXES, "dense") and size != sizes[min(1, len(sizes) - 1)]:
            continue
        if options.wants(f"{where}/{name}"):
            yield Case(f"{where}/{name}", size, subscriptions, messages)


def run(options: Options) -> list[Result]:
    """All cases."""
    count = 2_000 if options.quick else 20_000
    results = [of_index(case, count) for case in cases(options, "index", SIZES)]
    results += [of_matcher(case, count) for case in cases(options, "matcher", SIZES[:2])]
    results += [of_micro_batch(case, quick=options.quick) for case in cases(options, "micro-batch", SIZES[1:])]
    return results


def columns_of(index: Index, messages: Sequence[dict[str, str]]) -> dict[str, Column]:
    """The messages by key."""
    return {key: Column([message.get(key) for message in messages]) for key in index.keys}


def interpreted(case: Case, messages: Sequence[dict[str, str]]) -> tuple[list[tuple[int, str]], float]:
    """The pairs (message, subscription) of some messages by the interpreter, and how many messages it took a second."""
    with clock() as seconds:
        true = [
            (row, subscription.id)
            for subscription in case.subscriptions(case.size)
            for row, message in enumerate(messages)
            if evaluate(subscription.condition, message)
        ]
    return sorted(true), len(messages) / seconds()


def of_index(case: Case, count: int) -> Result:
    """A batch of columns through an index that was built, written and opened again."""
    messages = list(case.messages(count, case.size))
    few = messages[: max(1, INTERPRETED // case.size)]
    true, baseline = interpreted(case, few)
    subscriptions = list(case.subscriptions(case.size))
    with clock() as building:
        index = Index.of(subscriptions)
    matches = index.match(columns_of(index, few), len(few))
    ids = index.subscription_ids(matches.subscriptions).to_pylist()
    assert true == sorted(zip(matches.rows.tolist(), ids, strict=True)), "the index and the interpreter differ"
    columns = columns_of(index, messages)
    with clock() as cold:
        matched = len(index.match(columns, count).rows)
    warm = best_of(5, lambda: index.match(columns, count))
    extra = {
        "matches/message": matched / count,
        "build/s": case.size / building(),
        "bytes/subscription": size_of(index) / case.size,
        "new values us": cold() / count * 1e6,
        "us": warm / count * 1e6,
    }
    return Result(case.name, case.size, count / warm, "interpreter, every subscription", count / warm / baseline, extra)


def size_of(index: Index) -> int:
    """The bytes that an index takes as a file."""
    arrays = index._layers[0].segment.arrays  # noqa: SLF001 - the benchmark looks inside
    columns = (getattr(arrays, field.name) for field in fields(arrays))
    return sum(
        column.nbytes if hasattr(column, "nbytes") else column.data.nbytes + column.offsets.nbytes for column in columns
    )


def of_matcher(case: Case, count: int) -> Result:
    """Metadata as dicts through a matcher, which gives leaf ids too."""
    messages = list(case.messages(count, case.size))
    few = messages[: max(1, INTERPRETED // case.size)]
    true, baseline = interpreted(case, few)
    subscriptions = list(case.subscriptions(case.size))
    with clock() as building:
        matcher = Matcher(subscriptions)
    assert true == sorted((row, match.subscription_id) for row, one in enumerate(few) for match in matcher.match(one))
    assert true == sorted(
        (row, match.subscription_id) for row, own in enumerate(matcher.match_many(few)) for match in own
    )
    # Where very much matches, fewer messages tell as much.
    count = min(count, MATCHED * len(few) // max(1, len(true)) + 1)
    messages = messages[:count]
    matched = sum(map(len, matcher.match_many(messages)))
    many = best_of(3, lambda: list(map(list, matcher.match_many(messages))))
    ids = best_of(3, lambda: matcher.match_many(messages).ids())
    one_by_one = best_of(3, lambda: [matcher.match(message) for message in messages])
    extra = {
        "matches/message": matched / count,
        "build/s": case.size / building(),
        "us": many / count * 1e6,
        "ids alone us": ids / count * 1e6,
        "one at a time us": one_by_one / count * 1e6,
    }
    return Result(case.name, case.size, count / many, "interpreter, every subscription", count / many / baseline, extra)


def of_micro_batch(case: Case, *, quick: bool) -> Result:
    """What matching adds to a micro-batch of a thousand records before which a hundred subscriptions were changed."""
    store = MemoryStore()
    store.create_many(case.subscriptions(case.size))
    folder = Path(tempfile.mkdtemp(prefix="turnout-bench-"))
    rounds = 5 if quick else 20
    given = list(case.messages(1_000 * rounds, case.size))
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
                messages = given[turn * 1_000 : turn * 1_000 + 1_000]
                with clock() as seconds:
                    index.deliveries(index.match(columns_of(index, messages), len(messages)))
                matching.append(seconds())
    finally:
        shutil.rmtree(folder)
    added = median(map(sum, zip(refreshing, opening, matching, strict=True)))
    extra = {
        "build/s": case.size / building(),
        "adds ms": added * 1e3,
        "worst ms": max(map(sum, zip(refreshing, opening, matching, strict=True))) * 1e3,
        "refresh ms": median(refreshing) * 1e3,
        "open ms": median(opening) * 1e3,
        "match ms": median(matching) * 1e3,
    }
    return Result(case.name, case.size, 1_000 / added, extra=extra)
