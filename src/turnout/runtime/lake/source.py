"""Versions of a table as a route reads them: which are next, their files as splits, and their rows as records."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
    RowOrigin,
    as_records,
    check_columns,
    existing_table,
    identity_of,
    offset_of,
)
from turnout.runtime.offsets import begin_keys, begins, identity_in, position_keys

_log = logging.getLogger(__name__)

SNAPSHOT: Final = ".snapshot"
"""End of the key of an offset, after the name of a table, with the version whose rows its micro-batch begins with."""


@dataclass(frozen=True, slots=True)
class LakeSplit:
    """Files of a table, and where their rows are.

    Attributes:
        stream: name of the table.
        reader: reads a file.
        record: columns of a record.
        files: files, each with the place of its first row.
        start: the first version.
        end: the version behind the last.
        revision: revision of the subscriptions that the records are matched with; None without.
    """

    stream: str
    reader_: FileReader
    record: RecordPart
    files: tuple[tuple[LakeFile, RowOrigin], ...]
    start: int
    end: int
    revision: int | None = None

    def __repr__(self) -> str:
        return f"{self.stream}[{self.start}, {self.end}): {len(self.files)} files from {self.files[0][0].path}"

    def reader(self, _options: object) -> LakeSplitReader:
        """Return a reader for this split."""
        return LakeSplitReader(self)


class LakeSplitReader:
    """Reads one split, once; see `turnout.runtime.offsets.RecordReader`."""

    not_read = 0

    def __init__(self, split: LakeSplit) -> None:
        self._split = split
        self.stream, self.start, self.end = split.stream, split.start, split.end
        self.revision = split.revision

    def batches_with_stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the files.

        Raises:
            StreamError: a file cannot be read, or is not the one that the log describes.
        """
        split = self._split
        for file, origin in split.files:
            done = 0
            try:
                for rows in split.reader_.read(file):
                    yield as_records(rows, split.record, origin, done)
                    done += rows.num_rows
            except (OSError, pa.ArrowException) as failure:
                problem = f"the file {file.path} of the table {split.stream} cannot be read: {failure}"
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
        if is_whole(pending):
            end = begin if most is not None else max(begin, end)
            return {**self._offset(table, end), f"{self.stream}{SNAPSHOT}": pending, **self._begin(table, begin)}
        if end <= begin:
            return start
        end = end if most is None else min(end, begin + most)
        return {**self._offset(table, end), **(self._begin(table, begin) if is_first else {})}

    def _offset(self, table: LakeTable, version: int) -> JsonObject:
        return position_keys({self.stream: Position(identity_of(table), version)})

    def _begin(self, table: LakeTable, version: int) -> JsonObject:
        return begin_keys({self.stream: Position(identity_of(table), version)})

    def splits(
        self, start: Mapping[str, object], end: Mapping[str, object], revision: int | None = None
    ) -> list[LakeSplit]:
        """Return the splits between two offsets: for a micro-batch that is done again, the same as before."""
        table = self.open(end)
        begin = begins(end).get(self.stream, start.get(self.stream))
        stop, snapshot = end[self.stream], end.get(f"{self.stream}{SNAPSHOT}")
        assert is_whole(begin)
        assert is_whole(stop)
        files: list[tuple[LakeFile, RowOrigin]] = []
        if is_whole(snapshot):
            files += _placed(table.snapshot(snapshot), self.stream, table, snapshot, of_snapshot=True)
        files += self.added(table, begin, stop)
        return self._shared(table, files, begin, stop, revision)

    def added(self, table: LakeTable, start: int, end: int) -> list[tuple[LakeFile, RowOrigin]]:
        """Return the files that some versions have added, each with its place.

        Raises:
            StreamError: a version changes rows, and the source does not skip such; or is not known any more.
        """
        found: list[tuple[LakeFile, RowOrigin]] = []
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
            found += _placed(commit.files, self.stream, table, version, of_snapshot=False)
        return found

    def _shared(
        self, table: LakeTable, files: list[tuple[LakeFile, RowOrigin]], start: int, end: int, revision: int | None
    ) -> list[LakeSplit]:
        """Return the files in splits of about the same number of rows."""
        count = min(len(files), self.source.partitions or os.cpu_count() or 1)
        groups: list[list[tuple[LakeFile, RowOrigin]]] = [[] for _ in range(count)]
        sizes = [0] * count
        for one in sorted(files, key=lambda one: (-one[0].rows, one[0].path)):
            smallest = sizes.index(min(sizes))
            groups[smallest].append(one)
            sizes[smallest] += one[0].rows
        reader, record = table.reader(), self.source.record
        in_order = (tuple(sorted(group, key=lambda one: one[1].offset)) for group in groups if group)
        return [LakeSplit(self.stream, reader, record, group, start, end, revision) for group in in_order]


def _placed(
    files: Sequence[LakeFile], stream: str, table: LakeTable, version: int, *, of_snapshot: bool
) -> Iterator[tuple[LakeFile, RowOrigin]]:
    number, label = 0, identity_of(table).label(stream)
    for file in files:
        yield file, RowOrigin(stream, label, offset_of(version, number, of_snapshot=of_snapshot))
        number += file.rows
