"""Tables with versions: their interface, the versions that a route reads next, and rows as records."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from turnout.base.startup import pc
from turnout.base.untrusted import JsonObject, is_whole
from turnout.errors import ConfigError, MissingExtraError, Mistake, StreamError
from turnout.nats.protocol.positions import Position, StreamIdentity
from turnout.records.batch import STREAM_ID
from turnout.records.headers import headers_type
from turnout.routes.endpoints import LakeSink, LakeSource
from turnout.routes.endpoints.tables import DeltaLookup, IcebergLookup, RecordPart, topic_pieces
from turnout.runtime.offsets import begin_keys, begins, identity_in, position_keys

if TYPE_CHECKING:
    from turnout.records import Schema
    from turnout.routes.rows import RowPlan


BATCH_ROWS: Final = 20_000
_TIMES: Final = pa.timestamp("us", "UTC")

LakeEnd: TypeAlias = LakeSource | LakeSink | DeltaLookup | IcebergLookup


class LakeFile(NamedTuple):
    """File of a table.

    Attributes:
        path: its path, as the log has it.
        rows: number of its rows.
        content: what its reader needs.
        offset: offset of its first row, once a source has numbered the rows.
    """

    path: str
    rows: int
    content: Any
    offset: int = 0


class Commit(NamedTuple):
    """Content of one version.

    Attributes:
        files: files whose rows it adds; none of one that only rewrites files.
        changes: why it is more than an addition of rows; "" for one that is not.
    """

    files: Sequence[LakeFile]
    changes: str = ""


class BatchMark(NamedTuple):
    """Mark of a micro-batch in a table's log.

    Attributes:
        application: id of the query, and the name of its sink.
        number: number of the micro-batch, which grows.
    """

    application: str
    number: int


class FileReader(Protocol):
    """Reader of a table's files in a task; it can be pickled."""

    def read(self, file: LakeFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file in the columns of the table."""


class LakeTable(Protocol):
    """Open table, as it was when it was opened.

    Attributes:
        identity: id that the table has had since it was made.
        version: its last version.
        first: the oldest version whose changes are known.
        schema: its columns.
        location: folder or URL of its files.
    """

    identity: str
    version: int
    first: int
    schema: pa.Schema
    location: str

    def snapshot(self, version: int) -> Sequence[LakeFile]:
        """Return the files that the table had at a version, always in one order.

        Raises:
            StreamError: it is not known any more.
        """

    def commit(self, version: int) -> Commit | None:
        """Return what a version has added; None if there is none of that number.

        Raises:
            StreamError: its changes are not known any more.
        """

    def reader(self) -> FileReader:
        """Return a reader of the table's files."""

    # As a sink

    def done(self, application: str) -> int | None:
        """Return the number of the last micro-batch of an application; None if there is none."""

    def evolve(self, columns: Mapping[str, pa.DataType]) -> None:
        """Add columns.

        Raises:
            Exception: of the library.
        """

    def append(self, files: Sequence[tuple[str, int]], partition_by: Sequence[str], mark: BatchMark) -> None:
        """Commit files as one version that has a mark.

        Args:
            files: URL and size of each.
            partition_by: columns by which they are partitioned.
            mark: of the micro-batch.

        Raises:
            Exception: of the library; the commit may have landed all the same.
        """


def identity_of(table: LakeTable) -> StreamIdentity:
    """Return the identity of a table, as positions and origins have it."""
    return StreamIdentity(f"table {table.identity}", table.identity.replace("-", "")[:16])


@contextmanager
def translated(problem: str, code: int) -> Iterator[None]:
    """Raise errors of a library as errors of streams; pyiceberg's have no common class."""
    try:
        yield
    except StreamError:
        raise
    except Exception as failure:
        raise StreamError(f"{problem}: {failure}", code=code) from failure


def address_of(endpoint: LakeEnd) -> str:
    """Return the path or the name of a table, for messages."""
    return str(getattr(endpoint, "path", endpoint.table_name))


def open_table(endpoint: LakeEnd) -> LakeTable | None:
    """Open a table; None if there is none.

    Raises:
        StreamError: it cannot be read, or uses a feature that is not supported.
        MissingExtraError: the library is not installed.
    """
    module = _module(endpoint)
    with translated(f"the table {address_of(endpoint)} cannot be opened", 500):
        table: LakeTable | None = module.open_table(endpoint)
    return table


def existing_table(endpoint: LakeEnd) -> LakeTable:
    """Open a table that has to be there.

    Raises:
        StreamError: it is not, or cannot be read.
        MissingExtraError: the library is not installed.
    """
    table = open_table(endpoint)
    if table is None:
        raise StreamError(f"there is no table {address_of(endpoint)}", code=404)
    return table


def create_table(sink: LakeSink, plan: RowPlan) -> LakeTable:
    """Make a table with the columns of a sink, unless it was made meanwhile.

    Raises:
        StreamError: it cannot be made.
    """
    from turnout.codecs.arrow_columns import arrow_type

    fields = [pa.field(name, arrow_type(schema)) for name, schema in plan.types.items()]
    with translated(f"the table {address_of(sink)} cannot be made", 500):
        _module(sink).create_table(sink, pa.schema(fields))
    return existing_table(sink)


def problem_of_sink(sink: LakeSink, table: LakeTable | None, columns: Iterable[str]) -> str:
    """Return why some columns cannot be written to a table; "" if they can."""
    if table is None:
        return "" if sink.create else f"there is no table {address_of(sink)}, and create: false"
    if required := ", ".join(sorted({field.name for field in table.schema if not field.nullable} - {*columns})):
        return f"the table has no nulls in the column {required}, which is none of the sink's: add it under columns"
    missing = ", ".join(sorted({*columns} - {*table.schema.names}))
    is_refused = bool(missing) and not sink.schema_evolution
    return f"the table has no column {missing}: schemaEvolution: true adds it" if is_refused else ""


def columns_of(table: LakeTable | None) -> dict[str, Schema]:
    """Return the types of a table's columns; empty without a table."""
    from turnout.codecs.arrow_columns import schema_of_arrow

    return {} if table is None else {field.name: schema_of_arrow(field.type, field.name) for field in table.schema}


def _module(endpoint: LakeEnd) -> ModuleType:
    try:
        if endpoint.format == "delta":
            from turnout.runtime.lake import delta as module
        else:
            from turnout.runtime.lake import iceberg as module  # type: ignore[no-redef]
    except ModuleNotFoundError as absent:
        raise MissingExtraError("lake", absent.name or "deltalake") from absent
    return module


# --- Records ----------------------------------------------------------------------------------------------------------


def check_columns(record: RecordPart, schema: pa.Schema) -> None:
    """Check that the columns of a record are there.

    Raises:
        ConfigError: names each that is not.
    """
    names = [(f"headers.{name}", text) for name, text in record.headers.items()]
    names += [(name, text) for name in ("key", "timestamp") if (text := getattr(record, name)) is not None]
    names += [("topic", piece) for piece, is_column in topic_pieces(record.topic) if is_column]
    existing = ", ".join(schema.names[:20])
    mistakes = [
        Mistake(f"source.record.{name}", f"found {text!r}, expected a column of the table: it has {existing}")
        for name, text in names
        if _type_at(schema, text) is None
    ]
    if record.timestamp is not None and not mistakes and not pa.types.is_timestamp(_type_at(schema, record.timestamp)):
        kind = _type_at(schema, record.timestamp)
        mistakes.append(Mistake("source.record.timestamp", f"found {kind}, expected a column of timestamps"))
    if mistakes:
        raise ConfigError(mistakes, what="bad source")


def _type_at(schema: pa.Schema, text: str) -> pa.DataType | None:
    kind: pa.DataType = pa.struct(list(schema))
    for name in text.split("."):
        at = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if at < 0:
            return None
        kind = kind.field(at).type
    return kind


def as_records(rows: pa.RecordBatch, record: RecordPart, stream: str, label: str, offset: int) -> pa.RecordBatch:
    """Return rows of a table as records.

    Args:
        rows: rows in the table's columns.
        record: columns of a record.
        stream: name of the table.
        label: the name with the identity.
        offset: offset of the first row.
    """
    count = rows.num_rows

    def column(text: str) -> pa.Array:
        first, *rest = text.split(".")
        found = rows.column(first)
        return pc.struct_field(found, rest) if rest else found

    pieces = [
        _texts(column(piece)) if inner else pa.repeat(piece, count) for piece, inner in topic_pieces(record.topic)
    ]
    times = pa.nulls(count, _TIMES)
    if record.timestamp is not None:
        times = column(record.timestamp)
        times = times.cast(_TIMES) if times.type.tz else times.cast(pa.timestamp("us")).cast(_TIMES)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pc.binary_join_element_wise(*pieces, "") if len(pieces) > 1 else pieces[0],
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(range(offset, offset + count), pa.int64()),
            "key": pa.nulls(count, pa.binary()) if record.key is None else column(record.key),
            "value": pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema)),
            "headers": _headers({name: _texts(column(text)) for name, text in record.headers.items()}, count),
            "timestamp": times,
            "stream": pa.repeat(stream, count),
            STREAM_ID: pa.repeat(label, count),
        }
    )


