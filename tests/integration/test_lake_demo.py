"""The demo with tables as a user runs it, held to what DuckDB finds in its tables afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

duckdb = pytest.importorskip("duckdb")
deltalake = pytest.importorskip("deltalake")

from turnout.demo.lake_year import QUESTION  # noqa: E402 - only where its library is installed

LIMIT = 10_000


@pytest.mark.heavy
def test_demo(tmp_path: Path) -> None:
    """Flights go from a table past the subscriptions to JetStream, and each match is a row of another table."""
    command = [sys.executable, "-m", "turnout", "demo", "--lake", "--keep", "--json", "--master", "local[2]"]
    options = ["--limit", str(LIMIT), "--subscriptions", "300"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    counts, server = report["counts"], report["server"]
    sql = duckdb.connect()
    for name in ("flights", "matches"):
        sql.register(name, deltalake.DeltaTable(tmp_path / ".turnout/demo" / name).to_pyarrow_table())
    (found,) = sql.sql(
        "SELECT count(*), count(DISTINCT position), count(*) FILTER (time IS NULL OR revision IS NULL) FROM matches"
    ).fetchall()
    assert found == (server["DELIVERIES"], counts["delivered"], 0)
    assert sql.sql("SELECT count(*) FROM flights").fetchall()[0][0] == counts["read"] == LIMIT + 1
    assert counts["messages"] == server["DELIVERIES"] + report["matches"]
    assert counts["dead_lettered"] == server["DEAD"] == 1
    by_destination = dict(sql.sql("SELECT destination, count(*) FROM matches GROUP BY 1").fetchall())
    assert report["top_destinations"].items() <= by_destination.items()
    # What is in the table is what the subscription asked for, by the flights themselves.
    alaska = sql.sql("SELECT count(*) FROM flights WHERE carrier = 'AS' AND cancelled IS NULL").fetchall()
    assert alaska == [(by_destination["deliver.alaska"],)]
    answer = sql.sql(QUESTION)
    assert [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()] == report["answer"]
