"""The example route without subscriptions beside Bento: one server, one stream, by turns in one run.

Both read the stream FLIGHTS, filter, transform and map, and publish with message ids and acknowledgements. Bento is
told the same in its own words (``bento/route.yaml``). What each has written is read back and compared, record by
record, before a second is told: values, headers and subjects, and of the weighted mappings that the shares are as said.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import yaml

from benchmarks._flights import publish, route, supply
from benchmarks.harness import Case, Options, Result, Setup, clock, rates
from benchmarks.peers.programs import BENTO, HERE, bento
from turnout.embedded import NatsServer
from turnout.errors import StreamError, TurnoutError
from turnout.nats.wire import (  # fmt: skip
    Connection,
    PullReader,
    Range,
    create_stream,
    delete_consumer,
    delete_stream,
    stream_info,
)
from turnout.routes import Route

CASE = "route against Bento"
NAME = f"Bento {BENTO}"

_WINDOW = 3600 * 10**9
SOURCE: dict[str, object] = {"name": "FLIGHTS", "subjects": ["flights.>"], "storage": "file"}
_OUTPUTS = (
    {"name": "OPS", "subjects": ["ops.>"], "storage": "file", "duplicate_window": _WINDOW},
    {"name": "DEAD", "subjects": ["dead.>"], "storage": "file", "duplicate_window": _WINDOW},
)
_LOSSY = "flights.LGA.ATL.DL"
_SHARES = (("ops.jfk.", "ops.jfk-canary.", 0.1), ("ops.most.", "ops.rest.", 0.05))
"""Where weighted mappings lead: the beginnings of two destinations, and the second one's share."""

_PATIENCE = 1800
_HEADERS = ("Date", "Tail-Number")


class Turn(NamedTuple):
    """What one of the two took for the whole stream."""

    seconds: float
    cpu: float
    first_batch_seconds: float = 0.0


class Written(NamedTuple):
    """One record where it went."""

    topic: str
    value: Any
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Books:
    """Contents of the output streams, by the sequence of the source record."""

    records: dict[int, Written] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)


def route_document() -> dict[str, Any]:
    """The example route without subscriptions.

    One line of the example loses a part of its records by weight, and what stays keeps its subject: it would come back
    to the source's stream. Here both parts go elsewhere.
    """
    document = {name: part for name, part in route().items() if name not in ("subscriptions", "unmatched")}
    parts = [
        {"destination": "ops.most.ATL.DL", "weight": "95%"},
        {"destination": "ops.rest.ATL.DL", "weight": "5%"},
    ]
    document["mappings"] = {**document["mappings"], _LOSSY: parts}
    return document


def parsed_route(server: NatsServer) -> Route:
    """That route, from and to this server."""
    return Route.parse(yaml.safe_dump(route_document(), sort_keys=False), {"NATS_URL": server.url})


def cases(options: Options) -> Iterator[Case]:
    """The one case."""
    yield Case(CASE, partial(measure, options.rows(60_000, 5_000), 1 if options.quick else 2))


def measure(records: int, turns: int) -> Iterator[Result]:
    """Turns over records of their own, after one that warms the JVM."""
    from turnout.spark.session.build import route_session

    program, flights, taken = bento(), supply(), []
    with (
        tempfile.TemporaryDirectory(prefix="turnout-peers-") as folder,
        NatsServer(Path(folder) / "nats") as server,
        Connection.open(server.url) as connection,
    ):
        parsed, work = parsed_route(server), Path(folder)
        with route_session(parsed, log=work / "spark.log") as spark:
            for number in range(turns + 1):
                publish(server.url, flights.take(records), SOURCE)
                with outputs(connection):
                    ours = turnout_turn(parsed, spark, work / f"checkpoint-{number}", server)
                    our_books = read_books(connection)
                with outputs(connection):
                    theirs = bento_turn(program, server, connection)
                    compare(our_books, read_books(connection))
                taken.append((ours, theirs))
    mine, its = ([pair[side] for pair in taken[1:]] for side in (0, 1))
    extra = {
        "cpu_us": median(turn.cpu for turn in mine) / records * 1e6,
        "its_cpu_us": median(turn.cpu for turn in its) / records * 1e6,
        "its_per_second": records / median(turn.seconds for turn in its),
        "first_turn_per_second": records / taken[0][0].seconds,
        "first_batch_s": median(turn.first_batch_seconds for turn in mine),
    }
    ratio = median(their.seconds / our.seconds for our, their in taken[1:])
    speeds = rates(records, (turn.seconds for turn in mine))
    yield Result(CASE, records, speeds, Setup("new", None, os.cpu_count() or 1), NAME, ratio, extra)


