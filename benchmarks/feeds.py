"""Feeds: what a match takes on disk, and how long a page of one feed among a million takes.

Matches are written as runs write them, a file for each micro-batch, and merged. The same matches in SQLite and Parquet
are the baselines. A page is also read whole: found, fetched from a nats-server and put through the engine.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import Case, Options, Result, Setup, clock
from benchmarks.route import empty_outputs, flights_server, whole
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.history.feed import FeedReader
from turnout.nats.wire import Connection, Publisher, create_stream
from turnout.routes import Route
from turnout.runtime.matches import Matches, MatchFolder, MatchPart, encode, hash_of
from turnout.subscriptions import Subscription, open_store

FEEDS = 1_000_000
BATCH = 500_000
"""Matches of one micro-batch."""

PAGE = 100
_STREAM = "S"
_PAGES = 300
_SETUP = Setup("none", BATCH, 1)

Find = Callable[[int, int], object]
"""Reads a page of a subscription from a sequence on."""


def cases(options: Options) -> Iterator[Case]:
    """The files alone, with their baselines; then whole pages."""
    size = options.rows(10_000_000, 1_000_000)
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        if options.wants("matches of"):
            yield Case("matches of a million feeds", lambda: _files(Path(folder), size))
        if options.wants("in SQLite"):
            yield Case("the same in SQLite", lambda: _sqlite(Path(folder), min(size, 2_000_000)))
        if options.wants("in Parquet"):
            yield Case("the same in Parquet", lambda: _parquet(Path(folder), min(size, 2_000_000)))
        if options.wants("route with"):
            yield Case("route with feeds", lambda: _route(Path(folder), options))
        if options.wants("page of"):
            yield Case("page of 100 messages", lambda: _pages(Path(folder), options.rows(200_000, 50_000)))


def batches(size: int) -> Iterator[Matches]:
    """Yield the matches of micro-batches: every record matches two feeds, of which some have far more than others."""
    rolls = np.random.default_rng(11)
    for begin in range(0, size, BATCH):
        count = min(BATCH, size - begin)
        feeds = np.minimum(rolls.zipf(1.3, count), FEEDS).astype(np.uint64)
        feeds[::2] = rolls.integers(1, FEEDS, len(feeds[::2]))
        # Numbers become hashes, as of ids.
        yield Matches(feeds * np.uint64(0x9E3779B97F4A7C15), (begin + np.arange(count)) // 2 + 1)


def _timed(find: Find, size: int) -> dict[str, float]:
    """Return percentiles of pages of random feeds."""
    rolls = np.random.default_rng(12)
    spent = []
    for feed in rolls.integers(1, FEEDS, _PAGES).tolist():
        begun = time.perf_counter()
        find(feed * 0x9E3779B97F4A7C15 % (1 << 64), int(rolls.integers(0, size // 4)))
        spent.append(time.perf_counter() - begun)
    return {f"page_p{share}_ms": float(np.percentile(spent, share)) * 1e3 for share in (50, 99)}


def _files(folder: Path, size: int) -> Iterator[Result]:
    matches = MatchFolder(folder / "matches")
    begin, writing, merging = 1, 0.0, 0.0
    for batch in batches(size):
        end = int(batch.sequences[-1]) + 1
        with clock() as seconds:
            matches.put(MatchPart(begin, end, 0, _STREAM).name, encode(batch))
        writing, begin = writing + seconds(), end
        with clock() as seconds:
            while matches.merge(_STREAM, end):
                pass
        merging += seconds()
    figures = {"bytes": matches.bytes() / size, "files": len(matches.parts(_STREAM)), "merging_s": merging}
    timed = _timed(lambda feed, after: matches.page(_STREAM, feed, after, begin, PAGE), size)
    yield Result("matches of a million feeds", size, (size / writing,), _SETUP, extra={**figures, **timed})


def _sqlite(folder: Path, size: int) -> Iterator[Result]:
    """Matches as rows of a table that is its own index."""
    path = folder / "matches.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "CREATE TABLE matches (feed INTEGER, sequence INTEGER, PRIMARY KEY (feed, sequence)) WITHOUT ROWID"
    )
    with clock() as seconds:
        for batch in batches(size):
            feeds = batch.subscriptions.view(np.int64).tolist()
            connection.executemany(
                "INSERT OR IGNORE INTO matches VALUES (?, ?)", zip(feeds, batch.sequences.tolist(), strict=True)
            )
            connection.commit()
    wrote = seconds()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    query = "SELECT sequence FROM matches WHERE feed = ? AND sequence > ? ORDER BY sequence LIMIT ?"

    def find(feed: int, after: int) -> object:
        return connection.execute(query, (int(np.uint64(feed).view(np.int64)), after, PAGE)).fetchall()

    timed = _timed(find, size)
    connection.close()
    figures = {"bytes": path.stat().st_size / size}
    yield Result("the same in SQLite", size, (size / wrote,), _SETUP, extra={**figures, **timed})


def _parquet(folder: Path, size: int) -> Iterator[Result]:
    """A sorted file for each micro-batch, read by the statistics of its row groups."""
    files: list[pq.ParquetFile] = []
    writing, total = 0.0, 0
    for number, batch in enumerate(batches(size)):
        path = folder / f"{number}.parquet"
        with clock() as seconds:
            rows = batch.distinct()
            table = pa.table({"feed": rows.subscriptions, "sequence": rows.sequences})
            pq.write_table(table, path, row_group_size=20_000, compression="zstd")
        writing += seconds()
        total += path.stat().st_size
        files.append(pq.ParquetFile(path))

    def find(feed: int, after: int) -> object:
        found = []
        for file in files:
            for group in range(file.num_row_groups):
                limits = file.metadata.row_group(group).column(0).statistics
                if limits.min <= feed <= limits.max:
                    table = file.read_row_group(group)
                    wanted = pc.and_(
                        pc.equal(table["feed"], pa.scalar(feed, pa.uint64())), pc.greater(table["sequence"], after)
                    )
                    found += table.filter(wanted)["sequence"].to_pylist()
            if len(found) >= PAGE:
                break
        return found[:PAGE]

    timed = _timed(find, size)
    extra = {"bytes": total / size, "files": len(files), **timed}
    yield Result("the same in Parquet", size, (size / writing,), _SETUP, extra=extra)


def _route(folder: Path, options: Options) -> Iterator[Result]:
    """The example's route without feeds and with them, in two runs over flights of their own."""
    records = options.rows(150_000, 20_000)
    with flights_server(1_000 if options.quick else 10_000) as (server, environment, _):
        route = Route.load(route_file(), environment)
        assert route.subscriptions is not None
        having = replace(route, subscriptions=route.subscriptions.model_copy(update={"feeds": True}))
        measured = []
        for number, version in enumerate((route, having)):
            work = folder / f"run{number}"
            work.mkdir()
            measured.append(whole(version, work, server, records, number))
            empty_outputs(server)
    without, with_feeds = measured
    cpu = with_feeds.extra["after_first_cpu_us"]
    extra = {"after_first_cpu_us": cpu, "without_us": without.extra["after_first_cpu_us"]}
    ratio = with_feeds.rows_per_second / without.rows_per_second
    setup = with_feeds.setup
    yield Result("route with feeds", records, with_feeds.rates, setup, "without feeds", ratio, extra)


