"""Versions of tables as a source plans and reads them, and commits as a sink makes them, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake import FLIGHTS, Lake, flights

from turnout.errors import ConfigError, StreamError
from turnout.routes import Route
from turnout.routes.endpoints import LakeSink, LakeSource
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.lake.table import BatchMark, LakeVersions, existing_table, open_table

RECORD = {"topic": "flights.{carrier}", "key": "carrier", "timestamp": "at", "headers": {"fare": "fare"}}


@pytest.fixture(params=["delta", "iceberg"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A folder for tables of one format."""
    return Lake(request.param, tmp_path)


def source(tables: Lake, **more: Any) -> LakeSource:
    text = (
        f"name: r\nsource: {tables.block('flights', **{'record': RECORD, **more})}\nsink: {{format: json, path: out}}"
    )
    found = Route.parse(text).source
    assert isinstance(found, LakeSource)
    return found


def sink(tables: Lake, **more: Any) -> LakeSink:
    text = f"name: r\nsource: {tables.block('flights', record=RECORD)}\nsink: {tables.block('out', **more)}"
    found = Route.parse(text).sinks[""]
    assert isinstance(found, LakeSink)
    return found


def records(versions: LakeVersions, start: Any, end: Any) -> list[dict[str, Any]]:
    rows = [
        row
        for split in versions.splits(start, end)
        for batch in split.reader(None).batches_with_stream()
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: row["value"]["id"])


def test_what_is_there_and_what_is_added(tables: Lake) -> None:
    """A query begins with the rows of the table, and goes on with those of each later commit; a range is read again."""
    tables.add("flights", flights(1, 2))
    versions = LakeVersions(source(tables))
    start = versions.initial()
    tables.add("flights", flights(3))

    end = versions.next(start, None, None, is_first=True)
    tables.add("flights", flights(4))
    later = versions.next(end, None, None, is_first=False)

    first = records(versions, versions.initial(), end)
    assert [row["value"]["id"] for row in first] == [1, 2, 3]
    assert [row["value"]["id"] for row in records(versions, end, later)] == [4]
    assert versions.next(later, None, None, is_first=False) == later
    assert first == records(versions, start, end)
    assert [row["value"] for row in first] == flights(1, 2, 3).to_pylist()
    assert (first[0]["topic"], first[0]["key"], first[0]["headers"]) == (
        "flights.AA", "AA", [{"key": "fare", "value": b"0.25"}],
    )  # fmt: skip
    offsets = [row["offset"] for row in first]
    assert len({*offsets}) == 3
    last = end[versions.stream] - 1
    assert [offset >> 32 for offset in offsets] == [last - 1, last - 1, last]


def test_limits_and_starts(tables: Lake) -> None:
    """A micro-batch has at most so many commits; a query may begin behind the rows, or at a version."""
    for number in (1, 2, 3):
        tables.add("flights", flights(number))
    latest = LakeVersions(source(tables, start="latest"))
    begin = latest.initial()
    tables.add("flights", flights(4))
    tables.add("flights", flights(5))

    one = latest.next(begin, 1, None, is_first=True)
    two = latest.next(one, 1, None, is_first=False)

    assert [row["value"]["id"] for row in records(latest, begin, one)] == [4]
    assert [row["value"]["id"] for row in records(latest, one, two)] == [5]
    last = begin[latest.stream] - 1
    numbered = LakeVersions(source(tables, start=last))
    everything = numbered.next(numbered.initial(), None, None, is_first=True)
    assert [row["value"]["id"] for row in records(numbered, numbered.initial(), everything)] == [3, 4, 5]


