"""DataFrames of records through the engine: a chain of transforms, and subscriptions × records → deliveries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from turnout.base.files import lasting_folder
from turnout.base.multivalued import ANY_KEY, leaf_key, metadata_key, single_values, texts_or_none
from turnout.base.startup import pc
from turnout.codecs.arrow_columns import UTC_MICROS, WrittenColumn, blocks_of, millis_of, texts_of, whole
from turnout.engine.metadata import Metadata
from turnout.errors import ConfigError, Mistake, RecordError, RunError
from turnout.records import Batch, Block, Failure, Headers, Positions, Schema
from turnout.records.block import rows_of
from turnout.records.field_paths import (
    EACH,
    PREFIX,
    ListedPath,
    PathError,
    element_texts_at,
    has_elements,
    is_prefix,
    kind_problem,
    leaf_texts_at,
    listed_path,
    texts_at,
)
from turnout.records.headers import headers_type
from turnout.records.types import NewColumn
from turnout.spark.columns import (
    ERROR,
    ERROR_TYPE,
    HEADERS,
    RECORD,
    case_rule,
    column_schema,
    complete,
    foreign,
    is_headers,
    map_in_arrow,
    refused,
    schema_of,
    schemas_of,
    value_field,
    with_record_names,
)
from turnout.subscriptions import Snapshot, Store
from turnout.subscriptions.analysis.report import table_of
from turnout.subscriptions.index import Column
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.index import Index
from turnout.subscriptions.index.layers import Layer
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.past import PastStore
from turnout.subscriptions.store import creations_of
from turnout.transforms.chain import Chain, ChainRunner
from turnout.transforms.schemas import schemas_after

Tolerance = Literal["none", "all"]

_CONVERTER: Final = "turnout.spark.apply_chain"
_SIDES: Final = ("key", "value")
_PLACE: Final = ("topic", "partition", "offset")
_ERROR_ARROW: Final = pa.struct([pa.field(field.name, pa.string()) for field in ERROR_TYPE])


@dataclass(frozen=True)
class Applied:
    """Result of `apply_chain`.

    Attributes:
        records: records that passed.
        dead_letters: the consumed records that failed, unchanged, with ``_error``.
    """

    records: DataFrame
    dead_letters: DataFrame


def apply_chain(chain: Chain, records: DataFrame, tolerance: Tolerance = "none") -> Applied:
    """Return the records after the chain, and the failed records as they were before it.

    The frame needs ``topic`` and ``value`` at least; it may be a streaming one. Columns of a record get its names, in
    lower case, where Spark takes them for the same (``spark.sql.caseSensitive``). Columns that are no part of a record
    are carried along. Each of the two frames runs the chain when it is used.

    A key or value is a struct (or another type) where the chain can give it one type only, with the Connect schema in
    the column's metadata, and a VARIANT where it is schemaless or its type depends on the record. Decimals come out
    with 38 digits, and timestamps within keys and values in milliseconds, which is what Connect has. Plug-ins must be
    installed where Spark's workers run.

    Args:
        chain: the stages.
        records: consumed records.
        tolerance: ``none`` stops the job at the first failure with its place and reason; ``all`` sets the record aside.

    Raises:
        ConfigError: for columns whose types a record cannot have, missing ones, and several of one name.
    """
    frame = complete(with_record_names(records, ("topic", "value")))
    refused(frame.schema)
    rule = case_rule(records.sparkSession)
    others = [field for field in frame.schema if rule(field.name) != ERROR]
    task = _ChainTask.of(chain, frame.schema, tolerance)
    good = T.StructType([task.field(field) for field in frame.schema])
    dead = T.StructType([*others, T.StructField(ERROR, ERROR_TYPE)])
    return Applied(
        map_in_arrow(frame, _Records(task, tuple(good.names)), good),
        map_in_arrow(frame, _DeadLetters(task, tuple(dead.names)), dead),
    )


@dataclass(frozen=True)
class _ChainTask:
    """Serialisable task that runs the chain in Spark's workers.

    Attributes:
        before: the schemas of keys and values before it.
        after: those after it.
    """

    chain: Chain
    before: tuple[Schema | None, Schema | None]
    after: tuple[Schema | None, Schema | None]
    tolerance: Tolerance

    @classmethod
    def of(cls, chain: Chain, schema: T.StructType, tolerance: Tolerance) -> _ChainTask:
        key, value = schemas_of(schema)
        possible = schemas_after(chain, key, value)
        after = column_schema(possible.keys, key), column_schema(possible.values, value)
        return cls(chain, (key, value), after, tolerance)

    def field(self, before: T.StructField) -> T.StructField:
        """Return a column of the frame after the chain."""
        if before.name in _SIDES:
            return value_field(before.name, self.after[_SIDES.index(before.name)])
        if before.name == "headers":
            return T.StructField("headers", HEADERS, nullable=True)
        if before.name in RECORD:
            return T.StructField(before.name, before.dataType, nullable=True, metadata=before.metadata)
        return before

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_ChainResult]:
        """Yield each batch after the chain.

        Raises:
            RunError: at the first failure, without tolerance.
        """
        runner = ChainRunner(self.chain)
        for arrow in batches:
            if not arrow.num_rows:
                continue
            passed = _ChainResult.of(arrow, self.before)
            runner.apply(passed.batch)
            passed.write(self.after)
            if passed.batch.failures and self.tolerance == "none":
                raise RunError(passed.first_failure())
            yield passed


@dataclass
class _ChainResult:
    """Arrow batch with the result of the chain.

    Attributes:
        arrow: as it was consumed.
        partitions: as they were before any stage.
        timestamps: the same, in milliseconds.
        written: the keys and values after the chain.
    """

    arrow: pa.RecordBatch
    batch: Batch
    partitions: Sequence[int | None]
    timestamps: Sequence[int | None]
    written: dict[str, WrittenColumn] = field(default_factory=dict)

    @classmethod
    def of(cls, arrow: pa.RecordBatch, schemas: tuple[Schema | None, Schema | None]) -> _ChainResult:
        names = arrow.schema.names
        (key, wrong_keys), (value, wrong_values) = (
            blocks_of(arrow.column(name), schema) for name, schema in zip(_SIDES, schemas, strict=True)
        )
        partitions = arrow.column("partition").to_pylist()
        timestamps = millis_of(arrow.column("timestamp")).to_pylist()
        batch = Batch(
            texts_of(arrow.column("topic")),
            list(partitions),
            arrow.column("offset").to_pylist() if "offset" in names else None,
            list(timestamps),
            key,
            value,
            Headers.of_arrow(arrow.column("headers")),
        )
        batch.fail({row: _failure("key", error) for row, error in wrong_keys.items()})
        batch.fail({row: _failure("value", error) for row, error in wrong_values.items()})
        return cls(arrow, batch, partitions, timestamps)

    def write(self, schemas: tuple[Schema | None, Schema | None]) -> None:
        """Write keys and values to columns; records that a column cannot hold fail."""
        batch = self.batch
        for name, schema, blocks in zip(_SIDES, schemas, (batch.key, batch.value), strict=True):
            written = self.written[name] = WrittenColumn.of(blocks, schema)
            batch.fail({row: _failure(name, RecordError(problem)) for row, problem in written.problems.items()})

    def first_failure(self) -> str:
        """Describe the first failed record, its stage and the reason."""
        row = min(self.batch.failures)
        failure = self.batch.failures[row]
        names = [name for name in _PLACE if name in self.arrow.schema.names]
        values = [self.arrow.column(name)[row].as_py() for name in names]
        position = ", ".join(
            f"{name} {'?' if value is None else value}" for name, value in zip(names, values, strict=True)
        )
        return ": ".join((position, failure.stage, failure.class_name, failure.message))

    def column(self, name: str, rows: Positions) -> pa.Array:
        """Return a column of the frame after the chain, for these rows."""
        batch = self.batch
        if name in self.written:
            return self.written[name].at(rows)
        if name == "topic":
            return pa.array(batch.by_row(batch.topics, rows), pa.string())
        original = whole(self.arrow.column(name))
        before = original if len(rows) == len(original) else original.take(pa.array(rows))
        if name == "headers":
            return self._headers(before, rows)
        if name == "partition" and list(batch.partitions) != self.partitions:
            return pa.array(batch.by_row(batch.partitions, rows), original.type)
        if name == "timestamp" and list(batch.timestamps) != self.timestamps:
            return self._timestamps(before, rows)
        return before

    def _headers(self, before: pa.Array, rows: Positions) -> pa.Array:
        after = self.batch.headers.to_arrow(rows)
        if not before.null_count:
            return after
        # Absent headers are unchanged, null or an empty list.
        untouched = pc.and_(before.is_null(), pc.equal(pc.list_value_length(after), 0))
        return pc.if_else(untouched, pa.scalar(None, headers_type()), after)

    def _timestamps(self, before: pa.Array, rows: Positions) -> pa.Array:
        """Return the timestamps; timestamps that no stage has changed keep their microseconds."""
        now = self.batch.by_row(self.batch.timestamps, rows)
        same = [now == old for now, old in zip(now, self.batch.by_row(self.timestamps, rows), strict=True)]
        changed = pc.multiply_checked(pa.array(now, pa.int64()), 1000).cast(UTC_MICROS).cast(before.type)
        return pc.if_else(pa.array(same), before, changed)


def _failure(side: str, error: RecordError) -> Failure:
    return Failure.of(error, f"{side.upper()}_CONVERTER", _CONVERTER)


@dataclass(frozen=True)
class _Records:
    """Yields the records that passed the chain."""

    task: _ChainTask
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for passed in self.task.run(batches):
            rows = passed.batch.alive
            columns = [passed.column(name, rows) for name in self.names]
            yield pa.RecordBatch.from_arrays(columns, names=list(self.names))


@dataclass(frozen=True)
class _DeadLetters:
    """Yields the records that failed, in their original form, with the reason."""

    task: _ChainTask
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for passed in self.task.run(batches):
            rows = np.array(sorted(passed.batch.failures), np.intp)
            if not len(rows):
                continue
            consumed = passed.arrow.take(pa.array(rows))
            failures = [passed.batch.failures[row] for row in rows.tolist()]
            texts = [
                pa.array([getattr(failure, name) for failure in failures], pa.string()) for name in ERROR_TYPE.names
            ]
            errors = pa.StructArray.from_arrays(texts, fields=list(_ERROR_ARROW))
            arrays = [errors if name == ERROR else consumed.column(name) for name in self.names]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self.names))


_NOT_HEADERS = {"topic": "topic", "subject": "topic", "key": "key"}
_ROOTS = ("topic", "partition", "offset", "timestamp", *_SIDES)
"""Columns that `Metadata` reads itself; a path may also begin with any other column of the frame."""


@dataclass(frozen=True)
class FrameMetadata:
    """Reads the metadata that conditions use from Arrow batches of a frame.

    Attributes:
        keys: keys of leaves.
        paths: listed ones, as far as those need them.
        others: keys that are paths into other columns, as text: a parsed one loses its steps into elements on the way
            to a worker.
        headers: those that are headers here, because the frame has no column for them: a topic, a key.
        columns_read: of the frame, with the schema of their values; of a struct, the fields read.
    """

    keys: tuple[str, ...]
    paths: Mapping[str, str]
    others: Mapping[str, str]
    headers: tuple[str, ...]
    columns_read: Mapping[str, Schema | None]

    @classmethod
    def of(
        cls,
        schema: T.StructType,
        paths: Mapping[str, str],
        keys: Collection[str],
        rule: Callable[[str], str] = str.lower,
    ) -> Self:
        """Return the reader of these keys.

        Args:
            schema: schema of the frame.
            paths: name → path.
            keys: keys that conditions test; no other metadata is read.
            rule: makes equal what Spark takes for one name.

        Raises:
            ConfigError: for paths that the records cannot have.
        """
        mistakes = []
        resolved: dict[str, str] = {}
        for name, listed in paths.items():
            try:
                resolved[name] = _resolved(schema, listed, rule)
            except PathError as wrong:
                mistakes.append(Mistake(f"metadata.{name}", str(wrong)))
        paths = resolved
        if mistakes:
            raise ConfigError(mistakes, what="bad metadata for matching")
        names = [metadata_key(key) for key in keys if key != ANY_KEY]
        used = {name: path for name in names if (path := listed_path(paths, name)) is not None}
        homes = {name: _home(name, schema) for name in names if name not in used}
        if ANY_KEY in keys:
            used |= paths
            homes |= {name: _home(name, schema) for name in (*_NOT_HEADERS, "headers") if name not in used}
        parsed = {name: _split(path.removesuffix(PREFIX)) for name, path in used.items()}
        looked_at = [*parsed.values(), *(ListedPath(home, ()) for home in homes.values())]
        columns_read = {root: _read(schema[root], looked_at) for root, *_ in looked_at if root in schema.names}
        return cls(
            tuple(keys),
            used,
            {name: used[name] for name, path in parsed.items() if path.root not in _ROOTS},
            tuple(name for name, home in homes.items() if home == "headers" and name in _NOT_HEADERS),
            columns_read,
        )

    def columns(self, arrow: pa.RecordBatch) -> dict[str, Column]:
        """Return a column for each key, with an entry for each row of the batch."""
        count = arrow.num_rows
        batch = self._batch(arrow)
        columns = Metadata(self.paths).columns(batch, rows_of(count), self.keys)
        columns_by_path: dict[str, Column] = {}
        for name in self.headers:
            columns_by_path[name] = Column(batch.headers.last(name))
        for name, path in self.others.items():
            root, steps, kind = _split(path.removesuffix(PREFIX))
            blocks = self._blocks(arrow, root)
            if is_prefix(path):
                columns_by_path[name] = Column(
                    list(map(texts_or_none, leaf_texts_at(blocks, steps, count))), several=True
                )
            elif has_elements(steps):
                columns_by_path[name] = Column(element_texts_at(blocks, steps, count, kind), several=True)
            else:
                columns_by_path[name] = Column(texts_at(blocks, steps, count, kind))
        if ANY_KEY in columns and columns_by_path:
            rows = zip(columns[ANY_KEY].values, *(column.values for column in columns_by_path.values()), strict=True)
            columns[ANY_KEY] = Column([texts_or_none(single_values(values)) for values in rows], several=True)
        return columns | {
            key: column for name, column in columns_by_path.items() if (key := leaf_key(name)) in self.keys
        }

    def _batch(self, arrow: pa.RecordBatch) -> Batch:
        """Return the records with only the columns that conditions use."""
        count = arrow.num_rows
        nothing: NewColumn = [None] * count
        timestamps = nothing
        if "timestamp" in self.columns_read:
            timestamps = millis_of(whole(arrow.column("timestamp"))).to_pylist()
        headers = Headers(count)
        if "headers" in self.columns_read:
            headers = Headers.of_arrow(arrow.column("headers"))
        topics = texts_of(arrow.column("topic")) if "topic" in self.columns_read else nothing
        partitions, offsets = (
            arrow.column(name).to_pylist() if name in self.columns_read else nothing for name in ("partition", "offset")
        )
        key, value = (self._blocks(arrow, name) for name in _SIDES)
        return Batch(topics, partitions, offsets, timestamps, key, value, headers)

    def _blocks(self, arrow: pa.RecordBatch, name: str) -> list[Block]:
        if name not in self.columns_read:
            return [Block(rows_of(arrow.num_rows), None)]
        schema = self.columns_read[name]
        column = whole(arrow.column(name))
        if schema is not None and schema.type == "struct":
            column = _narrowed(column, schema)
        # What cannot be read counts as absent.
        return blocks_of(column, schema)[0]


def _split(path: str) -> ListedPath:
    try:
        parsed = ListedPath.of(path)
    except PathError:
        # A key below a prefix may be anything.
        return ListedPath("", ())
    return parsed._replace(root="topic") if parsed.root == "subject" else parsed


def _home(key: str, schema: T.StructType) -> str:
    """Return the column that holds a key without a listed path."""
    column = _NOT_HEADERS.get(key, "headers")
    return column if column in schema.names else "headers"


def _resolved(schema: T.StructType, path: str, rule: Callable[[str], str]) -> str:
    """Return a path with the names of columns and fields as the records have them.

    Raises:
        PathError: no value can have this path.
    """
    bare = path.removesuffix(PREFIX)
    root, steps, kind = ListedPath.of(bare)
    if (problem := kind_problem(path)) is not None:
        raise PathError(problem)
    names = {rule(name): name for name in schema.names}
    root_name = names.get(rule("topic" if rule(root) == "subject" and rule(root) not in names else root))
    if root_name is None:
        raise PathError(f"the path {path!r} begins with {root!r}; the records have {', '.join(schema.names)}")
    type_: T.DataType | None = schema[root_name].dataType
    if steps and not isinstance(type_, T.StructType | T.VariantType | T.MapType | T.ArrayType):
        raise PathError(f"the path {path!r} looks into {root!r}, which is {_described(type_)}: decode it first")
    written = [root_name]
    before = root
    for step in steps:
        name, type_ = _field(path, before, step, type_, rule)
        written.append(name)
        before = step
    for _, strange in foreign("", type_) if type_ is not None else ():
        raise PathError(f"the path {path!r} leads to {strange.simpleString()}, which has no text: cast it first")
    own = ListedPath(root_name, tuple(written[1:]), kind)
    return path if own == ListedPath(root, steps, kind) else own.text + path[len(bare) :]


def _field(
    path: str, before: str, step: str, type_: T.DataType | None, rule: Callable[[str], str]
) -> tuple[str, T.DataType | None]:
    """Return the name and the type of a step into a type; None for any type."""
    if type_ is None or isinstance(type_, T.VariantType | T.NullType):
        return step, None
    if step is EACH:
        # A value that is no array counts as its only element.
        return step, type_.elementType if isinstance(type_, T.ArrayType) else type_
    if isinstance(type_, T.MapType):
        return step, type_.valueType
    if isinstance(type_, T.StructType):
        found = [name for name in type_.names if rule(name) == rule(step)]
        name = step if step in found else found[0] if len(found) == 1 else None
        if name is not None:
            return name, type_[name].dataType
        if found:
            raise PathError(f"{step!r} in the path {path!r} may be {' or '.join(found)}: write one of them")
        fields = ", ".join(type_.names) or "none"
        raise PathError(f"the path {path!r} looks for {step!r} in {before!r}, whose fields are {fields}")
    cure = f"write {before}[] for each element" if isinstance(type_, T.ArrayType) else "it has no fields"
    raise PathError(f"the path {path!r} looks into {before!r}, which is {_described(type_)}: {cure}")


def _described(type_: T.DataType | None) -> str:
    return "anything" if type_ is None else type_.simpleString()


def _read(field: T.StructField, looked_at: Iterable[ListedPath]) -> Schema | None:
    """Return the schema of the part of a column that is read; of a struct, only the fields in use.

    Raises:
        ConfigError: for headers of another type than they have everywhere.
    """
    if field.name == "headers" and not is_headers(field.dataType):
        problem = f"expected {HEADERS.simpleString()}, found {field.dataType.simpleString()}"
        raise ConfigError([Mistake("headers", problem)], what="bad columns for matching")
    schema = schema_of(field)
    paths = [steps for root, steps, _ in looked_at if root == field.name]
    if schema is None or schema.type != "struct" or not all(paths):
        return schema
    names = {steps[0] for steps in paths}
    return schema.with_(default=None, fields=tuple(field for field in schema.fields if field.name in names))


def _narrowed(column: pa.Array, schema: Schema) -> pa.Array:
    """Structs with the fields of *schema* alone."""
    if len(schema.fields) == column.type.num_fields:
        return column
    if not schema.fields:
        return pa.nulls(len(column))
    names = [field.name for field in schema.fields]
    arrays = [column.field(column.type.get_field_index(name)) for name in names]
    return pa.StructArray.from_arrays(arrays, names=names, mask=column.is_null())


_ADDED: Final = (
    T.StructField("subscription_id", T.StringType()),
    T.StructField("destination", T.StringType()),
)

_OPEN_INDEXES: Final = 2
"""Indexes that a Python worker keeps open: those of two queries that alternate."""


def match(records: DataFrame, store: Store | Snapshot, metadata: Mapping[str, str] | None = None) -> DataFrame:
    """Return one row for each record, matching subscription and destination.

    The record's columns, then ``subscription_id`` and ``destination``; a record without a matching subscription has no
    row. No row is shuffled. Names of columns, and of fields in paths, are compared as Spark does
    (``spark.sql.caseSensitive``). A condition sees the record's ``topic`` (alias ``subject``), every header by its
    name, the record's key as ``key`` and the listed paths, all as text. A listed path wins over a header of its name.

    The subscriptions are those of now, also for a streaming frame. Their index is one file of some 120 bytes for each,
    which Spark brings to every executor once, and which its Python workers map; Spark keeps such files until the
    session ends, one for each requested set of subscriptions.

    Args:
        records: each may have any of the columns of a record, and others.
        store: the subscriptions.
        metadata: names and the paths of their values, as in ``{"origin": "value.origin"}``.

    Raises:
        ConfigError: for a path that the records cannot have, columns that Spark takes for one, and a frame that has
            ``subscription_id`` or ``destination`` already, as after another match.
    """
    rule = case_rule(records.sparkSession)
    added = {field.name for field in _ADDED}
    problem = "the frame has this column already, as after another match: rename or drop it first"
    if mistakes := [Mistake(name, problem) for name in records.columns if rule(name) in added]:
        raise ConfigError(mistakes, what="bad columns for matching")
    renamed = with_record_names(records)
    snapshot = store if isinstance(store, Snapshot) else store.snapshot()
    segment = build(snapshot, Costs())
    reader = FrameMetadata.of(renamed.schema, metadata or {}, segment.head.keys, rule)
    names = (*records.columns, *(field.name for field in _ADDED))
    task = _Match(_sent(records.sparkSession, segment), snapshot.revision, reader, names)
    return map_in_arrow(renamed, task, T.StructType([*records.schema.fields, *_ADDED]))


def _sent(spark: SparkSession, segment: Segment) -> str:
    """Return the name under which the workers find the segment's file."""
    begun = _folder() / uuid4().hex
    segment.write(begun)
    with begun.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    path = begun.rename(begun.with_name(f"turnout-{digest}.index"))
    context = getattr(spark, "sparkContext", None)
    if context is None:
        # Spark Connect has no context.
        spark.addArtifacts(str(path), file=True)
    else:
        context.addFile(str(path))
    return path.name


