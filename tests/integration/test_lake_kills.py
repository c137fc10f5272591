"""``kill -9`` of whole runs into four tables, at every point of each sink: no row is lost, and none is there twice.

``TURNOUT_LAKE_KILLS`` says how many kills; ``pytest -s`` prints a line for each sink. This file is also the program
that dies.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from tests.integration.routes import write_route
from tests.lake import Lake, flights
from tests.postgres import NotAvailable, Postgres

from turnout.conditions import exists
from turnout.demo.kafka_broker import resolve_jars
from turnout.errors import TurnoutError
from turnout.routes.endpoints.tables import MATCHES
from turnout.subscriptions import Subscription, open_store

psycopg = pytest.importorskip("psycopg")

SINKS: Final = ("delta", "iceberg", "jdbc", MATCHES)
POINTS: Final = ("ambiguous", "landed", "sent", "written", "counted", "begun")
"""Behind a commit that has landed and is reported as failed, when that is looked at, or known to Spark; when the rows
of a micro-batch are part of the table; when the log's library, or the database, is about to make them so; when they
are beside it; before Spark notes the micro-batch; and before its rows are written."""

KILLS: Final = int(os.environ.get("TURNOUT_LAKE_KILLS", f"{len(SINKS) * len(POINTS)}"))
ROWS: Final = 3
_RUN_SECONDS: Final = 300.0
_SPARK: Final = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""A run is over in a few seconds: compiling Java's code thoroughly costs more than it gains."""


# --- The program that dies --------------------------------------------------------------------------------------------


def with_death_at(point: str, of_sink: str) -> None:
    """Let this process die at a point of a sink, in its second micro-batch."""
    from turnout.runtime.lake import delta, iceberg
    from turnout.spark.formats import lake, tables

    numbers: dict[int, None] = {}
    sink = ""

    def reached(*points: str) -> bool:
        return point in points and sink == of_sink and len(numbers) == 2

    def at(*points: str) -> None:
        if reached(*points):
            # Its process group: the JVM and the workers as well.
            os.killpg(0, signal.SIGKILL)

    def around(write_rows: Callable[..., bool]) -> Callable[..., bool]:
        def patched(self: Any, rows: Any, plan: Any, batch: Any) -> bool:
            nonlocal sink
            sink = batch.sink
            numbers[batch.number] = None
            at("begun")
            try:
                is_new = write_rows(self, rows, plan, batch)
            except Exception:
                at("ambiguous")
                raise
            at("counted")
            return is_new

        return patched

    def committed(append: Callable[..., None]) -> Callable[..., None]:
        def patched(*arguments: Any) -> None:
            at("sent")
            append(*arguments)
            at("landed")
            if reached("ambiguous"):
                raise OSError("the connection was closed before the answer")

        return patched

    written, has, execute = lake._written, lake._has, tables._execute

    def files(*arguments: Any) -> Any:
        found = written(*arguments)
        at("written")
        return found

    def looked(table: Any, mark: Any) -> bool:
        found = has(table, mark)
        if found:
            at("ambiguous")
        return found

    def executed(spark: Any, options: Any, statements: tuple[str, ...]) -> None:
        def until_the_commit() -> Iterator[str]:
            yield from statements
            at("sent")

        at("written")
        execute(spark, options, until_the_commit())  # type: ignore[arg-type]
        at("landed")
        if reached("ambiguous"):
            raise OSError("the connection was closed before the answer")

    for endpoint in (lake.LakeEndpoint, tables.SparkProvider):
        endpoint.write_rows = around(endpoint.write_rows)  # type: ignore[method-assign]
    for module in (delta, iceberg):
        module.Table.append = committed(module.Table.append)
    lake._written, lake._has, tables._execute = files, looked, executed  # type: ignore[assignment]


