"""Rows of the tables that expressions look up, each pinned to a revision; a run keeps what it has read."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from turnout.base.files import private_folder, replace_file
from turnout.base.untrusted import JsonObject, is_whole, unique_object
from turnout.codecs.arrow_columns import arrow_blocks
from turnout.errors import ConfigError, Mistake, RecordError, StreamError
from turnout.expressions import Inputs, TableRows
from turnout.nats.protocol.headers import KV_OPERATION, MARKER_REASON, OPERATIONS
from turnout.nats.wire import Connection, PullReader, Range, stream_info
from turnout.records import Schema
from turnout.records.types import DynamicValue, Fields
from turnout.routes import Route
from turnout.routes.endpoints.tables import BucketLookup, FileLookup, Lookup, LookupPart
from turnout.runtime.checkpoint import checkpoint_of, local_folder
from turnout.runtime.lake.table import existing_table
from turnout.runtime.offsets import committed, numbers_in

_log = logging.getLogger(__name__)

MAX_ROWS: Final = 100_000
"""Rows of a table: each worker of Spark has all of them."""

FOLDER: Final = "tables"
"""The folder in a checkpoint."""

RUNS: Final = ".runs"
"""End of the name of a file that lists the revisions of a table, each with the positions from which on runs had it."""

_CACHED_REVISIONS: Final = 8
"""Revisions of a table that a checkpoint keeps."""


def with_rows(route: Route, checkpoint: Path | None = None, *, renew: bool = False, keep: bool = False) -> Route:
    """Return a route with the rows of its tables: those of its own revision, or of its last run, or the newest.

    Args:
        route: the route.
        checkpoint: checkpoint of the route's run on this machine; its usual one if not given.
        renew: whether to take the newest rows, unless a run has to finish a micro-batch of the run before.
        keep: whether to keep the rows in the checkpoint, as a run does.

    Raises:
        StreamError: a table cannot be read at its revision.
    """
    folder = checkpoint or local_folder(str(checkpoint_of(route)))
    if folder is not None and renew:
        planned, done = (numbers_in(folder / name)[-1:] for name in ("offsets", "commits"))
        renew = planned == done
    tables = {}
    for name, table in route.tables.items():
        if table.rows is not None and not renew:
            tables[name] = table
            continue
        kept = _Kept(table.part, folder)
        asked = table.part.revision
        wanted = (None if renew else kept.last) if asked is None else kept.named(asked)
        tables[name] = found = (None if wanted is None else kept.read(wanted)) or _read(table.part, wanted)
        if keep:
            kept.keep(name, found)
    return replace(route, tables=tables)


def as_processed(route: Route, ranges: Iterable[tuple[str, int, int]], checkpoint: Path | None = None) -> Route:
    """Return a route with the rows that the records of some ranges had in the run that processed them.

    Args:
        route: the route; a table with a revision of its own keeps it.
        ranges: stream, or ``topic:partition``, with its first sequence and the one behind its last.
        checkpoint: as of `with_rows`.

    Raises:
        ConfigError: a table has changed within a range.
        StreamError: a table cannot be read at its revision.
    """
    folder, tables = checkpoint or local_folder(str(checkpoint_of(route))), dict(route.tables)
    for name, table in route.tables.items():
        if table.part.revision is not None:
            continue
        kept = _Kept(table.part, folder)
        found = {revision: begin for one in ranges for revision, begin in kept.within(*one)}
        if len(found) > 1:
            listed = ", ".join(f"{revision} from {begin} on" for revision, begin in found.items())
            problem = f"has changed within the range, and is at revision {listed}: replay the ranges apart, or give one"
            raise ConfigError([Mistake(f"tables.{name}", f"{problem} revision for all")], what="bad range")
        for revision in found:
            tables[name] = Lookup(table.part.model_copy(update={"revision": revision}))
    return with_rows(replace(route, tables=tables), folder)


class _Kept:
    """Revisions of a table in a checkpoint: the rows of the newest, and from which positions on runs had each."""

    def __init__(self, part: LookupPart, checkpoint: Path | None) -> None:
        settings = part.model_dump_json(by_alias=True, exclude={"revision"})
        self._part, self._checkpoint = part, checkpoint
        self._base = (checkpoint or Path()) / FOLDER / hashlib.sha256(settings.encode()).hexdigest()[:16]
        self._runs: list[tuple[str, dict[str, int]]] = []
        if checkpoint is not None:
            with suppress(FileNotFoundError):
                self._runs = json.loads(self._base.with_suffix(RUNS).read_bytes())

    @property
    def last(self) -> str | None:
        """The revision of the last run; None if there was none."""
        return self._runs[-1][0] if self._runs else None

    def named(self, revision: str) -> str:
        """Return a revision that is given by its number alone as the last run with that number had it."""
        known = (one for one, _ in reversed(self._runs) if revision in (one, one.partition("-")[0]))
        return next(known, revision)

    def within(self, stream: str, start: int, end: int) -> Iterator[tuple[str, str]]:
        """Yield the revisions that the records of a range had, each with the place from which on."""
        begins = [positions.get(stream, 0) for _, positions in self._runs]
        for (revision, _), begin, following in zip(self._runs, begins, [*begins[1:], end], strict=True):
            if max(begin, start) < min(following, end):
                yield revision, f"{stream}:{max(begin, start)}"

    def read(self, revision: str) -> Lookup | None:
        """Return the table at a revision; None if that is not kept."""
        if self._checkpoint is not None:
            with suppress(FileNotFoundError):
                size, rows = msgspec.msgpack.decode(self._base.with_suffix(f".{revision}").read_bytes())
                return Lookup(self._part, revision, TableRows(dict(rows), size))
        return None

    def keep(self, name: str, table: Lookup) -> None:
        """Keep a table as that of a run that begins where the checkpoint is now."""
        last = self.last
        if last == table.revision or self._checkpoint is None or table.rows is None:
            return
        if last is not None:
            _log.warning("the table %s has changed: it was at revision %s, and is at %s", name, last, table.revision)
        positions = {stream: at for stream, at in committed(self._checkpoint).by_stream.items() if is_whole(at)}
        self._runs.append((table.revision, positions))
        private_folder(self._base.parent)
        content = msgspec.msgpack.encode((table.rows.size, list(table.rows.rows.items())))
        replace_file(self._base.with_suffix(f".{table.revision}"), content)
        replace_file(self._base.with_suffix(RUNS), json.dumps(self._runs))
        newest = {RUNS, *(f".{revision}" for revision in [*dict(reversed(self._runs))][:_CACHED_REVISIONS])}
        for file in self._base.parent.glob(f"{self._base.name}.*"):
            if file.suffix not in newest:
                file.unlink(missing_ok=True)


def _read(part: LookupPart, wanted: str | None) -> Lookup:
    """Return a table as it is, or at a revision.

    Raises:
        StreamError: it cannot be read, has too many rows, or several with one key.
    """
    label = next(str(getattr(part, name)) for name in ("path", "table", "bucket") if hasattr(part, name))
    listed: Iterable[tuple[DynamicValue, Schema | None]]
    if isinstance(part, FileLookup):
        revision, listed = _of_file(part)
    elif isinstance(part, BucketLookup):
        revision, entries = _of_bucket(part)
        listed = ((entry, None) for entry in entries)
    else:
        table = existing_table(part)
        number = f"{table.version}" if wanted is None else wanted.partition("-")[0]
        version = int(number) if number.isdecimal() else -1
        batches = [batch for file in table.snapshot(version) for batch in table.reader().read(file)]
        revision, listed = _revision(version, table.identity), _of_arrow(pa.Table.from_batches(batches, table.schema))
    if wanted is not None and wanted not in (revision, revision.partition("-")[0]):
        problem = f"the table {label} is at revision {revision}, and {wanted} is not kept any more"
        raise StreamError(problem, code=404)
    rows: dict[object, Fields] = {}
    size = 0
    for row, schema in listed:
        inputs = Inputs()
        try:
            inputs.add("row", row, schema)
        except RecordError as error:
            raise StreamError(f"a row of the table {label} cannot be looked up: {error}", code=409) from None
        values = inputs.values["row"]
        key = values.get(part.key)
        if isinstance(key, bool) or not isinstance(key, str | int):
            expected = f"expected a text or a whole number in every row, found {key!r:.60}"
            raise StreamError(f"the key {part.key!r} of the table {label}: {expected}", code=409)
        if key in rows or len(rows) == MAX_ROWS:
            problem = f"has two rows with the key {key!r:.60}" if key in rows else f"has more than {MAX_ROWS:,} rows"
            raise StreamError(f"the table {label} {problem}", code=409)
        rows[key], size = values, max(size, inputs.size)
    return Lookup(part, revision, TableRows(rows, size))


def _revision(number: int, identity: str) -> str:
    """Return a number as a revision that no other table of the same name has."""
    return f"{number}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def _of_arrow(table: pa.Table) -> Iterator[tuple[DynamicValue, Schema | None]]:
    """Yield the rows, each with its schema."""
    for batch in table.to_batches():
        blocks, errors = arrow_blocks(batch.to_struct_array())
        for error in errors.values():
            raise StreamError(f"a row of the table cannot be looked up: {error}", code=409)
        for block in blocks:
            for value in block.whole():
                yield value, block.schema


def _of_file(part: FileLookup) -> tuple[str, Iterable[tuple[DynamicValue, Schema | None]]]:
    """Return the revision and the rows of a file, each with its schema."""
    import pyarrow.parquet

    try:
        content = Path(part.path).read_bytes()
        revision = hashlib.sha256(content).hexdigest()[:16]
        if part.format == "json":
            return revision, [(_object_of(line), None) for line in content.splitlines() if line.strip()]
        is_csv = part.format == "csv"
        return revision, _of_arrow(_of_csv(content) if is_csv else pyarrow.parquet.read_table(io.BytesIO(content)))
    except (OSError, ValueError, RecursionError, pa.ArrowException) as failure:
        raise StreamError(f"the table {part.path} cannot be read: {failure}", code=404) from failure


def _object_of(line: bytes) -> JsonObject:
    """Return the object of a line of JSON."""
    found = json.loads(line.decode("utf-8-sig"), object_pairs_hook=unique_object)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object in every line, found {line[:60]!r}")  # noqa: TRY004 - as of other lines
    return found


def _of_csv(content: bytes) -> pa.Table:
    """Return the rows of a file; a column of numbers of which some begin with a zero has texts: they are codes."""
    from pyarrow import csv

    table = csv.read_csv(io.BytesIO(content))
    numbers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    options = csv.ConvertOptions(column_types=dict.fromkeys(numbers, pa.string()), strings_can_be_null=True)
    texts = csv.read_csv(io.BytesIO(content), convert_options=options) if numbers else table
    columns = [
        text if pa.types.is_integer(column.type) and not text.equals(column.cast(text.type)) else column
        for column, text in zip(table.columns, texts.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, table.column_names)


def _of_bucket(part: BucketLookup) -> tuple[str, list[Fields]]:
    """Return the revision and the entries of a KV bucket; those that change meanwhile are read again."""
    stream, prefix = f"KV_{part.bucket}", f"$KV.{part.bucket}."
    entries: dict[str, Fields] = {}
    end = 1
    with Connection.open(part.connection) as connection:
        while (last := int((info := stream_info(connection, stream))["state"]["last_seq"])) >= end:
            for batch in PullReader(connection, Range(stream, end, last + 1)).batches():
                for row in batch.to_pylist():
                    key = row["topic"].removeprefix(prefix)
                    entries.pop(key, None)
                    if not _is_deletion(row["headers"]):
                        entries[key] = _entry(part, key, row["value"])
            end = last + 1
    return _revision(end - 1, str(info["created"])), list(entries.values())


def _is_deletion(headers: list[Fields] | None) -> bool:
    found = {pair["key"].lower(): pair["value"] for pair in headers or ()}
    return found.get(KV_OPERATION.lower()) in OPERATIONS.values() or MARKER_REASON.lower() in found


def _entry(part: BucketLookup, key: str, value: bytes | None) -> Fields:
    try:
        entry = json.loads(value or b"")
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        problem = f"the entry {key!r} of the bucket {part.bucket} is no JSON object, which a row of a table is"
        raise StreamError(problem, code=409)
    return {**entry, part.key: key}
