"""Adapters of files, of tables of Spark providers, of which little is known without a session, and of lakes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from threading import Event
from typing import TYPE_CHECKING, ClassVar, Final, cast

import pyarrow as pa

from turnout.errors import ConfigError, Mistake, StreamError, TurnoutError
from turnout.routes.endpoints import FileSink, FileSource, LakeSink, LakeSource, SparkSink, SparkSource
from turnout.runtime.endpoints import (
    Change,
    EndpointAdapter,
    EndpointProbe,
    Start,
    StreamEnd,
    other_changes,
    unsafe_change,
)
from turnout.runtime.lake.table import (
    SNAPSHOT,
    LakeVersions,
    address_of,
    existing_table,
    identity_of,
    open_table,
    problem_of_sink,
)

if TYPE_CHECKING:
    from turnout.nats.wire.streams import StreamPosition
    from turnout.records.types import ArrowBatch
    from turnout.runtime.endpoints import SourceStreams


class FileAdapter(EndpointAdapter):
    """Access to a folder of files."""

    endpoint: FileSource | FileSink

    @property
    def label(self) -> str:
        """Noun for a source of this format in messages."""
        return f"{self.endpoint.format} files"

    def probe(self, seconds: float) -> EndpointProbe:  # noqa: ARG002 - a folder answers at once
        """Return a check of the folder's permissions."""
        return _FolderProbe(self.endpoint.path, os.R_OK if isinstance(self.endpoint, FileSource) else os.W_OK)

    @property
    def fixed_start(self) -> str | None:
        """Reason that a source which is read once has no other start."""
        return "its source is read once, as a whole" if cast("FileSource", self.endpoint).is_bounded else None

    def checked_start(self, start: Start) -> Start:
        """Return the start if it is the only one of such a source.

        Raises:
            ConfigError: it is another one.
        """
        if start != "earliest":
            raise ConfigError([Mistake("to", f"{self.label}: expected earliest, found {start!r}")], what="bad offsets")
        return start

    def begun_at(self, start: Start) -> FileSource:  # noqa: ARG002 - there is one
        """Return the source itself."""
        return cast("FileSource", self.endpoint)

    def changes(self, new: FileSource) -> Iterator[Change]:
        """Yield the effects of a new version on the list of files that were read."""
        old = cast("FileSource", self.endpoint)
        if old.path != new.path:
            yield unsafe_change("source.path", "the checkpoint lists the files that were read in the other folder")
        if old.stream != new.stream:
            yield unsafe_change("source.stream", "a source that is read once keeps no checkpoint")
        yield from other_changes(old, new, {"path", "stream"})


class _FolderProbe(EndpointProbe):
    """Check of the permissions of a local folder; remote ones are not checked."""

    def __init__(self, path: str, right: int) -> None:
        self._path = path
        self._right = right

    def reach(self) -> str:
        path = self._path
        if "://" in path and not path.startswith("file://"):
            return f"{path} was not checked: it is not on this machine"
        folder = Path(path.removeprefix("file://")).absolute()
        writes = self._right == os.W_OK
        if writes:
            # The writer makes the folder, and those above it.
            folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
        elif not folder.exists() and not any(sign in path for sign in "*?[{"):
            raise TurnoutError(f"there is nothing at {folder}")
        permission = "written" if writes else "read"
        if folder.exists() and not os.access(folder, self._right):
            raise TurnoutError(f"{folder} may not be {permission}")
        return f"{path} may be {permission}"


_PROBE: Final = "turnout.spark.formats.tables:ProviderProbe"