def _pages(folder: Path, size: int) -> Iterator[Result]:
    """Pages of feeds with a hundred messages each, among a million others."""
    feeds = size // PAGE
    with NatsServer(folder / "nats") as server, Connection.open(server.url) as connection:
        create_stream(connection, {"name": _STREAM, "subjects": ["orders"]})
        with Publisher(connection) as publisher:
            for number in range(size):
                value = {"n": number, "city": f"city{number % feeds}", "text": "x" * 200}
                publisher.publish("orders", json.dumps(value).encode())
        checkpoint = _checkpoint(folder / "checkpoint", size)
        text = f"""
            name: bench
            source: {{format: nats, servers: "{server.url}", stream: {_STREAM}}}
            value: {{format: json}}
            transforms: [{{name: mask, type: MaskField$Value, fields: text}}]
            subscriptions: {{store: "sqlite:///{folder}/s.db", metadata: {{city: value.city}}, feeds: true}}
            sink: {{format: nats, servers: "{server.url}"}}
        """
        with open_store(f"sqlite:///{folder}/s.db") as store:
            store.create_many([Subscription(["feed:"], f"city:city{n}", id=f"feed{n}") for n in range(feeds)])
        _put_pages(MatchFolder.beside(checkpoint), size, feeds)
        spent = []
        with FeedReader(Route.parse(text), checkpoint) as reader:
            for feed in np.random.default_rng(13).permutation(feeds)[:_PAGES].tolist():
                begun = time.perf_counter()
                page = reader.page(f"feed{feed}", 0, PAGE)
                spent.append(time.perf_counter() - begun)
                assert len(page.messages) == PAGE, f"expected {PAGE} messages, found {len(page.messages)}"
    figures = {f"page_p{share}_ms": float(np.percentile(spent, share)) * 1e3 for share in (50, 99)}
    yield Result("page of 100 messages", size, (PAGE * len(spent) / sum(spent),), Setup("new", PAGE, 1), extra=figures)


def _put_pages(matches: MatchFolder, size: int, feeds: int) -> None:
    """Store the matches of these feeds, and one of each of a million others."""
    hashes = np.array([hash_of(f"feed{number}") for number in range(feeds)], np.uint64)
    own = Matches(hashes[np.arange(size) % feeds], np.arange(1, size + 1))
    others = Matches(
        np.arange(1, FEEDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15), np.arange(FEEDS) % size + 1
    )
    matches.put(MatchPart(1, size + 1, 1, _STREAM).name, encode(Matches.joined([own, others])))


def _checkpoint(folder: Path, size: int) -> Path:
    """Return a checkpoint whose only micro-batch has the whole stream."""
    for part, content in (("offsets", f'v1\n{{}}\n{{"{_STREAM}": {size + 1}}}'), ("commits", "v1\n{}")):
        (folder / part).mkdir(parents=True)
        (folder / part / "0").write_text(content, encoding="utf-8")
    return folder
