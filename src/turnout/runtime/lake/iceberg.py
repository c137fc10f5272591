"""Tables of Apache Iceberg, by pyiceberg: a version is the sequence number of a snapshot of the main branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from turnout.errors import StreamError
from turnout.records.types import Fields
from turnout.routes.endpoints import IcebergSink, IcebergSource
from turnout.routes.endpoints.tables import IcebergLookup
from turnout.runtime.lake.table import BATCH_ROWS, BatchMark, Commit, LakeFile

_MARK = "turnout.batch."
"""Beginning of the names of a table's properties with the last micro-batch of an application."""


def open_table(endpoint: IcebergSource | IcebergSink | IcebergLookup) -> Table | None:
    """Open a table; None if there is none.

    Raises:
        StreamError: the table has no sequence numbers.
        Exception: of the library, or of the catalog.
    """
    try:
        return Table(_catalog(endpoint).load_table(endpoint.table))
    except NoSuchTableError:
        return None


def create_table(sink: IcebergSink, schema: pa.Schema) -> None:
    """Make a table, and its namespace, unless they are there."""
    # Iceberg has no integers of 8 and 16 bits.
    small = (pa.int8(), pa.int16())
    fields = [field.with_type(pa.int32()) if field.type in small else field for field in schema]
    catalog = _catalog(sink)
    catalog.create_namespace_if_not_exists(sink.table.rpartition(".")[0])
    with (
        suppress(TableAlreadyExistsError),
        catalog.create_table_transaction(sink.table, pa.schema(fields)) as transaction,
        transaction.update_spec() as spec,
    ):
        for name in sink.partition_columns:
            spec.add_identity(name)


def _catalog(endpoint: IcebergSource | IcebergSink | IcebergLookup) -> Catalog:
    return load_catalog(**{"name": "default", **endpoint.properties})


class Table:
    """Open Iceberg table; see `turnout.runtime.lake.table.LakeTable`."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self.identity = str(table.metadata.table_uuid)
        self.location = table.location()
        self.schema = pa.schema([field.remove_metadata() for field in table.schema().as_arrow()])
        if table.format_version < 2:
            raise StreamError(f"the table {self._name} has format version 1: upgrade it to 2", code=501)

    @cached_property
    def _line(self) -> dict[int, Snapshot]:
        """Sequence number → snapshot, from the current one back as far as the metadata has its parents."""
        by_id = {one.snapshot_id: one for one in self._table.snapshots()}
        line: dict[int, Snapshot] = {}
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            line[snapshot.sequence_number or 0] = snapshot
            snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
        return line

    @property
    def version(self) -> int:
        """The sequence number of the current snapshot; 0 of a table without one."""
        return max(self._line, default=0)

    @property
    def first(self) -> int:
        """The oldest version whose changes are known."""
        oldest = min(self._line, default=0)
        has_parent = oldest in self._line and self._line[oldest].parent_snapshot_id is not None
        # Of a snapshot without its parent it is known what it has added, too.
        return oldest if has_parent else 0

    def snapshot(self, version: int) -> Sequence[LakeFile]:
        """Return the files that the table had at a version, with the deletions that apply to each."""
        if not version:
            return []
        if version not in self._line:
            raise StreamError(f"the table {self._name} no longer has the snapshot {version:,}", code=404)
        tasks = self._table.scan(snapshot_id=self._line[version].snapshot_id).plan_files()
        return sorted(map(self._file, tasks), key=lambda file: file.path)

    def commit(self, version: int) -> Commit | None:
        """Return what a snapshot has added."""
        if version < self.first:
            raise StreamError(
                f"the table {self._name} no longer has the snapshots before {self.first:,}, of which {version:,} is not"
                " read: begin with another checkpoint, at a snapshot",
                code=404,
            )
        snapshot = self._line.get(version)
        if snapshot is None:
            return None if version > self.version else Commit(())
        operation = snapshot.summary.operation if snapshot.summary is not None else Operation.APPEND
        if operation == Operation.REPLACE:
            return Commit(())
        files, deletes = [], operation in (Operation.DELETE, Operation.OVERWRITE)
        for manifest in snapshot.manifests(self._table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            deletes = deletes or manifest.content == ManifestContent.DELETES
            if manifest.content == ManifestContent.DATA:
                entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
                added = [entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED]
                files += [self._file(FileScanTask(data_file=file)) for file in added]
        return Commit(files, f"it is of the kind {operation.value}" if deletes else "")

    @staticmethod
    def _file(task: FileScanTask) -> LakeFile:
        return LakeFile(task.file.file_path, task.file.record_count, task)

    def reader(self) -> Reader:
        """Return a reader of the table's files."""
        return Reader(self._table.metadata, self._table.schema(), dict(self._table.io.properties), self.schema)

    # As a sink

    def done(self, application: str) -> int | None:
        """Return the number of the last micro-batch of an application."""
        number = self._table.properties.get(_MARK + application)
        return None if number is None else int(number)

    def evolve(self, columns: Mapping[str, pa.DataType]) -> None:
        """Add columns."""
        with self._table.update_schema() as update:
            update.union_by_name(pa.schema([*self.schema, *columns.items()]))

    def append(self, files: Sequence[tuple[str, int]], partition_by: Sequence[str], mark: BatchMark) -> None:  # noqa: ARG002 - the table knows
        """Commit files as one snapshot, and note the micro-batch in the same commit."""
        noted = {"turnout.batch": f"{mark.application}:{mark.number}"}
        with self._table.transaction() as transaction:
            transaction.add_files([url for url, _ in files], snapshot_properties=noted, check_duplicate_files=False)
            transaction.set_properties({_MARK + mark.application: str(mark.number)})


@dataclass(frozen=True)
class Reader:
    """Reader of a table's files; see `turnout.runtime.lake.table.FileReader`.

    Attributes:
        metadata: the table's.
        columns: its columns, with the ids by which files have them.
        properties: settings of the file system.
        schema: its columns in Arrow.
    """

    metadata: TableMetadata
    columns: Schema
    properties: Fields
    schema: pa.Schema

    def read(self, file: LakeFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        scan = ArrowScan(self.metadata, load_file_io(dict(self.properties)), self.columns, AlwaysTrue())
        for batch in scan.to_record_batches([file.content]):
            for start in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(start, BATCH_ROWS)
                columns = [part.column(field.name).cast(field.type) for field in self.schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
