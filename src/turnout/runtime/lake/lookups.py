"""Rows of the tables that expressions look up, each pinned to a revision; a run keeps what it has read."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from turnout.base.files import private_folder, replace_file
from turnout.codecs.frames.columns import arrow_blocks
from turnout.errors import RecordError, StreamError
from turnout.expressions import Inputs, TableRows
from turnout.nats.protocol.headers import KV_OPERATION, MARKER_REASON, OPERATIONS
from turnout.nats.wire import Connection, PullReader, Range, stream_info
from turnout.records.types import Fields
from turnout.routes import Route
from turnout.routes.endpoints.tables import BucketLookup, FileLookup, Lookup, LookupPart
from turnout.runtime.checkpoint import checkpoint_of, local_folder
from turnout.runtime.lake.table import existing_table
from turnout.runtime.offsets import numbers_in

_log = logging.getLogger(__name__)

MAX_ROWS: Final = 100_000
"""Rows of a table: each worker of Spark has all of them."""

_FOLDER: Final = "tables"
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
        kept = _Kept(table.part, None if folder is None else folder / _FOLDER)
        wanted = table.part.revision or (None if renew else kept.last())
        tables[name] = found = (None if wanted is None else kept.read(wanted)) or _read(table.part, wanted)
        if keep:
            kept.keep(name, found)
    return replace(route, tables=tables)


class _Kept:
    """Revisions of a table in a checkpoint."""

    def __init__(self, part: LookupPart, folder: Path | None) -> None:
        settings = part.model_dump_json(by_alias=True, exclude={"revision"})
        self._part, self._folder = part, folder
        self._name = hashlib.sha256(settings.encode()).hexdigest()[:16]

    def last(self) -> str | None:
        """Return the revision of the last run; None if there was none."""
        if self._folder is not None:
            with suppress(FileNotFoundError):
                return (self._folder / f"{self._name}.last").read_text("utf-8")
        return None

    def read(self, revision: str) -> Lookup | None:
        """Return the table at a revision; None if that is not kept."""
        if self._folder is None:
            return None
        try:
            size, rows = msgspec.msgpack.decode((self._folder / f"{self._name}.{revision}").read_bytes())
        except FileNotFoundError:
            return None
        return Lookup(self._part, revision, TableRows(dict(rows), size))

    def keep(self, name: str, table: Lookup) -> None:
        """Keep a table as that of the last run."""
        last = self.last()
        if last == table.revision or self._folder is None or table.rows is None:
            return
        private_folder(self._folder)
        content = msgspec.msgpack.encode((table.rows.size, list(table.rows.rows.items())))
        replace_file(self._folder / f"{self._name}.{table.revision}", content)
        replace_file(self._folder / f"{self._name}.last", table.revision.encode())
        if last is not None:
            _log.warning("the table %s has changed: it was at revision %s, and is at %s", name, last, table.revision)
        files = [file for file in self._folder.glob(f"{self._name}.*") if file.suffix != ".last"]
        for old in sorted(files, key=lambda file: file.stat().st_mtime_ns)[:-_CACHED_REVISIONS]:
            old.unlink(missing_ok=True)


def _read(part: LookupPart, wanted: str | None) -> Lookup:
    """Return a table as it is, or at a revision.

    Raises:
        StreamError: it cannot be read, has too many rows, or several with one key.
    """
    label = getattr(part, "table_name", None) or getattr(part, "path", None) or getattr(part, "bucket", "")
    if isinstance(part, FileLookup):
        revision, columns = _of_file(part)
        listed = _of_arrow(columns)
    elif isinstance(part, BucketLookup):
        revision, entries = _of_bucket(part)
        listed = ((entry, None) for entry in entries)
    else:
        table = existing_table(part)
        version = table.version if wanted is None else int(wanted) if wanted.isdecimal() else -1
        batches = [batch for file in table.snapshot(version) for batch in table.reader().read(file)]
        revision, listed = f"{version}", _of_arrow(pa.Table.from_batches(batches, table.schema))
    if wanted is not None and revision != wanted:
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


def _of_arrow(table: pa.Table) -> Iterator[tuple[Any, Any]]:
    """Yield the rows, each with its schema."""
    for batch in table.to_batches():
        for block in arrow_blocks(batch.to_struct_array())[0]:
            for value in block.whole():
                yield value, block.schema


def _of_file(part: FileLookup) -> tuple[str, pa.Table]:
    """Return the revision and the rows of a file."""
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    try:
        content = Path(part.path).read_bytes()
        opened = io.BytesIO(content)
        if part.format == "csv":
            table = pyarrow.csv.read_csv(opened)
        elif part.format == "json":
            table = pyarrow.json.read_json(opened)
        else:
            table = pyarrow.parquet.read_table(opened)
    except (OSError, pa.ArrowException) as failure:
        raise StreamError(f"the table {part.path} cannot be read: {failure}", code=404) from failure
    return hashlib.sha256(content).hexdigest()[:16], table


def _of_bucket(part: BucketLookup) -> tuple[str, list[Fields]]:
    """Return the revision and the entries of a KV bucket; those that change meanwhile are read again."""
    stream, prefix = f"KV_{part.bucket}", f"$KV.{part.bucket}."
    entries: dict[str, Fields] = {}
    end = 1
    with Connection.open(part.connection) as connection:
        while (last := int(stream_info(connection, stream)["state"]["last_seq"])) >= end:
            for batch in PullReader(connection, Range(stream, end, last + 1)).batches():
                for row in batch.to_pylist():
                    key = row["topic"].removeprefix(prefix)
                    entries.pop(key, None)
                    if not _is_deletion(row["headers"]):
                        entries[key] = _entry(part, key, row["value"])
            end = last + 1
    return f"{end - 1}", list(entries.values())


def _is_deletion(headers: list[Mapping[str, Any]] | None) -> bool:
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
