"""Tables whose rows expressions look up: every format, revisions that a run keeps, and what is refused."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake import Lake, flights

from turnout.cli.check import probe
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import RouteError, StreamError
from turnout.nats.wire import Connection
from turnout.nats.wire.streams import create_stream, delete_stream
from turnout.routes import Route
from turnout.runtime.lake.lookups import with_rows

pytest.importorskip("cel_expr_python")

EXPRESSION = 'lookup("airlines", value.carrier).name'


def route(folder: Path, table: dict[str, Any], expression: str = EXPRESSION, more: str = "") -> Route:
    fields = json.dumps({"value.airline": expression})
    return Route.parse(
        'name: r\nsource: {format: nats, servers: "nats://a", stream: S}\nvalue: {format: json}\n'
        f"tables: {{airlines: {json.dumps(table)}}}\n"
        f"transforms: [{{name: airline, type: Set, fields: {json.dumps(fields)}}}]\n"
        'sink: {format: nats, servers: "nats://a", lineage: true}\n'
        f'deadLetter: {{topic: dead}}\nerrors: {{tolerance: all}}\ncheckpoint: "{folder}/checkpoint"\n{more}',
        {},
        file=folder / "route.yaml",
    )


def messages(found: Route, *values: Any) -> list[tuple[str, Any, dict[str, str]]]:
    """Topic, value and headers of the messages of records with these values."""
    records = [SampleRecord.of({"topic": "t", "value": value}) for value in values]
    result = Program.of(found).run(record_batch(records)).messages
    headers = result.column("headers").to_pylist()
    return [
        (topic, json.loads(value), {pair["key"]: pair["value"].decode() for pair in pairs or ()})
        for topic, value, pairs in zip(
            result.topics.to_pylist(), result.column("value").to_pylist(), headers, strict=True
        )
    ]


def airlines(folder: Path, text: str = "carrier,name\nAA,American\nUA,United\n") -> dict[str, Any]:
    (folder / "airlines.csv").write_text(text)
    return {"format": "csv", "path": "airlines.csv", "key": "carrier"}


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "delta", "iceberg"])
def test_rows_of_tables(kind: str, tmp_path: Path) -> None:
    """A field is looked up by its key; messages say the revision, and a dead letter the table and the key."""
    rows = pa.table({"carrier": ["AA", "UA"], "name": ["American", None], "n": [1, 2]})
    table: dict[str, Any] = {"format": kind, "path": f"airlines.{kind}", "key": "carrier"}
    if kind in ("delta", "iceberg"):
        pytest.importorskip("deltalake")
        lake = Lake(kind, tmp_path)
        lake.add("airlines", rows.slice(0, 1))
        lake.add("airlines", rows.slice(1))
        table = json.loads(lake.block("airlines", key="carrier"))
    elif kind == "csv":
        airlines(tmp_path, "carrier,name,n\nAA,American,1\nUA,,2\n")
    elif kind == "json":
        (tmp_path / "airlines.json").write_text("\n".join(json.dumps(row) for row in rows.to_pylist()))
    else:
        pq.write_table(rows, tmp_path / "airlines.parquet")

    found = route(tmp_path, table).with_tables()
    sent = messages(found, {"carrier": "AA"}, {"carrier": "ZZ"})

    assert sent[0][:2] == ("t", {"carrier": "AA", "airline": "American"})
    assert sent[0][2]["Turnout-Tables"] == f"airlines={found.tables['airlines'].revision}"
    assert sent[1][0] == "dead"
    assert "the table 'airlines' has no row 'ZZ'" in sent[1][2]["__connect.errors.exception.message"]
    expression = 'has(lookup("airlines", value.carrier).name) ? "known" : "unknown"'
    values = [value for _, value, _ in messages(route(tmp_path, table, expression), {"carrier": "ZZ"})]
    assert values == [{"carrier": "ZZ", "airline": "unknown"}]
    assert [note.partition(" ")[2] for note in found.tables_notes] == [
        f"revision {found.tables['airlines'].revision}, 2 rows"
    ]


def test_times_decimals_and_keys_of_numbers(tmp_path: Path) -> None:
    """Values are what expressions see of a record with such values."""
    pytest.importorskip("deltalake")
    lake = Lake("delta", tmp_path)
    lake.add("flights", flights(7))
    table = json.loads(lake.block("flights", key="id"))
    expression = '[string(lookup("airlines", value.id).fare), lookup("airlines", value.id).at]'

    ((_, value, _),) = messages(route(tmp_path, table, expression), {"id": 7})

    assert value["airline"] == ["1.75", "2013-01-01T05:17:00.123Z"]


def test_values_of_files_stay_what_they_are(tmp_path: Path) -> None:
    """A code that begins with a zero is no number, a text of JSON no time, and its numbers keep their digits."""
    csv = {"format": "csv", "path": "a.csv", "key": "zip"}
    (tmp_path / "a.csv").write_text("zip,n,few\n00501,1,\n10001,-2,3\n")
    lines = {"format": "json", "path": "a.json", "key": "zip"}
    (tmp_path / "a.json").write_text(
        '{"zip": "00501", "at": "2026-01-01", "n": 12345678901234567}\r\n\n{"zip": 10001, "at": null}'
    )

    found = [route(tmp_path, table).with_tables().tables["airlines"].rows for table in (csv, lines)]
    (tmp_path / "a.json").write_text('[{"zip": 1}]')
    with pytest.raises(StreamError, match="expected an object in every line"):
        route(tmp_path, lines).with_tables()

    assert [rows and dict(rows.rows) for rows in found] == [
        {"00501": {"zip": "00501", "n": 1, "few": None}, "10001": {"zip": "10001", "n": -2, "few": 3}},
        {"00501": {"zip": "00501", "at": "2026-01-01", "n": 12345678901234567}, 10001: {"zip": 10001, "at": None}},
    ]


def test_entries_of_a_bucket(nats_server: NatsServer, connection: Connection, tmp_path: Path) -> None:
    """The newest of each key, without deleted ones; the revision is that of the newest entry."""
    bucket = "AIRLINES"
    create_stream(connection, {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "max_msgs_per_subject": 1,
                               "allow_direct": True, "storage": "memory", "allow_rollup_hdrs": True})  # fmt: skip
    try:
        for key, value in (("AA", "Old"), ("UA", "United"), ("AA", "American"), ("XX", "Gone")):
            connection.request(f"$KV.{bucket}.{key}", json.dumps({"name": value}).encode())
        connection.request(f"$KV.{bucket}.XX", b"", headers={"KV-Operation": "DEL"})
        table = {"format": "nats", "servers": nats_server.url, "bucket": bucket}

        found = route(tmp_path, table).with_tables().tables["airlines"]
        assert found.revision.startswith("5-")
        assert found.rows is not None
        assert dict(found.rows.rows) == {
            "AA": {"name": "American", "key": "AA"},
            "UA": {"name": "United", "key": "UA"},
        }
        connection.request(f"$KV.{bucket}.YY", b"no object")
        with pytest.raises(StreamError, match="entry 'YY' of the bucket AIRLINES is no JSON object"):
            route(tmp_path, table).with_tables()
    finally:
        delete_stream(connection, f"KV_{bucket}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("carrier,name\nAA,a\nAA,b\n", "has two rows with the key 'AA'"),
        ("carrier,name\n1.5,a\n", "expected a text or a whole number in every row, found 1.5"),
        ("code,name\nAA,a\n", "the key 'carrier' of the table .* found None"),
    ],
)
def test_tables_that_cannot_be_used(text: str, problem: str, tmp_path: Path) -> None:
    """They are an error before a record is read."""
    with pytest.raises(StreamError, match=problem):
        route(tmp_path, airlines(tmp_path, text)).with_tables()


def test_a_run_keeps_its_revisions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each begins with the newest rows, unless a micro-batch is unfinished; earlier ones can be asked for."""
    table, checkpoint = airlines(tmp_path), tmp_path / "checkpoint"
    first = with_rows(route(tmp_path, table), checkpoint, renew=True, keep=True)
    airlines(tmp_path, "carrier,name\nAA,New\n")
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir()
    (checkpoint / "offsets" / "0").write_text("v1")

    again = with_rows(route(tmp_path, table), checkpoint, renew=True, keep=True)
    (checkpoint / "commits" / "0").write_text("v1")
    # What looks at the run's records has its tables.
    observed = route(tmp_path, table).with_tables()
    with caplog.at_level(logging.WARNING):
        second = with_rows(route(tmp_path, table), checkpoint, renew=True, keep=True)

    old, new = (one.tables["airlines"].revision for one in (first, second))
    assert [one.tables["airlines"].revision for one in (again, observed)] == [old, old]
    assert f"the table airlines has changed: it was at revision {old}, and is at {new}" in caplog.text
    assert [value["airline"] for _, value, _ in messages(second, {"carrier": "AA"})] == ["New"]
    for pinned in (route(tmp_path, {**table, "revision": old}), route(tmp_path, table).with_tables({"airlines": old})):
        assert [value["airline"] for _, value, _ in messages(pinned, {"carrier": "AA"})] == ["American"]
    with pytest.raises(StreamError, match=f"is at revision {new}, and 12 is not kept any more"):
        route(tmp_path, {**table, "revision": 12}).with_tables()