@contextmanager
def outputs(connection: Connection) -> Iterator[None]:
    """Empty output streams, which know of no message id yet."""
    for config in _OUTPUTS:
        create_stream(connection, config)
    try:
        yield
    finally:
        for config in _OUTPUTS:
            delete_stream(connection, str(config["name"]))


def turnout_turn(parsed: Route, spark: Any, checkpoint: Path, server: NatsServer) -> Turn:
    """The whole stream through turnout."""
    from turnout import spark as ts

    answers: list[Any] = []
    before = _cpu_of_tree(server)
    done = ts.run(parsed, spark, once=True, checkpoint=checkpoint, on_progress=answers.append)
    if not done.counts.conserved:
        raise TurnoutError(f"{CASE}: records are missing: {done.counts}")
    return Turn(done.seconds, _cpu_of_tree(server) - before, answers[0].seconds)


def bento_turn(program: Path, server: NatsServer, connection: Connection) -> Turn:
    """The whole stream through Bento, until every message is acknowledged."""
    last = stream_info(connection, "FLIGHTS")["state"]["last_seq"]
    command = [str(program), "-c", str(HERE / "bento" / "route.yaml")]
    with tempfile.TemporaryFile(mode="w+") as log:
        process = subprocess.Popen(command, env={**os.environ, "NATS_URL": server.url}, stdout=log, stderr=log)
        try:
            with clock() as seconds:
                _await_acknowledged(connection, process, last, log)
            times = psutil.Process(process.pid).cpu_times()
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    delete_consumer(connection, "FLIGHTS", "bento")
    return Turn(seconds(), times.user + times.system)


def _await_acknowledged(connection: Connection, process: subprocess.Popen[bytes], last: int, log: Any) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            raise TurnoutError(f"{NAME} ended: {log.read()[-2000:].strip()}")
        # It is Bento that creates the consumer.
        with suppress(StreamError):
            if connection.api("CONSUMER.INFO.FLIGHTS.bento")["ack_floor"]["stream_seq"] >= last:
                return
        time.sleep(0.05)
    raise TurnoutError(f"{NAME} was not done in {_PATIENCE} seconds")


def _cpu_of_tree(server: NatsServer) -> float:
    """Processor seconds of this process and all below it, those that have ended too; the server's not."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        if process.pid == server.pid:
            continue
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def read_books(connection: Connection) -> Books:
    """Everything in the output streams; a message's id names the record that it was made of."""
    books = Books()
    for batch in _messages(connection, "OPS"):
        for sequence, row in batch:
            headers = tuple((h["key"], h["value"]) for h in row["headers"] or () if h["key"] in _HEADERS)
            books.records[sequence] = Written(row["topic"], json.loads(row["value"]), tuple(sorted(headers)))
    for batch in _messages(connection, "DEAD"):
        books.dead.update(sequence for sequence, _ in batch)
    return books


def _messages(connection: Connection, stream: str) -> Iterator[list[tuple[int, Mapping[str, Any]]]]:
    last = stream_info(connection, stream)["state"]["last_seq"]
    if last:
        for batch in PullReader(connection, Range(stream, 1, last + 1)).batches():
            rows = batch.select(["key", "topic", "value", "headers"]).to_pylist()
            yield [(int(row["key"].split(b":")[1]), row) for row in rows]


def compare(ours: Books, theirs: Books) -> None:
    """See that both did the same with every record.

    Raises:
        TurnoutError: they did not; it names the first record.
    """
    if ours.dead != theirs.dead:
        raise TurnoutError(f"{CASE}: dead letters differ: {sorted(ours.dead ^ theirs.dead)[:5]}")
    for sequence in sorted(ours.records.keys() | theirs.records.keys()):
        our, their = ours.records.get(sequence), theirs.records.get(sequence)
        if our is None or their is None or _undrawn(our) != _undrawn(their):
            raise TurnoutError(f"{CASE}: record {sequence} differs: {our} for Bento's {their}")
    for books, (most, rest, share) in itertools.product((ours, theirs), _SHARES):
        topics = [written.topic for written in books.records.values()]
        of_most, of_rest = (sum(topic.startswith(start) for topic in topics) for start in (most, rest))
        both = of_most + of_rest
        # Five standard deviations of a binomial share.
        if abs(of_rest - both * share) > 5 * (both * share * (1 - share)) ** 0.5 + 1:
            raise TurnoutError(f"{CASE}: {of_rest} of {both} records went to {rest}*, a share of {share} was asked for")


def _undrawn(written: Written) -> Written:
    """Return a record as without a draw for its mapping."""
    topic = written.topic
    for most, rest, _ in _SHARES:
        topic = topic.replace(rest, most)
    return written._replace(topic=topic)