@cache
def _folder() -> Path:
    """Return the folder of this process's indexes: executors that start later fetch them from here."""
    return lasting_folder("match")


@lru_cache(maxsize=_OPEN_INDEXES)
def _opened(path: str, revision: int) -> Index:
    return Index([Layer(Segment.open(Path(path)))], revision)


@dataclass(frozen=True)
class _Match:
    """Gives the deliveries of Arrow batches.

    Attributes:
        file: the index, by the name that Spark knows it under.
        names: names of the resulting columns.
    """

    file: str
    revision: int
    reader: FrameMetadata
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = _opened(SparkFiles.get(self.file), self.revision)
        for arrow in batches:
            if not arrow.num_rows:
                continue
            times = None
            if index.expires and "timestamp" in arrow.schema.names:
                times = millis_of(whole(arrow.column("timestamp"))).to_pylist()
            matches = index.match(self.reader.columns(arrow), arrow.num_rows, times=times)
            deliveries = index.deliveries(matches)
            if len(deliveries.rows):
                columns = arrow.take(pa.array(deliveries.rows)).columns
                added = [index.subscription_ids(deliveries.subscriptions), index.destinations(deliveries.destinations)]
                yield pa.RecordBatch.from_arrays([*columns, *added], names=list(self.names))


def subscriptions_table(spark: SparkSession, store: Store | PastStore | Snapshot) -> DataFrame:
    """Return one row for each subscription; see `turnout.subscriptions.analysis.report.TABLE` for the columns.

    The driver reads and normalises them all: a million take some minutes and gigabytes there.

    Args:
        spark: the session.
        store: the subscriptions; ``store.as_of(…)`` for earlier ones, whose creation times are unknown.
    """
    births = creations_of(store) if isinstance(store, Store) else {}
    snapshot = store if isinstance(store, Snapshot) else store.snapshot()
    return spark.createDataFrame(table_of(snapshot, births))