# --- The test ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def database() -> Iterator[Postgres]:
    try:
        with Postgres() as server, psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE out (id bigint PRIMARY KEY, fare numeric(10,2))")
            yield server
    except NotAvailable as reason:
        pytest.skip(str(reason))


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_no_row_lost_and_none_twice(database: Postgres, tmp_path: Path) -> None:
    """Whatever the killed run was doing in whichever sink, and whatever its commit said."""
    delta, iceberg = Lake("delta", tmp_path), Lake("iceberg", tmp_path)
    expected = []
    for batch in range(2 * KILLS + 2):
        # The last row of a micro-batch comes again in the next one: by its key the later one counts.
        ids = range(batch * (ROWS - 1), batch * (ROWS - 1) + ROWS)
        delta.add("flights", flights(*ids, fare=Decimal(batch)))
        expected += [(id_, batch) for id_ in ids]
    with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
        store.create(Subscription([f"{name}:all" for name in SINKS[:-1]], exists("carrier"), id="all"))
    route, died = write_route(tmp_path, route_of(delta, iceberg, database)), Counter[tuple[str, str]]()
    points = itertools.islice(itertools.cycle((sink, point) for point in POINTS for sink in SINKS), KILLS)
    for sink, point in points:
        died[sink, point] += run(route, point, sink) == -signal.SIGKILL
    assert run(route, "none", "none") == 0

    found = {
        "delta": sorted((row["id"], int(row["fare"])) for row in delta.rows("out")),
        "iceberg": sorted((row["id"], int(row["fare"])) for row in iceberg.rows("out")),
    }
    with psycopg.connect(database.url) as connection:
        rows = connection.execute("SELECT id, fare FROM out ORDER BY id").fetchall()
        beside = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE '%turnout%'").fetchall()
    found["jdbc"] = [(id_, int(fare)) for id_, fare in rows]
    matches = delta.rows("matches")
    found[MATCHES] = sorted({(row["id"], int(row["fare"])) for row in matches})
    assert found == {
        **dict.fromkeys(SINKS, sorted(expected)),
        "jdbc": sorted(dict(expected).items()),
    }
    keys = Counter((row["position"], row["destination"]) for row in matches)
    assert (len(keys), max(keys.values())) == (len(expected) * len(SINKS[:-1]), 1)
    assert not beside
    assert died.total() == KILLS
    for sink in SINKS:
        of_sink = {point: died[sink, point] for point in POINTS}
        print(
            f"\n{sink}: {KILLS} kills, {of_sink} of them at its points: {len(found[sink])} rows, 0 lost, 0 twice",
            end="",
        )


def route_of(delta: Lake, iceberg: Lake, database: Postgres) -> str:
    """A route whose one subscription delivers to each table, and whose matches are a table too."""
    try:
        (jar,) = resolve_jars(["org.postgresql:postgresql:42.7.8"], without=("*",))
    except TurnoutError as reason:
        pytest.skip(str(reason))
    options = {"url": f"jdbc:postgresql://127.0.0.1:{database.port}/postgres", "dbtable": "out", "user": "turnout"}
    columns = {"id": "value.id BIGINT", "fare": "value.fare DECIMAL(10,2)"}
    sinks = {
        "delta": json.loads(delta.block("out")),
        "iceberg": json.loads(iceberg.block("out")),
        "jdbc": {"format": "spark", "provider": "jdbc", "options": options, "upsertBy": "id", "columns": columns},
    }
    route = {
        "name": "kills",
        "source": json.loads(delta.block("flights", record={"topic": "t"}, start=0, maxVersionsPerTrigger=1)),
        "subscriptions": {
            "store": f"sqlite:///{delta.folder}/subscriptions.db",
            "metadata": {"carrier": "value.carrier"},
            "feeds": {"table": json.loads(delta.block("matches", columns=columns))},
        },
        "sinks": sinks,
        "checkpoint": f"{delta.folder}/checkpoint",
        "spark": {**_SPARK, "spark.jars": str(jar)},
    }
    return json.dumps(route)


def run(route: Path, point: str, sink: str) -> int:
    """Run the route once in a process group of its own, and return how it ended."""
    command = [sys.executable, "-m", __name__, point, sink, "run", str(route), "--once", "--master", "local[1]"]
    with (route.parent / "run.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        guard = threading.Timer(_RUN_SECONDS, os.killpg, (process.pid, signal.SIGTERM))
        guard.start()
        code = process.wait()
        guard.cancel()
    assert code in (0, -signal.SIGKILL), (route.parent / "run.log").read_text()[-3000:]
    return code


if __name__ == "__main__":
    place, name, *arguments = sys.argv[1:]
    with_death_at(place, name)
    sys.argv = ["turnout", *arguments]
    from turnout.cli import main

    main()
