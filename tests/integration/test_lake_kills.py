"""``kill -9`` of whole runs into tables of the lake, at every point of a micro-batch: each row is there once.

``TURNOUT_LAKE_KILLS`` says how many kills, of each format. This file is also the program that dies.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.integration.routes import write_route
from tests.lake import Lake, flights

KILLS: Final = int(os.environ.get("TURNOUT_LAKE_KILLS", "20"))
POINTS: Final = ("begun", "written", "landed", "reported", "counted", "ambiguous")
"""Before the files of a micro-batch are written, behind that, behind the commit in its place (whatever it would have
said), while it is looked for, before Spark notes the micro-batch; and one commit that is reported as failed, with the
kill at the next one's files."""

ROWS: Final = 3
_RUN_SECONDS: Final = 300.0


def die() -> None:
    """End this process, its JVM and its workers at once."""
    os.killpg(0, signal.SIGKILL)


def with_death_at(point: str, kind: str) -> None:
    """Let this process die at the second micro-batch's point."""
    from turnout.spark.formats import lake

    module = __import__(f"turnout.runtime.lake.{kind}", fromlist=["Table"])
    turns, endpoint = itertools.count(1), lake.LakeEndpoint
    write_rows, written, append = endpoint.write_rows, lake._written, module.Table.append
    turn = 0

    def at(*points: str) -> None:
        if point in points and turn == 2:
            die()

    def begun(self: Any, *arguments: Any) -> bool:
        nonlocal turn
        turn = next(turns)
        at("begun")
        is_new = write_rows(self, *arguments)
        at("counted")
        return is_new

    def files(*arguments: Any) -> Any:
        found = written(*arguments)
        at("written", "ambiguous")
        return found

    def landed(self: Any, *arguments: Any) -> None:
        append(self, *arguments)
        at("landed")
        if point in ("ambiguous", "reported"):
            raise OSError("the connection was closed before the answer")

    def looked(table: Any, mark: Any, has: Callable[[Any, Any], bool] = lake._has) -> bool:
        found = has(table, mark)
        if found:
            at("reported")
        return found

    endpoint.write_rows, lake._written, module.Table.append, lake._has = begun, files, landed, looked  # type: ignore[assignment,method-assign]


@pytest.mark.heavy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_each_row_once(kind: str, tmp_path: Path) -> None:
    """No row is lost and none is there twice, whatever the killed run was doing, and whatever its commit said."""
    tables, ids = Lake(kind, tmp_path), itertools.count()
    for _ in range(2 * KILLS + 2):
        tables.add("flights", flights(*itertools.islice(ids, ROWS)))
    total = next(ids)
    source = tables.block("flights", record={"topic": "t"}, start=0, maxVersionsPerTrigger=1)
    text = f"name: kills\nsource: {source}\nsink: {tables.block('out')}\ncheckpoint: {tmp_path}/checkpoint\n"
    route, died = write_route(tmp_path, text), Counter[str]()
    for point in itertools.islice(itertools.cycle(POINTS), KILLS):
        died[point] += run(route, point, kind) == -signal.SIGKILL
    assert run(route, "none", kind) == 0

    assert [row["id"] for row in tables.rows("out")] == list(range(total))
    print(f"{died.total()} kills: {dict(died)}; {total} rows, each once")
    assert died.total() == KILLS


def run(route: Path, point: str, kind: str) -> int:
    """Run the route once in a process group of its own, and return how it ended."""
    command = [sys.executable, "-m", __name__, point, kind, "run", str(route), "--once", "--master", "local[1]"]
    with (route.parent / "run.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        guard = threading.Timer(_RUN_SECONDS, os.killpg, (process.pid, signal.SIGTERM))
        guard.start()
        code = process.wait()
        guard.cancel()
    assert code in (0, -signal.SIGKILL), (route.parent / "run.log").read_text()[-3000:]
    return code


if __name__ == "__main__":
    place, format_, *arguments = sys.argv[1:]
    with_death_at(place, format_)
    sys.argv = ["turnout", *arguments]
    from turnout.cli import main

    main()
