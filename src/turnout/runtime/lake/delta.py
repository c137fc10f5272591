"""Tables of Delta Lake, by delta-rs: a version is a commit of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSelector, PyFileSystem

from turnout.base.untrusted import JsonObject
from turnout.errors import StreamError
from turnout.routes.endpoints import DeltaSink, DeltaSource
from turnout.routes.endpoints.tables import DeltaLookup
from turnout.runtime.lake.table import BATCH_ROWS, BatchMark, Commit, LakeFile

_VECTORS: Final = "deletionVectors"
_UNDERSTOOD: Final = frozenset(
    {"timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", _VECTORS, "columnMapping"}
)
"""Features of a reader; of the last two a table may have the feature, and no use of it."""

_MAX_STAT_CHARACTERS: Final = 32
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


def open_table(endpoint: DeltaSource | DeltaSink | DeltaLookup) -> Table | None:
    """Open a table; None if there is none.

    Raises:
        StreamError: it cannot be read, or uses a feature that is not supported.
    """
    options = endpoint.settings
    try:
        return Table(DeltaTable(endpoint.path, storage_options=options), endpoint.path, options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as failure:
        raise StreamError(f"the table {endpoint.path} cannot be opened: {failure}", code=500) from failure


def create_table(sink: DeltaSink, schema: pa.Schema) -> None:
    """Make a table, unless it is there.

    Raises:
        StreamError: it cannot be made.
    """
    try:
        DeltaTable.create(
            sink.path, Schema.from_arrow(schema), mode="ignore", partition_by=list(sink.partition_columns) or None,
            storage_options=sink.settings,
        )  # fmt: skip
    except (DeltaError, OSError) as failure:
        raise StreamError(f"the table {sink.path} cannot be made: {failure}", code=500) from failure


def add_rows(path: str, rows: pa.Table) -> None:
    """Append rows to a table in a folder, which is made if it is not there."""
    write_deltalake(path, rows, mode="append")


def answer(question: str, paths: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of an answer to SQL.

    Args:
        question: the query.
        paths: name of a table in it → folder of the table.
    """
    tables = QueryBuilder()
    for name, path in paths.items():
        tables.register(name, DeltaTable(path))
    rows: list[dict[str, Any]] = pa.table(tables.execute(question)).to_pylist()
    return rows


