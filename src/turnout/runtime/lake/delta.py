"""Tables of Delta Lake, by delta-rs: a version is a commit of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSelector, PyFileSystem

from turnout.base.untrusted import JsonObject
from turnout.errors import StreamError
from turnout.records.types import Fields
from turnout.routes.endpoints import DeltaSink, DeltaSource
from turnout.routes.endpoints.tables import DeltaLookup
from turnout.runtime.lake.table import BATCH_ROWS, BatchMark, Commit, LakeFile, translated

_VECTORS: Final = "deletionVectors"
_UNDERSTOOD: Final = frozenset(
    {"timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", _VECTORS, "columnMapping"}
)
"""Features of a reader; of the last two a table may have the feature, and no use of it."""

_RULES: Final = frozenset({"delta.generationExpression", "delta.identity.start", "delta.invariants"})
"""Names in a column's metadata that leave its values to the writer."""

_MAX_STAT_CHARACTERS: Final = 32
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


def open_table(endpoint: DeltaSource | DeltaSink | DeltaLookup) -> Table | None:
    """Open a table; None if there is none.

    Raises:
        StreamError: it uses a feature that is not supported.
        Exception: of the library.
    """
    options = endpoint.settings
    try:
        table = Table(DeltaTable(endpoint.path, storage_options=options), endpoint.path, options)
    except TableNotFoundError:
        return None
    if isinstance(endpoint, DeltaSink):
        table.check_writable()
    return table


def create_table(sink: DeltaSink, schema: pa.Schema) -> None:
    """Make a table, unless it is there."""
    columns, partition_by = Schema.from_arrow(schema), list(sink.partition_columns) or None
    DeltaTable.create(sink.path, columns, mode="ignore", partition_by=partition_by, storage_options=sink.settings)


def add_rows(path: str, rows: pa.Table) -> None:
    """Append rows to a table in a folder, which is made if it is not there."""
    write_deltalake(path, rows, mode="append")


def answer(question: str, paths: Mapping[str, str]) -> list[JsonObject]:
    """Return the rows of an answer to SQL.

    Args:
        question: the query.
        paths: name of a table in it → folder of the table.
    """
    tables = QueryBuilder()
    for name, path in paths.items():
        tables.register(name, DeltaTable(path))
    rows: list[JsonObject] = pa.table(tables.execute(question)).to_pylist()
    return rows


class Table:
    """Open Delta table; see `turnout.runtime.lake.table.LakeTable`."""

    def __init__(self, table: DeltaTable, path: str, options: Mapping[str, str]) -> None:
        self._table, self._path, self._options = table, path, options
        metadata = table.metadata()
        self.identity = str(metadata.id)
        self.version = table.version()
        self.location = table.table_uri
        self.schema = pa.schema(table.schema().to_arrow())
        self.partition_by = tuple(metadata.partition_columns)
        self._features = frozenset(table.protocol().reader_features or ())
        unknown = sorted(self._features - _UNDERSTOOD)
        if (metadata.configuration or {}).get("delta.columnMapping.mode", "none") != "none":
            unknown.append("columnMapping")
        if unknown:
            raise _unsupported(path, ", ".join(unknown))

    @property
    def first(self) -> int:
        """The oldest version whose commit the log still has."""
        files = self._files.get_file_info(FileSelector("_delta_log"))
        names = [info.path.rpartition("/")[2] for info in files]
        numbers = [int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdecimal()]
        return min(numbers, default=self.version)

    @property
    def _files(self) -> PyFileSystem:
        return _files_of(self.location, self._options)

    def snapshot(self, version: int) -> Sequence[LakeFile]:
        """Return the files that the table had at a version."""
        with translated(f"the table {self._path} cannot be read at version {version:,}", 404):
            table = DeltaTable(self._path, version=version, storage_options=dict(self._options))
        if _VECTORS in self._features and pa.table(table.deletion_vectors()).num_rows:
            raise _unsupported(self._path, _VECTORS)
        actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
        return [
            self._file(unquote(one["path"]), one["num_records"], one.get("partition") or {})
            for one in sorted(actions, key=lambda one: (one["modification_time"], one["path"]))
        ]

    def commit(self, version: int) -> Commit | None:
        """Return what a commit has added."""
        name = f"_delta_log/{version:020}.json"
        try:
            with self._files.open_input_stream(name) as opened:
                lines = opened.read().splitlines()
        except FileNotFoundError:
            if version > self.version:
                return None
            raise StreamError(
                f"the table {self._path} no longer has the commit of version {version:,}, which is not read: begin with"
                " another checkpoint, at a snapshot",
                code=404,
            ) from None
        actions: list[JsonObject] = [json.loads(line) for line in lines if line.strip()]
        added, removed = (
            [one[kind] for one in actions if kind in one and one[kind].get("dataChange", True)]
            for kind in ("add", "remove")
        )
        if any(one.get("deletionVector") for one in added):
            raise _unsupported(self._path, _VECTORS)
        files = [
            self._file(unquote(one["path"]), _rows(one.get("stats")), one.get("partitionValues") or {}) for one in added
        ]
        return Commit(files, f"{len(removed)} files with rows were removed" if removed else "")

    def _file(self, path: str, rows: int | None, partition: Fields) -> LakeFile:
        return LakeFile(path, self._footer(path).num_rows if rows is None else rows, dict(partition))

    def _footer(self, path: str) -> pq.FileMetaData:
        with self._files.open_input_file(path) as opened:
            return pq.read_metadata(opened)

    def reader(self) -> Reader:
        """Return a reader of the table's files."""
        return Reader(self.location, dict(self._options), self.schema, self.partition_by)

    # As a sink

    def check_writable(self) -> None:
        """Check that the table leaves nothing to its writer but the rows.

        Raises:
            StreamError: it has constraints, or columns that a writer computes.
        """
        rules = [name for name in self._table.metadata().configuration or {} if name.startswith("delta.constraints.")]
        rules += [field.name for field in self._table.schema().fields if _RULES & {*(field.metadata or {})}]
        if rules:
            problem = f"the table {self._path} has rules that its writer has to keep ({', '.join(rules)})"
            raise StreamError(
                f"{problem}, which is not done here: drop them, or check the values by a Filter", code=501
            )

    def done(self, application: str) -> int | None:
        """Return the number of the last micro-batch of an application."""
        return self._table.transaction_version(application)

    def evolve(self, columns: Mapping[str, pa.DataType]) -> None:
        """Add columns."""
        self._table.alter.add_columns(Schema.from_arrow(pa.schema(list(columns.items()))).fields)

    def append(self, files: Sequence[tuple[str, int]], partition_by: Sequence[str], mark: BatchMark) -> None:
        """Commit files as one version with the application's transaction."""
        if tuple(partition_by) != self.partition_by:
            expected = ", ".join(self.partition_by) or "no partitions"
            raise StreamError(f"the table {self._path} has {expected}: partitionBy differs", code=409)
        actions: list[AddAction | RemoveAction] = [self._added(url, size, partition_by) for url, size in files]
        noted = CommitProperties(
            {"turnout.batch": f"{mark.application}:{mark.number}"}, app_transactions=[Transaction(*mark)]
        )
        schema, columns = self._table.schema(), list(partition_by) or None
        self._table.create_write_transaction(actions, "append", schema, columns, commit_properties=noted)

    def _added(self, url: str, size: int, partition_by: Sequence[str]) -> AddAction:
        path = _relative(url, self.location)
        named = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
        partition = {name: None if named[name] == _NULL_PARTITION else unquote(named[name]) for name in partition_by}
        stats = _statistics(self._footer(path))
        nulls = [field.name for field in self.schema if not field.nullable and stats["nullCount"].get(field.name)]
        if nulls:
            problem = f"the table {self._path} has no nulls in {', '.join(nulls)}, and the rows of the micro-batch have"
            raise StreamError(f"{problem}: filter such records", code=409)
        return AddAction(path, size, partition, int(time.time() * 1000), True, json.dumps(stats))