def _texts(column: pa.Array) -> pa.Array:
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def _headers(columns: Mapping[str, pa.Array], count: int) -> pa.Array:
    """Return the headers of records; a null column has none."""
    if not columns:
        return pa.nulls(count, headers_type())
    listed = {name: column.cast(pa.binary()).to_pylist() for name, column in columns.items()}
    rows = [
        [{"key": name, "value": values[row]} for name, values in listed.items() if values[row] is not None]
        for row in range(count)
    ]
    return pa.array(rows, headers_type())


_log = logging.getLogger(__name__)

_VERSION_BITS: Final = 32
"""The offset of a record is its version, shifted by so many bits, and its number among the rows of that version."""

_MOST_ROWS: Final = 1 << 31
"""Rows of one version. Added to the offsets of rows that a snapshot has, so that they differ from those that its
version has added."""

SNAPSHOT: Final = ".snapshot"
"""End of the key of an offset, after the name of a table, with the version whose rows its micro-batch begins with."""


@dataclass
class LakeSplit:
    """Files of a table, and their reader; see `turnout.runtime.offsets.RecordReader`.

    Attributes:
        stream: name of the table.
        label: the name with the identity.
        file_reader: reads a file.
        record: columns of a record.
        files: files, each with the offset of its first row.
        start: the first version.
        end: the version behind the last.
        revision: revision of the subscriptions that the records are matched with; None without.
    """

    not_read: ClassVar = 0

    stream: str
    label: str
    file_reader: FileReader
    record: RecordPart
    files: Sequence[LakeFile]
    start: int
    end: int
    revision: int | None = None

    def __repr__(self) -> str:
        return f"{self.stream}[{self.start}, {self.end}): {len(self.files)} files from {self.files[0].path}"

    def reader(self, _options: object) -> LakeSplit:
        """Return the split, which reads itself."""
        return self

    def batches_with_stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the files.

        Raises:
            StreamError: a file cannot be read, or is not the one that the log describes.
        """
        for file in self.files:
            done = 0
            try:
                for rows in self.file_reader.read(file):
                    yield as_records(rows, self.record, self.stream, self.label, file.offset + done)
                    done += rows.num_rows
            except FileNotFoundError as failure:
                problem = f"the file {file.path} of the table {self.stream} is not there any more, as after a clean-up"
                cure = "begin with another checkpoint, at a snapshot"
                raise StreamError(f"{problem} (vacuum, expire_snapshots): {cure}", code=404) from failure
            except (OSError, pa.ArrowException) as failure:
                problem = f"the file {file.path} of the table {self.stream} cannot be read: {failure}"
                raise StreamError(problem, code=500) from failure
            if done > file.rows:
                problem = f"the file {file.path} has {done:,} rows, and the log of the table says {file.rows:,}"
                raise StreamError(problem, code=500)


@dataclass(frozen=True, slots=True)
class LakeVersions:
    """Versions of the table of a source.

    Attributes:
        source: the source.
    """

    source: LakeSource

    @property
    def stream(self) -> str:
        """Name of the table in positions."""
        return self.source.streams[0]

    def open(self, before: Mapping[str, object] | None = None) -> LakeTable:
        """Open the table.

        Args:
            before: an offset in it; None for a query without a checkpoint.

        Raises:
            StreamError: it is not there, or is another one than that of the offset.
            ConfigError: it has not the columns of a record.
        """
        table = existing_table(self.source)
        known = None if before is None else identity_in(before, self.stream)
        if known is not None and known != identity_of(table):
            raise StreamError(
                f"the table {self.source.table_name!r} was made anew: its id is {table.identity}, and reading goes"
                f" on in the {known.created} of the same name; begin with another checkpoint",
                code=404,
            )
        check_columns(self.source.record, table.schema)
        return table

    def initial(self) -> JsonObject:
        """Return the offset at which a query without a checkpoint begins."""
        table = self.open()
        start = self.source.start
        if isinstance(start, int):
            return self._offset(table, start)
        found = self._offset(table, table.version + 1)
        return found if start == "latest" else {**found, f"{self.stream}{SNAPSHOT}.next": table.version}

    def next(self, start: JsonObject, most: int | None, target: int | None, *, is_first: bool) -> JsonObject:
        """Return the end of the next micro-batch; *start* itself where nothing is new.

        Args:
            start: where it begins.
            most: the most versions in it; None for no limit.
            target: the version behind the last of the run; None for none.
            is_first: whether the offset is that of a query without a checkpoint.
        """
        table = self.open(start)
        begin, end = int(start[self.stream]), table.version + 1
        end = end if target is None else min(end, target)
        pending = start.get(f"{self.stream}{SNAPSHOT}.next")
        begun = begin_keys({self.stream: Position(identity_of(table), begin)})
        if is_whole(pending):
            end = begin if most is not None else max(begin, end)
            return {**self._offset(table, end), f"{self.stream}{SNAPSHOT}": pending, **begun}
        if end <= begin:
            return start
        end = end if most is None else min(end, begin + most)
        return {**self._offset(table, end), **(begun if is_first else {})}

    def _offset(self, table: LakeTable, version: int) -> JsonObject:
        return position_keys({self.stream: Position(identity_of(table), version)})

    def splits(
        self, start: Mapping[str, object], end: Mapping[str, object], revision: int | None = None
    ) -> list[LakeSplit]:
        """Return the splits between two offsets: for a micro-batch that is done again, the same as before."""
        table = self.open(end)
        begin = begins(end).get(self.stream, start.get(self.stream))
        stop, snapshot = end[self.stream], end.get(f"{self.stream}{SNAPSHOT}")
        assert is_whole(begin)
        assert is_whole(stop)
        files = self.added(table, begin, stop)
        if is_whole(snapshot):
            files += self._numbered(table.snapshot(snapshot), snapshot, _MOST_ROWS)
        # Splits with about the same number of rows.
        groups: list[list[LakeFile]] = [[] for _ in range(self.source.partitions or os.cpu_count() or 1)]
        sizes = [0] * len(groups)
        for file in sorted(files, key=lambda file: (-file.rows, file.path)):
            smallest = sizes.index(min(sizes))
            groups[smallest].append(file)
            sizes[smallest] += file.rows
        label, reader, record = identity_of(table).label(self.stream), table.reader(), self.source.record
        in_order = [sorted(group, key=lambda file: file.offset) for group in groups if group]
        return [LakeSplit(self.stream, label, reader, record, group, begin, stop, revision) for group in in_order]

    def added(self, table: LakeTable, start: int, end: int) -> list[LakeFile]:
        """Return the files that some versions have added, each with the offset of its first row.

        Raises:
            StreamError: a version changes rows, and the source does not skip such; or is not known any more.
        """
        found: list[LakeFile] = []
        for version in range(start, end):
            commit = table.commit(version)
            if commit is None:
                break
            if commit.changes:
                problem = f"version {version:,} of the table {self.source.table_name!r} changes rows: {commit.changes}"
                if self.source.changes == "refuse":
                    raise StreamError(f"{problem}; changes: skip passes over such versions", code=409)
                _log.warning("%s; it is passed over", problem)
                continue
            found += self._numbered(commit.files, version, 0)
        return found

    def _numbered(self, files: Sequence[LakeFile], version: int, begin: int) -> Iterator[LakeFile]:
        """Yield the files with the offsets of their first rows."""
        number = begin
        for file in files:
            yield file._replace(offset=(version << _VERSION_BITS) + number)
            number += file.rows
            if number > begin + _MOST_ROWS:
                problem = f"version {version:,} of the table {self.source.table_name!r} has more than 2^31 rows"
                raise StreamError(f"{problem}, which positions cannot tell apart: read it with format: spark", code=501)