def test_commits_that_change_rows(tables: Lake) -> None:
    """They are an error unless they are passed over; a snapshot has what is left of the rows."""
    tables.add("flights", flights(1, 2))
    versions = LakeVersions(source(tables, start="latest"))
    begin = versions.initial()
    tables.delete("flights", "id = 1")
    tables.add("flights", flights(3))
    end = versions.next(begin, None, None, is_first=True)

    with pytest.raises(StreamError, match=r"changes rows: .*; changes: skip passes over such versions"):
        versions.splits(begin, end)
    skipping = LakeVersions(source(tables, changes="skip"))
    assert [row["value"]["id"] for row in records(skipping, begin, end)] == [3]
    whole = skipping.next(skipping.initial(), None, None, is_first=True)
    assert [row["value"]["id"] for row in records(skipping, {}, whole)] == [2, 3]


def test_files_that_were_cleaned_up(tables: Lake) -> None:
    """A version whose files are gone is an error that says what to do, and loses no row in silence."""
    tables.add("flights", flights(1, 2))
    versions = LakeVersions(source(tables))
    end = versions.next(versions.initial(), None, None, is_first=True)
    for file in tables.folder.rglob("*.parquet"):
        file.unlink()

    with pytest.raises(StreamError, match=r"is not there any more, .* begin with another checkpoint, at a snapshot"):
        records(versions, versions.initial(), end)


def test_a_table_that_was_made_anew(tables: Lake) -> None:
    """A position in the former one is an error that names both."""
    tables.add("flights", flights(1))
    versions = LakeVersions(source(tables))
    end = versions.next(versions.initial(), None, None, is_first=True)
    former = versions.open().identity
    if tables.kind == "delta":
        shutil.rmtree(tables.folder / "flights")
    else:
        tables.catalog_().drop_table("lake.flights")
    tables.add("flights", flights(7))

    with pytest.raises(StreamError, match=f"was made anew: .* table {former} of the same name"):
        versions.next(end, None, None, is_first=False)


def test_columns_of_records(tables: Lake) -> None:
    """Those that a record names have to be there, times with the type of times."""
    tables.add("flights", flights(1))
    record = {"topic": "t.{to}", "key": "keys", "timestamp": "id"}

    with pytest.raises(ConfigError) as raised:
        LakeVersions(source(tables, record=record)).open()
    assert [mistake.path for mistake in raised.value.mistakes] == ["source.record.key", "source.record.topic"]
    with pytest.raises(ConfigError, match="found int64, expected a column of timestamps"):
        LakeVersions(source(tables, record={"topic": "t", "timestamp": "id"})).open()


def test_files_of_an_earlier_schema(tables: Lake) -> None:
    """Rows of files without a column have nulls there."""
    tables.add("flights", flights(1).drop_columns(["fare"]))
    if tables.kind == "iceberg":
        with tables.table("flights").update_schema() as update:
            update.union_by_name(FLIGHTS)
    tables.add("flights", flights(2))
    versions = LakeVersions(source(tables, record={"topic": "t"}))

    rows = records(versions, {}, versions.next(versions.initial(), None, None, is_first=True))

    assert [row["value"]["fare"] for row in rows] == [None, flights(2).to_pylist()[0]["fare"]]


def written(tables: Lake, name: str, rows: pa.Table, folder: str = "") -> tuple[str, int]:
    """Write a file below the table, as Spark does."""
    location = existing_table(sink(tables)).location.removeprefix("file://")
    file = Path(location) / folder / f"{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    return f"file:{file}", file.stat().st_size


def test_a_commit_has_its_mark(tables: Lake) -> None:
    """The last micro-batch of an application is known afterwards, and of others nothing; a failed one has none."""
    tables.add("out", flights(1))
    mark = BatchMark("turnout-query", 3)

    existing_table(sink(tables)).append([written(tables, "a", flights(2, 3))], (), mark)

    assert tables.rows("out") == flights(1, 2, 3).to_pylist()
    table = existing_table(sink(tables))
    assert (table.done("turnout-query"), table.done("turnout-other")) == (3, None)
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        table.append([("file:" + table.location.removeprefix("file://") + "/none.parquet", 1)], (), BatchMark("o", 1))
    assert existing_table(sink(tables)).done("o") is None