class Table:
    """Open Delta table; see `turnout.runtime.lake.table.LakeTable`."""

    def __init__(self, table: DeltaTable, path: str, options: Mapping[str, str]) -> None:
        self._table = table
        self._path = path
        self._options = options
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
        files = PyFileSystem(self._files).get_file_info(FileSelector("_delta_log"))
        names = [info.path.rpartition("/")[2] for info in files]
        numbers = [int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdecimal()]
        return min(numbers, default=self.version)

    @property
    def _files(self) -> DeltaStorageHandler:
        return DeltaStorageHandler(self.location, dict(self._options))

    def snapshot(self, version: int) -> Sequence[LakeFile]:
        """Return the files that the table had at a version."""
        try:
            table = DeltaTable(self._path, version=version, storage_options=dict(self._options))
        except (DeltaError, OSError) as failure:
            problem = f"the table {self._path} cannot be read at version {version:,}: {failure}"
            raise StreamError(problem, code=404) from failure
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
            with PyFileSystem(self._files).open_input_stream(name) as opened:
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
        added = [one["add"] for one in actions if "add" in one and one["add"].get("dataChange", True)]
        removed = [one["remove"] for one in actions if "remove" in one and one["remove"].get("dataChange", True)]
        if any(one.get("deletionVector") for one in added):
            raise _unsupported(self._path, _VECTORS)
        files = [
            self._file(unquote(one["path"]), _rows(one.get("stats")), one.get("partitionValues") or {}) for one in added
        ]
        return Commit(files, f"{len(removed)} files with rows were removed" if removed else "")

    def _file(self, path: str, rows: int | None, partition: Mapping[str, Any]) -> LakeFile:
        if rows is None:
            with PyFileSystem(self._files).open_input_file(path) as opened:
                rows = pq.read_metadata(opened).num_rows
        return LakeFile(path, rows, dict(partition))

    def reader(self) -> Reader:
        """Return a reader of the table's files."""
        return Reader(self.location, dict(self._options), self.schema, self.partition_by)

    # As a sink

    def done(self, application: str) -> int | None:
        """Return the number of the last micro-batch of an application."""
        return self._table.transaction_version(application)

    def evolve(self, columns: Mapping[str, pa.DataType]) -> None:
        """Add columns."""
        fields = Schema.from_arrow(pa.schema(list(columns.items()))).fields
        try:
            self._table.alter.add_columns([Field(one.name, one.type, nullable=True) for one in fields])
        except DeltaError as failure:
            raise StreamError(f"the table {self._path} refuses new columns: {failure}", code=409) from failure

    def append(self, files: Sequence[tuple[str, int]], partition_by: Sequence[str], mark: BatchMark) -> None:
        """Commit files as one version with the application's transaction."""
        if tuple(partition_by) != self.partition_by:
            expected = ", ".join(self.partition_by) or "no partitions"
            raise StreamError(f"the table {self._path} has {expected}: partitionBy differs", code=409)
        actions: list[AddAction | RemoveAction] = [self._added(url, size, partition_by) for url, size in files]
        transaction = Transaction(mark.application, mark.number)
        self._table.create_write_transaction(
            actions,
            "append",
            self._table.schema(),
            list(partition_by) or None,
            commit_properties=CommitProperties(
                custom_metadata={"turnout.batch": f"{mark.application}:{mark.number}"}, app_transactions=[transaction]
            ),
        )

    def _added(self, url: str, size: int, partition_by: Sequence[str]) -> AddAction:
        path = _relative(url, self.location)
        named = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
        values = {name: unquote(named[name]) for name in partition_by}
        with PyFileSystem(self._files).open_input_file(path) as opened:
            stats = _statistics(pq.read_metadata(opened))
        partition = {name: None if value == _NULL_PARTITION else value for name, value in values.items()}
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
        files = PyFileSystem(DeltaStorageHandler(self.location, dict(self.options)))
        fixed = {name: _scalar(file.content.get(name), self.schema.field(name).type) for name in self.partition_by}
        with files.open_input_file(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            names = [name for name in self.schema.names if name in parquet.schema_arrow.names and name not in fixed]
            for batch in parquet.iter_batches(BATCH_ROWS, columns=names):
                columns = []
                for field in self.schema:
                    if field.name in fixed:
                        columns.append(pa.repeat(fixed[field.name], batch.num_rows))
                    elif field.name in names:
                        columns.append(batch.column(field.name).cast(field.type))
                    else:
                        columns.append(pa.nulls(batch.num_rows, field.type))
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    if value is None or (value == "" and not pa.types.is_binary(kind)):
        return pa.scalar(None, kind)
    if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is not None and value[-1:] not in ("Z", "z"):
        return pa.scalar(value).cast(pa.timestamp("us")).cast(kind)
    scalar = pa.scalar(value)
    return scalar if scalar.type.equals(kind) else scalar.cast(kind)


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
    try:
        found = json.loads(stats).get("numRecords") if isinstance(stats, str) else None
    except ValueError:
        return None
    return found if isinstance(found, int) else None


def _statistics(metadata: pq.FileMetaData) -> JsonObject:
    """Return the statistics of a file, for readers that skip files: rows, nulls, bounds of numbers and short texts."""
    least: JsonObject = {}
    most: JsonObject = {}
    nulls: JsonObject = {}
    for at in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(at) for group in range(metadata.num_row_groups)]
        name = metadata.schema.column(at).path
        found = [chunk.statistics for chunk in chunks]
        if "." in name or not found or any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        bounds = [(one.min, one.max) for one in found if one.has_min_max]
        values = [value for pair in bounds for value in pair]
        if len(bounds) == len(found) and all(_is_bound(value) for value in values):
            least[name], most[name] = min(low for low, _ in bounds), max(high for _, high in bounds)
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