def test_versions_of_delta_are_read_again(tmp_path: Path) -> None:
    """Also where no run has kept them."""
    pytest.importorskip("deltalake")
    lake = Lake("delta", tmp_path)
    for name in ("American", "New"):
        if name == "New":
            lake.delete("airlines", "carrier = 'AA'")
        lake.add("airlines", pa.table({"carrier": ["AA"], "name": [name]}))
    table = json.loads(lake.block("airlines", key="carrier"))

    for revision, expected in ((0, "American"), (2, "New"), (None, "New")):
        pinned = route(tmp_path, table if revision is None else {**table, "revision": revision})
        assert [value["airline"] for _, value, _ in messages(pinned, {"carrier": "AA"})] == [expected]


def test_a_table_that_was_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its revisions are others, whatever their numbers: a run says so, and rows of the former one are not taken."""
    pytest.importorskip("deltalake")
    lake, checkpoint, revisions = Lake("delta", tmp_path), tmp_path / "checkpoint", []
    table = json.loads(lake.block("airlines", key="carrier"))
    for name in ("American", "New"):
        shutil.rmtree(tmp_path / "airlines", ignore_errors=True)
        lake.add("airlines", pa.table({"carrier": ["AA"], "name": [name]}))
        run = with_rows(route(tmp_path, table), checkpoint, renew=True, keep=True)
        revisions.append(run.tables["airlines"].revision)
        assert [value["airline"] for _, value, _ in messages(run, {"carrier": "AA"})] == [name]

    assert [revision.partition("-")[0] for revision in revisions] == ["0", "0"]
    assert f"it was at revision {revisions[0]}, and is at {revisions[1]}" in caplog.text
    for wanted, name in (*zip(revisions, ("American", "New"), strict=True), ("0", "New")):
        pinned = route(tmp_path, {**table, "revision": wanted})
        assert [value["airline"] for _, value, _ in messages(pinned, {"carrier": "AA"})] == [name]
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamError, match=f"is at revision {revisions[1]}, and {revisions[0]} is not kept any more"):
        route(tmp_path, {**table, "revision": revisions[0]}).with_tables()


def test_mistakes(tmp_path: Path) -> None:
    """A table that is not declared, one that is not used, and a field that no row has."""
    with pytest.raises(RouteError, match=r"looks up the table 'lines', expected one of the route's: airlines"):
        route(tmp_path, airlines(tmp_path), 'lookup("lines", value.carrier).name')
    with pytest.raises(RouteError, match="expected the table's name as a text"):
        route(tmp_path, airlines(tmp_path), 'lookup(value.table, "AA").name')
    unused = route(tmp_path, airlines(tmp_path), "value.carrier")
    assert [warning.path for warning in unused.warnings] == ["tables.airlines"]
    checked = route(tmp_path, airlines(tmp_path), 'lookup("airlines", value.carrier).nom')
    (failed,) = [one for one in probe(checked, 0) if one.name == "tables"]
    assert (failed.ok, failed.detail) == (False, "airlines has no field 'nom' for airline, only carrier, name")
    (found,) = [one for one in probe(route(tmp_path, airlines(tmp_path)), 0) if one.name == "tables"]
    assert found.detail.endswith("2 rows")
