"""Memory that subscriptions of two leaves (one prefix, one value) take, in a process of each role.

Each figure is of a process of its own, in MB: what it has for itself (USS), and the index's files, which the processes
of a machine share. *service* is `turnout subscriptions serve` after its first match, *driver* a route's own process
while it keeps the index, *worker* one of its Python workers that has matched a batch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import psutil

from benchmarks.harness import Case, Options, Result, Setup
from benchmarks.match import columns_of, mixed, zipf_messages
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index, IndexFolder
from turnout.subscriptions.matcher import LiveMatcher

SIZES = (10_000, 100_000)
MIX = "prefix"


def own_megabytes() -> float:
    """What this process has for itself, without what it shares with others and without pages of files."""
    memory = psutil.Process().memory_full_info()
    return memory.uss / 1e6


def store_of(folder: Path) -> str:
    """The address of the store."""
    return f"sqlite:///{folder / 'subscriptions.db'}"


def service(folder: Path) -> dict[str, float]:
    """The process that answers matches."""
    import turnout.rpc.server  # noqa: F401 - what the service has loaded counts

    store = open_store(store_of(folder))
    live = LiveMatcher(store)
    for message in islice(zipf_messages(1_000), 100):
        live.match(message)
    return {"service": own_megabytes()}


def driver(folder: Path) -> dict[str, float]:
    """The process that keeps a route's index in step with the store."""
    import pyspark.sql  # noqa: F401

    with IndexFolder(folder / "index", open_store(store_of(folder)), keep=1) as writer:
        size = sum(path.stat().st_size for path in writer.folder.glob("segment-*"))
        return {"driver": own_megabytes(), "index": size / 1e6}


def worker(folder: Path) -> dict[str, float]:
    """A process that matches batches with it."""
    import pyspark.sql  # noqa: F401

    revision = max(int(path.stem.partition("-")[2]) for path in (folder / "index").glob("revision-*.json"))
    index = Index.open(folder / "index", revision)
    messages = list(islice(zipf_messages(1_000), 20_000))
    index.deliveries(index.match(columns_of(index, messages), len(messages)))
    return {"worker": own_megabytes(), "worker_resident": psutil.Process().memory_info().rss / 1e6}


ROLES = {role.__name__: role for role in (service, driver, worker)}


def cases(options: Options) -> Iterator[Case]:
    """Growing numbers of subscriptions."""
    for size in (options.size,) if options.size else (1_000,) if options.quick else SIZES:
        yield Case(f"memory {size}", partial(measured, size))


def measured(size: int) -> Iterator[Result]:
    """The figures of one number of subscriptions."""
    with tempfile.TemporaryDirectory(prefix="turnout-memory-") as name:
        folder = Path(name)
        store = open_store(store_of(folder))
        store.create_many(mixed(MIX)(size))
        store.close()
        figures: dict[str, float] = {"store": (folder / "subscriptions.db").stat().st_size / 1e6}
        for role in ROLES:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.memory", role, name],
                capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1],
            )  # fmt: skip
            figures |= json.loads(done.stdout)
    extra = {f"{name}_mb": megabytes for name, megabytes in figures.items()}
    yield Result("memory", size, (0.0,), Setup("none", None, 1), extra=extra)


if __name__ == "__main__":
    print(json.dumps(ROLES[sys.argv[1]](Path(sys.argv[2]))))
