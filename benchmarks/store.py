"""The stores and the service: create, read, search and match, one at a time and in bulk, in-process and over gRPC.

Each case prints its rate and, where one operation is timed alone, the median and the 99th percentile in
milliseconds. Matching over gRPC is also done at a steady rate, because that is what a latency is promised for.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import grpc
from google.protobuf import json_format

from benchmarks.harness import Case, Options, Result, Setup, Supply, clock
from turnout.conditions import all_of, kiwi, not_
from turnout.rpc.client import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.v1 import matching_pb2, subscriptions_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub
from turnout.subscriptions import Store, Subscription, open_store
from turnout.subscriptions.index import Column, Index, IndexFolder
from turnout.subscriptions.lines import BATCH, export_lines, import_lines
from turnout.subscriptions.model import Expiry
from turnout.subscriptions.store import delete_many, edit

T = TypeVar("T")

KEYS = 8
RATE = 1_000
"""Match requests a second of the steady case."""


_ONE = Setup("new", 1, 1)


def cases(options: Options) -> Iterator[Case]:
    """SQLite, then the service over the same kind of file."""
    size = options.rows(100_000, 5_000)
    operations = 300 if options.quick else 2_000
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        yield Case("sqlite", lambda: _sqlite(Path(folder), size, operations))
        yield Case("grpc", lambda: _grpc(Path(folder), size, operations))
        yield Case("bulk", lambda: _bulk(Path(folder), size, operations // 4))
        yield Case("changes", lambda: _changes(Path(folder), size, operations // 10))


def generated_subscriptions(size: int, seed: int = 7) -> Iterator[Subscription]:
    """Two leaves each: a literal or a prefix that few share, and something common that must not be."""
    rolls = random.Random(seed)
    for number in range(size):
        own = f"orders.{number}" if number % 2 else f"orders.{number}.*"
        yield Subscription(
            [f"dst{number % 10}"],
            all_of(kiwi("subject", own), not_(kiwi("location", f"city{rolls.randrange(100)}"))),
            {"user": f"user{rolls.randrange(1_000)}"},
        )


def messages(size: int, seed: int = 8) -> Iterator[dict[str, str]]:
    """Endless messages of eight keys each; every second one has a subject that a subscription uses."""
    rolls = random.Random(seed)
    for number in itertools.count():
        yield {
            "subject": f"orders.{rolls.randrange(size * 2)}{'.x' if number % 4 == 0 else ''}",
            "location": f"city{rolls.randrange(100)}",
            **{f"key{n}": f"value{rolls.randrange(1_000)}" for n in range(KEYS - 2)},
        }


def _sqlite(folder: Path, size: int, operations: int) -> Iterator[Result]:
    lines = folder / "lines.jsonl"
    with open_store(f"sqlite:///{folder}/bulk.db") as store:
        new = list(generated_subscriptions(size))
        with clock() as seconds:
            store.create_many(new)
        bulk = Setup("new", size, 1)
        yield Result("sqlite bulk create", size, (size / seconds(),), bulk)
        with clock() as seconds:
            store.snapshot()
        yield Result("sqlite snapshot", size, (size / seconds(),), bulk)
        yield from _operations("sqlite", store, operations)
        lines.write_text("\n".join(export_lines(store)), "utf-8")
    with open_store(f"sqlite:///{folder}/import.db") as store, lines.open("rb") as read:
        with clock() as seconds:
            done = import_lines(store, read)
        yield Result("sqlite import JSON lines", done.created, (done.created / seconds(),), bulk)
        ids = [subscription.id for subscription in store.snapshot()]
        random.Random(11).shuffle(ids)
        with clock() as seconds:
            delete_many(store, ids)
        yield Result("sqlite bulk delete", len(ids), (len(ids) / seconds(),), bulk)


def _bulk(folder: Path, size: int, operations: int) -> Iterator[Result]:
    """Measure import, creation and deletion of many, in alternation with creation and deletion one at a time."""
    rolls = random.Random(13)
    rates: dict[str, list[float]] = {"import": [], "create": [], "delete": []}
    cpu: dict[str, list[float]] = {name: [] for name in rates}
    singles: dict[str, list[float]] = {"create": [], "delete": []}

    def many(name: str, work: Callable[[], T]) -> T:
        with clock() as seconds:
            used = time.process_time()
            done = work()
            cpu[name].append((time.process_time() - used) / size * 1e6)
        rates[name].append(size / seconds())
        return done

    with open_store(f"sqlite:///{folder}/turns.db") as store:
        for seed in range(3):
            lines, new = _lines(size, seed), list(generated_subscriptions(size, seed))
            few = list(generated_subscriptions(operations, seed))
            many("import", partial(import_lines, store, lines))
            delete_many(store, [one.id for one in store.snapshot()])
            ids = many("create", partial(store.create_many, new))
            with clock() as seconds:
                own = [store.create(one) for one in few]
            singles["create"].append(operations / seconds())
            rolls.shuffle(ids)
            many("delete", partial(delete_many, store, ids))
            with clock() as seconds:
                for id_ in own:
                    store.delete(id_)
            singles["delete"].append(operations / seconds())
    for name, found in rates.items():
        one_by_one = median(singles.get(name, singles["create"]))
        ratio = median(found) / one_by_one
        extra = {"cpu_us": median(cpu[name]), "one_by_one_per_second": one_by_one}
        setup = Setup("new", min(size, BATCH) if name == "import" else size, 1)
        yield Result(f"sqlite {name} many", size, tuple(found), setup, "one by one", ratio, extra=extra)


def _lines(size: int, seed: int) -> list[str]:
    """Return generated subscriptions as JSON lines with ids."""
    with open_store(f"memory://lines-{seed}") as store:
        store.create_many(generated_subscriptions(size, seed))
        return list(export_lines(store))


def _operations(name: str, store: Store, operations: int) -> Iterator[Result]:
    new = list(generated_subscriptions(operations, seed=9))
    ids: list[str] = []
    revision = 0
    rolls = random.Random(10)

    def create(number: int) -> None:
        ids.append(store.create(new[number]))

    def read(number: int) -> None:
        store.read(ids[number])

    def search_by_condition(_: int) -> None:
        store.search_by_condition("location", f"city{rolls.randrange(100)}", limit=10)

    def search_by_metadata(_: int) -> None:
        store.search_by_metadata({"user": f"user{rolls.randrange(1_000)}"}, limit=10)

    def no_changes(_: int) -> None:
        store.changes(revision)

    def delete(number: int) -> None:
        store.delete(ids[number])

    for work in (create, read, search_by_condition, search_by_metadata, no_changes, delete):
        if work is no_changes:
            revision = store.revision()
        yield _timed(f"{name} {work.__name__.replace('_', ' ')}", work, operations)


def _timed(case: str, work: Callable[[int], object], operations: int) -> Result:
    times = []
    with clock() as seconds:
        for number in range(operations):
            begun = time.perf_counter()
            work(number)
            times.append(time.perf_counter() - begun)
    return Result(case, operations, (operations / seconds(),), _ONE, extra=_percentiles(times))


def _percentiles(times: list[float]) -> dict[str, float]:
    times.sort()
    return {
        "p50_ms": round(times[len(times) // 2] * 1e3, 3),
        "p99_ms": round(times[min(len(times) - 1, len(times) * 99 // 100)] * 1e3, 3),
    }


def _changes(folder: Path, size: int, operations: int) -> Iterator[Result]:
    """From a change of one subscription in the store to the index that a micro-batch matches with, all in this process.

    The processor's time is all of it: the store's, the index writer's, its merges in the background, and the reader's.
    """
    expiry = Expiry(datetime(2030, 1, 1, tzinfo=UTC))
    before, after = expiry.milliseconds - 1, expiry.milliseconds
    rolls = random.Random(12)
    with open_store(f"sqlite:///{folder}/changes.db") as store:
        ids = store.create_many(replace(one, expires=expiry) for one in generated_subscriptions(size))
        with IndexFolder(folder / "index", store) as index_folder:
            chosen = iter(rolls.sample(range(size), 3 * operations))

            def update(found: Subscription) -> Subscription:
                return replace(found, destinations=["updated"])

            def pause(found: Subscription) -> Subscription:
                return replace(found, enabled=False)

            for name, change, wanted in (("update", update, 1), ("pause", pause, 0)):
                begun, cpu = time.perf_counter(), list[float]()
                for number in islice(chosen, operations):
                    used = time.process_time()
                    edit(store, ids[number], change)
                    index = Index.open(index_folder.folder, index_folder.refresh())
                    found = _matched(index, number, before)
                    cpu.append(time.process_time() - used)
                    assert found == wanted, f"the {name} is not seen by the next batch"
                yield _of_changes(name, size, cpu, time.perf_counter() - begun)
            begun, cpu = time.perf_counter(), list[float]()
            for number in islice(chosen, operations):
                used = time.process_time()
                found = _matched(index, number, after)
                cpu.append(time.process_time() - used)
                assert found == 0, "the expiry is not seen by the next batch"
            yield _of_changes("expiry", size, cpu, time.perf_counter() - begun)


def _matched(index: Index, number: int, at: int) -> int:
    """Return the number of matches of the message that only one generated subscription wants."""
    subject = Column([f"orders.{number}" if number % 2 else f"orders.{number}.x"])
    return len(index.match({"subject": subject}, 1, times=[at]).rows)


def _of_changes(name: str, size: int, cpu: list[float], elapsed: float) -> Result:
    extra = {f"cpu_{name_}": value for name_, value in _percentiles(cpu).items()}
    return Result(f"{name} to index", size, (len(cpu) / elapsed,), Setup("new", 1, 1), extra=extra)


def _grpc(folder: Path, size: int, operations: int) -> Iterator[Result]:
    """The server is a process of its own, as it is in use; this one is the only client."""
    url = f"sqlite:///{folder}/served.db"
    with open_store(url) as store:
        store.create_many(generated_subscriptions(size))
    serve = [sys.executable, "-m", "turnout", "subscriptions", "serve", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(
        [*serve, "--store", url, "--log-level", "error"], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        address = f"127.0.0.1:{int(server.stderr.readline().rpartition(' ')[2])}"
        try:
            with grpc.insecure_channel(address) as channel:
                yield from _calls(channel, size, operations)
            with RemoteStore(Channel(address)) as remote:
                yield from _operations("grpc store", remote, operations)
        finally:
            server.terminate()
            server.wait(30)


def _calls(channel: grpc.Channel, size: int, operations: int) -> Iterator[Result]:
    matching, service = MatchingStub(channel), ServiceStub(channel)
    supply = Supply(messages(size))

    def requests(count: int) -> list[matching_pb2.MatchRequest]:
        return [matching_pb2.MatchRequest(metadata=message) for message in supply.take(count)]

    warm = requests(500)
    matches = sum(len(matching.Match(request).matches) for request in warm)
    extra = {"matches": matches / len(warm)}
    bodies = [
        json_format.ParseDict(_body(number), subscriptions_pb2.SubscriptionDataInput()) for number in range(operations)
    ]
    result = _timed("grpc Create", lambda number: service.Create(bodies[number]), operations)
    yield replace(result, size=size)
    given = requests(operations)
    result = _timed("grpc Match, one after another", lambda number: matching.Match(given[number]), operations)
    yield replace(result, size=size, extra={**result.extra, **extra})
    streamed = requests(operations)
    with clock() as seconds:
        count = sum(1 for _ in matching.MatchStream(iter(streamed)))
    yield Result("grpc MatchStream", size, (count / seconds(),), Setup("new", None, 1), extra=extra)
    # Too short a run says more about its first milliseconds than about the rest.
    yield _steady(matching, requests(max(operations, RATE * 4)), size, extra)


def _body(number: int) -> dict[str, Any]:
    condition = {"kiwiTreeCondition": {"key": "subject", "pattern": f"bench.{number}"}}
    return {"metadata": {"name": "bench"}, "route": {"destinations": ["d"], "condition": condition}}


def _steady(
    matching: MatchingStub, requests: list[matching_pb2.MatchRequest], size: int, extra: dict[str, float]
) -> Result:
    """Send a request each millisecond, whether the earlier ones are answered or not.

    A latency counts from the moment a request was due, so a queue is not hidden by a client that waits.
    """
    times: list[float] = []
    done = threading.Semaphore(0)
    begun = time.perf_counter() + 0.05
    for number, request in enumerate(requests):
        due = begun + number / RATE
        while (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        call = matching.Match.future(request)

        def note(_: object, due: float = due) -> None:
            times.append(time.perf_counter() - due)
            done.release()

        call.add_done_callback(note)
    for _ in requests:
        done.acquire()
    seconds = time.perf_counter() - begun
    figures = {**_percentiles(times), **extra}
    return Result(f"grpc Match at {RATE:,}/s", size, (len(requests) / seconds,), Setup("new", 1, 1), extra=figures)
