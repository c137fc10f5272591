"""A table that expressions look up changes: each run has one revision, its messages say which, a replay has it too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.routes import Streams

from turnout import spark as ts
from turnout.errors import ConfigError
from turnout.history.lineage import walk
from turnout.history.replay import plan_replay
from turnout.routes import Route
from turnout.spark.history.replay import carry_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("cel_expr_python")

ROUTE = """
name: looked-up
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
tables:
  cities: {{format: csv, path: cities.csv, key: code}}
transforms:
  - name: city
    type: Set
    fields: {{value.city: 'lookup("cities", value.code).name'}}
sink: {{format: nats, servers: "{url}", stream: {sink}, lineage: true}}
mappings: {{"in-{name}.*": "{out}"}}
checkpoint: {folder}/checkpoint
"""


@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
def test_a_table_that_changes(remote: bool, spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The table of a run is that of its start; a replay has that of its records, and lineage that of the message.

    A checkpoint that is not on this machine is one in a file system of Hadoop's here, which is mounted for it alone.
    """
    folder = str(tmp_path)
    if remote:
        spark.conf.set(f"fs.viewfs.mounttable.{streams.name}.link./mounted", f"file://{tmp_path}")
        folder = f"viewfs://{streams.name}/mounted"
    names = {
        "url": streams.url,
        "source": streams.source,
        "sink": streams.sink,
        "out": streams.out("all"),
        "name": streams.name,
    }
    file, cities = tmp_path / "route.yaml", tmp_path / "cities.csv"
    file.write_text(ROUTE.format(**names, folder=folder))
    route = Route.load(file)

    def messages() -> list[tuple[str, str, str]]:
        """City, revision and place of each message."""
        found = []
        for row in streams.delivered():
            city = json.loads(row["value"])["city"]
            found.append((city, row["headers"]["Turnout-Tables"], f"{streams.sink}:{row['offset']}"))
        return found

    cities.write_text("code,name\nOUL,Uleåborg\n")
    streams.publish([("a", b'{"code": "OUL"}', [])])
    ts.run(route, spark, once=True)
    cities.write_text("code,name\nOUL,Oulu\n")
    carry_out(plan_replay(route, id="of-the-first"), spark)
    streams.publish([("a", b'{"code": "OUL"}', [])])
    ts.run(route, spark, once=True)

    carry_out(plan_replay(route, start=1, end=2, id="of-the-first-again"), spark)
    carry_out(plan_replay(route, start=2, id="of-the-second"), spark)

    first, replayed, second, again, last = messages()
    assert [one[0] for one in (first, replayed, second, again, last)] == [
        "Uleåborg", "Uleåborg", "Oulu", "Uleåborg", "Oulu",
    ]  # fmt: skip
    assert first[1] == replayed[1] == again[1] != second[1] == last[1]
    assert first[1].startswith("cities=")
    with pytest.raises(
        ConfigError, match=rf"at revision \w+ from {streams.source}:1 on, \w+ from {streams.source}:2 on"
    ):
        carry_out(plan_replay(route, id="of-both"), spark)
    # Lineage has no session, and so not the rows of a remote checkpoint.
    for _, _, place in () if remote else (first, second):
        walked = walk(place, route=route)
        assert not walked.gaps, walked.gaps