class SparkAdapter(FileAdapter):
    """Access to a provider of Spark's: without a session nothing is known of it."""

    endpoint: SparkSource | SparkSink  # type: ignore[assignment]

    @property
    def label(self) -> str:
        """Noun for a source of this format in messages."""
        return f"a table of Spark's provider {self.endpoint.provider}"

    def probe(self, seconds: float) -> EndpointProbe:  # noqa: ARG002 - Spark has limits of its own
        """Return checks of the provider, in a session of their own."""
        probe: EndpointProbe = resolve_name(_PROBE)(self.endpoint)
        return probe

    @property
    def fixed_start(self) -> str | None:
        """Reason that the source has no other start."""
        return super().fixed_start or "its provider decides where it begins"

    def changes(self, new: SparkSource) -> Iterator[Change]:  # type: ignore[override]
        """Yield the effects of a new version on the checkpoint, which has the provider's own positions."""
        old = cast("SparkSource", self.endpoint)
        for name in ("provider", "options_", "stream"):
            if getattr(old, name) != getattr(new, name):
                reason = "the checkpoint has positions of the provider as it was"
                yield unsafe_change(f"source.{name.rstrip('_')}", reason)
        yield from other_changes(old, new, {"provider", "options", "stream"})


class LakeAdapter(EndpointAdapter):
    """Access to a table with versions."""

    endpoint: LakeSource | LakeSink
    reports_ends: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """Noun for a source of this format in messages."""
        return f"a table of format {self.endpoint.format}"

    @property
    def position_label(self) -> str:
        """Noun for a position of this source in messages."""
        return "version"

    @property
    def identity(self) -> tuple[str, ...]:
        """Identity of a connection: none is shared."""
        return (self.endpoint.format, address_of(self.endpoint))

    def ping(self) -> None:
        """Check that the log of a source's table can be read; a sink's table may not be there yet."""
        table = open_table(self.endpoint)
        if table is None and isinstance(self.endpoint, LakeSource):
            existing_table(self.endpoint)

    def probe(self, seconds: float) -> EndpointProbe:  # noqa: ARG002 - the libraries have limits of their own
        """Return checks of the table."""
        return _TableProbe(self.endpoint)

    def source_streams(self) -> SourceStreams | None:
        """Check that the table is there, and has the columns of a record."""
        self._versions.open()
        return None

    def sample(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield about *count* records of the last version."""
        yield from _last_records(self._versions, count)

    def last_records(self, count: int) -> Iterator[pa.RecordBatch]:
        """Return records of the last *count* versions."""
        with self.history() as history:
            (stream,) = history.streams
            bounds = history.bounds(stream)
            yield from history.read(stream, max(bounds.first, bounds.next - count), bounds.next)

    @property
    def _versions(self) -> LakeVersions:
        return LakeVersions(cast("LakeSource", self.endpoint))

    # Positions

    def checked_start(self, start: Start) -> Start:
        """Return the start position if it is one of a table.

        Raises:
            ConfigError: it is none.
        """
        starts = {"earliest": "snapshot", "snapshot": "snapshot", "latest": "latest"}
        found = starts.get(start) if isinstance(start, str) else start
        if isinstance(found, str) or (isinstance(found, int) and found >= 0):
            return found
        raise ConfigError(
            [Mistake("to", f"expected earliest, latest or a version, found {start!r}")], what="bad offsets"
        )

    def sequences(self, start: Start | None = None) -> dict[str, int]:
        """Return the version that a start means now."""
        source = cast("LakeSource", self.endpoint)
        wanted = source.start if start is None else self.checked_start(start)
        table = self._versions.open()
        return {self._versions.stream: wanted if isinstance(wanted, int) else table.version + 1}

    def changes(self, new: LakeSource) -> Iterator[Change]:
        """Yield the effects of a new version on the checkpoint, which has versions of the table."""
        old = cast("LakeSource", self.endpoint)
        for name in ("path", "table", "catalog"):
            if getattr(old, name, None) != getattr(new, name, None):
                yield unsafe_change(f"source.{name}", "the checkpoint has versions of the other table")
        yield from other_changes(old, new, {"path", "table", "catalog"})

    # Streams

    @contextmanager
    def history(self) -> Iterator[LakeHistory]:
        """Return what reads versions again, and reports the bounds of the table."""
        yield LakeHistory(self._versions)

    session = history


class LakeHistory:
    """Versions of a table, read again; see `turnout.runtime.endpoints.SourceHistory`, and `SourceSession`."""

    def __init__(self, versions: LakeVersions) -> None:
        self._versions = versions

    def ends(self, source: LakeSource) -> dict[str, StreamEnd]:
        """Return the bounds of the table of a source."""
        (stream,) = source.streams
        return {stream: LakeHistory(LakeVersions(source)).bounds(stream)}

    def age(self, stream: str, sequence: int, now: float) -> float | None:  # noqa: ARG002 - the log's times are others'
        """Return nothing: other writers' clocks are in the log."""
        return None

    @property
    def streams(self) -> Sequence[str]:
        """The name of the table."""
        return (self._versions.stream,)

    def bounds(self, stream: str) -> StreamEnd:  # noqa: ARG002 - there is one
        """Return the oldest version that can be read, and the next one."""
        table = self._versions.open()
        return StreamEnd(table.first, table.version + 1, identity_of(table).created)

    def resolve(self, stream: str, position: StreamPosition) -> int:
        """Return the version that a place means now."""
        bounds = self.bounds(stream)
        if isinstance(position, str):
            return bounds.first if position == "earliest" else bounds.next
        version = position.get(stream) if isinstance(position, Mapping) else position
        if isinstance(version, int):
            return version
        expected = f"expected earliest, latest or a version of {stream}, found {position!s:.60}"
        raise ConfigError([Mistake("place", expected)], what="bad range")

    def read(self, stream: str, start: int, end: int) -> Iterator[ArrowBatch]:
        """Yield the records that some versions have added."""
        for split in self._versions.splits({stream: start}, {stream: end}):
            yield from split.reader(None).batches_with_stream()

    def count(self, stream: str, start: int, end: int, filters: Sequence[str]) -> int:  # noqa: ARG002 - of NATS
        """Return the number of records that some versions have added."""
        return sum(file.rows for file in self._versions.added(self._versions.open(), start, end))

    def wait(self, positions: Mapping[str, int], stop: Event) -> None:  # noqa: ARG002 - logs do not tell
        """Wait for a moment."""
        stop.wait(self._versions.source.poll_wait)


def _last_records(versions: LakeVersions, count: int) -> Iterator[pa.RecordBatch]:
    """Yield the first records of the newest files, as many as asked for."""
    table = versions.open()
    end = {versions.stream: table.version + 1, f"{versions.stream}{SNAPSHOT}": table.version}
    left = count
    for split in versions.splits({versions.stream: table.version + 1}, end):
        for batch in split.reader(None).batches_with_stream():
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
            if not left:
                return


class _TableProbe(EndpointProbe):
    """Check of a table and of its columns."""

    noun = "table"

    def __init__(self, endpoint: LakeSource | LakeSink) -> None:
        self._endpoint = endpoint

    def reach(self) -> str:
        endpoint = self._endpoint
        if isinstance(endpoint, LakeSource):
            table = LakeVersions(endpoint).open()
        else:
            found = open_table(endpoint)
            names = [spec.name for spec in endpoint.specs or ()] or (found.schema.names if found is not None else [])
            if problem := problem_of_sink(endpoint, found, names):
                raise StreamError(problem, code=409)
            if found is None:
                return f"there is no table {endpoint.table_name!r}: a run makes it"
            table = found
        columns = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        return f"the table {endpoint.table_name} is at version {table.version:,}: {columns}"

    def streams(self) -> Sequence[str]:
        return self._endpoint.streams if isinstance(self._endpoint, LakeSource) else ()

    def latest(self, stream: str, count: int) -> tuple[list[pa.RecordBatch], str]:
        assert isinstance(self._endpoint, LakeSource)
        batches = list(_last_records(LakeVersions(self._endpoint), count))
        return batches, f"{sum(batch.num_rows for batch in batches):,} rows of {stream} were read"