def test_rules_of_a_table(tmp_path: Path) -> None:
    """A writer has to keep them: what is not done here is refused, and a null where none may be stops the commit."""
    from deltalake import DeltaTable, Schema

    tables = Lake("delta", tmp_path)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("carrier", pa.string())])
    table = DeltaTable.create(f"{tmp_path}/out", Schema.from_arrow(columns))
    rows = pa.table({"id": pa.array([1, None], pa.int64()), "carrier": ["AA", "UA"]})

    with pytest.raises(StreamError, match="has no nulls in id, and the rows of the micro-batch have: filter such"):
        existing_table(sink(tables)).append([written(tables, "a", rows)], (), BatchMark("o", 1))
    existing_table(sink(tables)).append([written(tables, "b", rows.slice(0, 1))], (), BatchMark("o", 1))
    assert [row["id"] for row in tables.rows("out")] == [1]
    with pytest.raises(StreamError, match="no nulls in the column id, which is none of the sink's"):
        adapter_of(sink(tables, columns={"carrier": "value.carrier STRING"})).probe(1).reach()
    table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(StreamError, match=r"rules that its writer has to keep \(delta.constraints.positive\)"):
        existing_table(sink(tables))


def test_the_log_is_a_history(tables: Lake) -> None:
    """Versions have bounds, and their records are read as a run reads them."""
    tables.add("flights", flights(1, 2))
    tables.add("flights", flights(3))
    adapter = adapter_of(source(tables))

    with adapter.history() as history, adapter.session() as session:
        (stream,) = history.streams
        bounds = history.bounds(stream)
        last = next(history.read(stream, bounds.next - 1, bounds.next)).to_pylist()
        assert [row["value"]["id"] for row in last] == [3]
        assert history.count(stream, bounds.first, bounds.next, ()) == 3
        assert (history.resolve(stream, "earliest"), history.resolve(stream, {stream: 2})) == (bounds.first, 2)
        assert session.ends(source(tables))[stream] == bounds
    assert bounds.created.startswith("table ")
    assert sum(batch.num_rows for batch in adapter.sample(2)) == 2


def test_checks_of_tables(tables: Lake) -> None:
    """`check --connect` says version and columns, that a run makes a table, and what a table lacks."""
    tables.add("flights", flights(1))

    probe = adapter_of(source(tables)).probe(1)
    assert "carrier" in probe.reach()
    (stream,) = probe.streams()
    assert probe.latest(stream, 5)[1] == "1 rows of flights were read" if tables.kind == "delta" else True
    assert adapter_of(sink(tables)).probe(1).reach().endswith("a run makes it")
    tables.add("out", flights(1))
    with pytest.raises(StreamError, match="has no column gate: schemaEvolution: true adds it"):
        adapter_of(sink(tables, columns={"gate": "value.gate STRING"})).probe(1).reach()


def test_features_that_are_not_read(tmp_path: Path) -> None:
    """A Delta table that uses one is refused before a row is read."""
    from deltalake import DeltaTable, Schema

    tables = Lake("delta", tmp_path)
    configuration = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    DeltaTable.create(f"{tmp_path}/flights", Schema.from_arrow(FLIGHTS), configuration=configuration)

    with pytest.raises(StreamError, match="uses columnMapping, which is not read here"):
        open_table(source(tables))
    for number in (1, 2):
        tables.add("other", flights(number))
    log = tmp_path / "other/_delta_log/00000000000000000001.json"
    log.write_text(
        log.read_text().replace('"dataChange":true', '"dataChange":true,"deletionVector":{"storageType":"u"}')
    )
    other = Route.parse(
        f"name: r\nsource: {tables.block('other', record=RECORD)}\nsink: {{format: json, path: out}}"
    ).source
    assert isinstance(other, LakeSource)
    with pytest.raises(StreamError, match=r"deletionVector|cannot be opened"):
        LakeVersions(other).splits({"other": 1}, {"other": 2})
