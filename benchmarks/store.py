"""The stores and the service: create, read, search and match, one at a time and in bulk, in-process and over gRPC.

Each case prints its rate and, where one operation is timed alone, the median and the 99th percentile in
milliseconds. Matching over gRPC is also done at a steady rate, because that is what a latency is promised for.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from benchmarks.harness import Options, Result, clock
from turnout.conditions import all_of, kiwi, not_
from turnout.rpc.client import Channel, RemoteStore
from turnout.rpc.v1 import matching_pb2, subscriptions_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub
from turnout.subscriptions import Store, Subscription, open_store
from turnout.subscriptions.lines import export_lines, import_lines

KEYS = 8
RATE = 1_000
"""Match requests a second of the steady case."""


def run(options: Options) -> list[Result]:
    """Measure SQLite, then the service over the same kind of file."""
    size = options.rows(100_000, 5_000)
    operations = 300 if options.quick else 3_000
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        results = [*_sqlite(Path(folder), size, operations, options)]
        # "grpc Match" asks for some of its cases, "grpc" for all of them.
        if options.wants("grpc") or any("grpc" in part for part in options.cases):
            results += _grpc(Path(folder), size, operations, options)
    return results


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


def messages(size: int, count: int, seed: int = 8) -> list[dict[str, str]]:
    """Eight keys each; every second message has a subject that somebody asks for."""
    rolls = random.Random(seed)
    return [
        {
            "subject": f"orders.{rolls.randrange(size * 2)}{'.x' if number % 4 == 0 else ''}",
            "location": f"city{rolls.randrange(100)}",
            **{f"key{n}": f"value{rolls.randrange(1_000)}" for n in range(KEYS - 2)},
        }
        for number in range(count)
    ]


def _sqlite(folder: Path, size: int, operations: int, options: Options) -> Iterator[Result]:
    lines = folder / "lines.jsonl"
    with open_store(f"sqlite:///{folder}/bulk.db") as store:
        new = list(generated_subscriptions(size))
        with clock() as seconds:
            store.create_many(new)
        if options.wants("sqlite bulk create"):
            yield Result("sqlite bulk create", size, size / seconds())
        if options.wants("sqlite snapshot"):
            with clock() as seconds:
                store.snapshot()
            yield Result("sqlite snapshot", size, size / seconds())
        yield from _operations("sqlite", store, operations, options)
        if options.wants("sqlite import"):
            lines.write_text("\n".join(export_lines(store)), "utf-8")
    if options.wants("sqlite import"):
        with open_store(f"sqlite:///{folder}/import.db") as store, lines.open("rb") as read:
            with clock() as seconds:
                done = import_lines(store, read)
            yield Result("sqlite import JSON lines", done.created, done.created / seconds())


def _operations(name: str, store: Store, operations: int, options: Options) -> Iterator[Result]:
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
        # Reading and deleting need what creating makes: all are done, what was not asked for is not told.
        if work is no_changes:
            revision = store.revision()
        case = f"{name} {work.__name__.replace('_', ' ')}"
        result = _timed(case, work, operations)
        if options.wants(case):
            yield result


def _timed(case: str, work: Callable[[int], object], operations: int) -> Result:
    times = []
    with clock() as seconds:
        for number in range(operations):
            begun = time.perf_counter()
            work(number)
            times.append(time.perf_counter() - begun)
    return Result(case, operations, operations / seconds(), extra=_percentiles(times))


def _percentiles(times: list[float]) -> dict[str, float]:
    times.sort()
    return {
        "p50_ms": round(times[len(times) // 2] * 1e3, 3),
        "p99_ms": round(times[min(len(times) - 1, len(times) * 99 // 100)] * 1e3, 3),
    }


def _grpc(folder: Path, size: int, operations: int, options: Options) -> Iterator[Result]:
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
                yield from _calls(channel, size, operations, options)
            with RemoteStore(Channel(address)) as remote:
                yield from _operations("grpc store", remote, operations, options)
        finally:
            server.terminate()
            server.wait(30)


def _calls(channel: grpc.Channel, size: int, operations: int, options: Options) -> Iterator[Result]:
    matching, service = MatchingStub(channel), ServiceStub(channel)
    metadata = messages(size, operations)
    requests = [matching_pb2.MatchRequest(metadata=message) for message in metadata]
    matches = sum(len(matching.Match(request).matches) for request in requests[:500])
    per_message = {"matches_per_message": round(matches / min(500, operations), 3)}
    body = {
        "metadata": {"name": "bench"},
        "route": {
            "destinations": ["d"],
            "condition": {"kiwiTreeCondition": {"key": "subject", "pattern": "bench"}},
        },
    }
    from google.protobuf import json_format

    create = json_format.Parse(json.dumps(body), subscriptions_pb2.SubscriptionDataInput())
    cases: dict[str, Callable[[int], object]] = {
        "grpc Create": lambda _: service.Create(create),
        "grpc Match, one after another": lambda number: matching.Match(requests[number]),
    }
    for case, work in cases.items():
        if options.wants(case):
            result = _timed(case, work, operations)
            extra = {**result.extra, **(per_message if "Match" in case else {})}
            yield Result(case, size, result.rows_per_second, extra=extra)
    if options.wants("grpc MatchStream"):
        with clock() as seconds:
            count = sum(1 for _ in matching.MatchStream(iter(requests)))
        yield Result("grpc MatchStream", size, count / seconds(), extra=per_message)
    if options.wants("grpc Match at a steady rate"):
        yield _steady(matching, requests, size, per_message)


def _steady(matching: MatchingStub, requests: list[matching_pb2.MatchRequest], size: int, extra: dict) -> Result:
    """Send a request each millisecond, whether the earlier ones are answered or not.

    A latency counts from the moment a request was due, so a queue is not hidden by a client that waits.
    """
    times: list[float] = []
    done = threading.Semaphore(0)
    begun = time.perf_counter() + 0.05
    # Too short a run says more about its first milliseconds than about the rest.
    count = max(len(requests), RATE * 5)
    for number in range(count):
        due = begun + number / RATE
        while (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        call = matching.Match.future(requests[number % len(requests)])

        def note(_: object, due: float = due) -> None:
            times.append(time.perf_counter() - due)
            done.release()

        call.add_done_callback(note)
    for _ in range(count):
        done.acquire()
    seconds = time.perf_counter() - begun
    return Result(f"grpc Match at {RATE:,}/s", size, count / seconds, extra={**_percentiles(times), **extra})
