"""Versions of a table as a route reads them: which are next, their files as splits, and their rows as records."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa

from turnout.base.untrusted import JsonObject, is_whole
from turnout.errors import StreamError
from turnout.nats.protocol.positions import Position
from turnout.routes.endpoints import LakeSource
from turnout.routes.endpoints.tables import RecordPart
from turnout.runtime.lake.table import (
    FileReader,
    LakeFile,
    LakeTable,
    as_records,
    check_columns,
    existing_table,
    identity_of,
)
from turnout.runtime.offsets import begin_keys, begins, identity_in, position_keys

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