@dataclass(frozen=True)
class Reader:
    """Reader of a table's files; see `turnout.runtime.lake.table.FileReader`.

    Attributes:
        location: URL of the table.
        options: settings of the object store.
        schema: columns of the table: a file may lack some, and have narrower types.
        partition_by: columns whose values are in the log.
    """

    location: str
    options: Mapping[str, str]
    schema: pa.Schema
    partition_by: tuple[str, ...]

    def read(self, file: LakeFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        with _files_of(self.location, self.options).open_input_file(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            own = {*parquet.schema_arrow.names} - {*self.partition_by}
            for batch in parquet.iter_batches(BATCH_ROWS, columns=[name for name in self.schema.names if name in own]):
                columns = [
                    batch.column(field.name).cast(field.type)
                    if field.name in own
                    else pa.repeat(_scalar(file.content.get(field.name), field.type), batch.num_rows)
                    for field in self.schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _files_of(location: str, options: Mapping[str, str]) -> PyFileSystem:
    return PyFileSystem(DeltaStorageHandler(location, dict(options)))


def _scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    if value is None or (value == "" and not pa.types.is_binary(kind)):
        return pa.scalar(None, kind)
    if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is not None and value[-1:] not in ("Z", "z"):
        return pa.scalar(value).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(value).cast(kind)


def _relative(url: str, location: str) -> str:
    """Return the path of a file below the table: Hadoop and delta-rs write the schemes of URLs in their own ways."""
    inner, root = (
        text.partition("://")[2] if "://" in text else text.removeprefix("file:") for text in (url, location)
    )
    inner, root = "/" + inner.lstrip("/"), "/" + root.strip("/") + "/"
    if not inner.startswith(root):
        raise StreamError(f"the file {url} is not below the table {location}", code=500)
    return inner.removeprefix(root)


def _rows(stats: object) -> int | None:
    with suppress(ValueError, AttributeError):
        found = json.loads(stats).get("numRecords") if isinstance(stats, str) else None
        return found if isinstance(found, int) else None
    return None


def _statistics(metadata: pq.FileMetaData) -> JsonObject:
    """Return the statistics of a file, for readers that skip files: rows, nulls, bounds of numbers and short texts."""
    least, most, nulls = JsonObject(), JsonObject(), JsonObject()
    for at in range(metadata.num_columns):
        name = metadata.schema.column(at).path
        found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
        if "." in name or not found or any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        bounds = [bound for one in found if one.has_min_max for bound in (one.min, one.max)]
        if len(bounds) == 2 * len(found) and all(map(_is_bound, bounds)):
            least[name], most[name] = min(bounds), max(bounds)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _is_bound(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_STAT_CHARACTERS
    return isinstance(value, int) and not isinstance(value, bool)


def _unsupported(path: str, features: str) -> StreamError:
    return StreamError(
        f"the table {path} uses {features}, which is not read here: without it the rows would be wrong; rewrite the"
        " table without it",
        code=501,
    )
