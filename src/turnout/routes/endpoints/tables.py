"""Tables as sources and as sinks: whatever Spark has a connector for, and tables of Delta Lake and Apache Iceberg."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from turnout.base.untrusted import is_whole
from turnout.codecs.ddl import DdlError, parse_ddl
from turnout.expressions import TableRows
from turnout.records import Field as StructField
from turnout.records import Schema
from turnout.records.field_paths import parse_path
from turnout.records.schema import DATE, DECIMAL, PRECISION, TIMESTAMP
from turnout.routes.endpoints.base import Endpoint, Part, Sink, Source
from turnout.routes.endpoints.nats import NatsEndpoint
from turnout.routes.values import listed

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_NOT_STREAMED: Final = ("jdbc", "binaryFile")
_NEED_SCHEMA: Final = ("parquet", "csv", "json", "orc", "avro", "xml")
_PARTS: Final = {
    "topic": "STRING",
    "key": "BINARY",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "messageId": "STRING",
}
"""Parts of a message that a column may have, with their types."""

_BYTES: Final = ("string", "bytes")
_FITTING: Final[dict[str, tuple[str, ...]]] = {
    "key": _BYTES,
    "headers": _BYTES,
    "body": _BYTES,
    "partition": ("int32", "int64", "string"),
    "offset": ("int64", "string"),
    "match.revision": ("int64", "string"),
}
"""Part of a message → types of a column that every such part fits. The others are texts."""

_DRIVERS: Final = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "duckdb": "org.duckdb.DuckDBDriver",
}
"""Database in a URL of JDBC → class of its driver, which Java does not find by itself in a package."""

MATCH_COLUMNS: Final = {
    "time": "timestamp",
    "position": "match.position",
    "subscription": "match.subscription",
    "revision": "match.revision",
    "destination": "topic",
}
"""Columns of a row of a match, in a table of matches."""

MATCHES: Final = "turnout.matches"
"""Name of a route's sink of matches, which no destination can name."""

MATCH_SIGN: Final = "\n"
"""Sign between a position, a revision and a subscription in the ids of messages for a table of matches."""

Texts = Annotated[dict[str, str | int | float | bool], Field(default_factory=dict)]


def topic_pieces(template: str) -> list[tuple[str, bool]]:
    """Return the pieces of a topic's template, each with whether it is a placeholder's content.

    >>> topic_pieces("flights.{carrier}")
    [('flights.', False), ('carrier', True)]
    """
    parts = _PLACEHOLDER.split(template)
    return [(part, at % 2 == 1) for at, part in enumerate(parts) if part]


def _template(text: str) -> str:
    if any(not piece.strip() for piece, is_inner in topic_pieces(text) if is_inner) or "{}" in text:
        raise ValueError(f"found an empty placeholder in {text!r}, expected a column, as in flights.{{carrier}}")
    if any(brace in piece for piece, is_inner in topic_pieces(text) if not is_inner for brace in "{}"):
        raise ValueError(f"found a single brace in {text!r}, expected {{column}}")
    return text


Template = Annotated[str, Field(min_length=1), AfterValidator(_template)]


class RecordPart(Part):
    """Record that a row becomes. Of format spark the columns are SQL expressions, of others names with dots.

    Attributes:
        topic: its topic; ``{column}`` in it stands for a column as text.
        key: the column that is the key; none if not given.
        value: the expression of the value, of format spark alone; a struct of all columns if not given.
        headers: name of a header → its column.
        timestamp: the column with the record's time.
        partition: the column with its partition.
        offset: the column that numbers the rows: ids of messages derive from it, of format spark alone.
    """

    topic: Template
    key: str | None = None
    value: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    timestamp: str | None = None
    partition: str | None = None
    offset: str | None = None


class TableSource(Source):
    """Rows of a table, whose values are typed: no format reads them; ``value`` is how they are written as bytes.

    Attributes:
        record: the record that a row becomes.
    """

    record: RecordPart


class _OfSpark(Endpoint):
    """Connector of Spark.

    Attributes:
        provider: the name of Spark's format: ``jdbc``, ``parquet``, ``orc``, ``rate`` …
        options_: options of the provider, as Spark takes them.
        packages: Maven coordinates of the connector.
    """

    format: Literal["spark"]
    provider: str = Field(min_length=1)
    options_: Texts = Field(alias="options")
    packages: list[str] = Field(default_factory=list)

    @property
    def texts(self) -> dict[str, str]:
        """Options of the provider as texts; of jdbc with the class of the driver, where it is known by the URL."""
        texts = _texts(self.options_)
        database = texts.get("url", "").removeprefix("jdbc:").partition(":")[0]
        driver = {"driver": _DRIVERS[database]} if self.provider == "jdbc" and database in _DRIVERS else {}
        return driver | texts


class SparkSource(_OfSpark, TableSource):
    """Rows of any source that Spark has a connector for.

    Attributes:
        schema_: the columns, as Spark's DDL, for providers that need them.
        stream: whether rows are read as they appear, by Spark's ``readStream``; once otherwise.
    """

    schema_: str | None = Field(None, alias="schema")
    stream: bool = False

    @model_validator(mode="after")
    def _streams(self) -> SparkSource:
        if self.stream and self.provider in _NOT_STREAMED:
            raise ValueError(f"stream: Spark reads {self.provider} once, and not as a stream")
        if self.stream and self.provider in _NEED_SCHEMA and self.schema_ is None:
            raise ValueError(f"schema: Spark needs the columns of a stream of {self.provider}")
        return self

    @property
    def is_bounded(self) -> bool:
        """True if the rows are read once."""
        return not self.stream


class _LakeEnd(Endpoint):
    """Table with versions."""

    @property
    def table_name(self) -> str:
        """Name of the table, by which positions are noted."""
        raise NotImplementedError


class LakeSource(_LakeEnd, TableSource):
    """Rows of a table with versions: those it has, then those that later commits add.

    Attributes:
        start: ``snapshot`` reads the rows that the table has, and what is added later; ``latest`` the latter alone.
        changes: ``refuse`` stops at a commit that deletes or changes rows, ``skip`` passes over it with a warning.
        max_versions_per_trigger: the most commits in a micro-batch.
        partitions: tasks that read at the same time, at most.
    """

    start: Literal["snapshot", "latest"] | Annotated[int, Field(ge=0)] = "snapshot"
    changes: Literal["refuse", "skip"] = "refuse"
    poll_wait: float = Field(1.0, ge=0, description="seconds between two reads of the log, where nothing is new")
    max_versions_per_trigger: int | None = Field(None, gt=0)
    partitions: int | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _columns_alone(self) -> LakeSource:
        wrong = [name for name in ("value", "offset", "partition") if getattr(self.record, name) is not None]
        if wrong:
            raise ValueError(
                f"record.{wrong[0]}: a record has all columns and its place in the table; see format spark"
            )
        return self

    @property
    def streams(self) -> tuple[str, ...]:
        """The name of the table, without characters that positions have between their parts."""
        return (re.sub(r"[^A-Za-z0-9_-]+", "_", self.table_name.rstrip("/")).strip("_") or "table",)


class _Delta(_LakeEnd):
    """Table of Delta Lake.

    Attributes:
        path: folder or URL of the table.
        options_: settings of the object store, as delta-rs takes them.
    """

    format: Literal["delta"]
    path: str = Field(min_length=1)
    options_: Texts = Field(alias="options")

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the object store as texts."""
        return _texts(self.options_)

    @property
    def table_name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


class _Iceberg(_LakeEnd):
    """Table of Apache Iceberg.

    Attributes:
        catalog: properties of the catalog, as pyiceberg takes them: ``type``, ``uri``, ``warehouse`` …; ``name`` is
            its name, ``default`` if not given.
        table: name of the table with its namespace: ``lake.flights``.
    """

    format: Literal["iceberg"]
    catalog: Annotated[dict[str, str | int | float | bool], Field(min_length=1)]
    table: str = Field(pattern=r"^[^.\s]+(\.[^.\s]+)+$")

    @property
    def table_name(self) -> str:
        """The name of the table."""
        return self.table

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the catalog as texts."""
        return _texts(self.catalog)


class DeltaSource(_Delta, LakeSource):
    """Rows of a Delta table, by its versions."""


class _Lookup(Endpoint):
    """Table whose rows expressions look up.

    Attributes:
        key: column of the key: whole numbers or texts, each in one row.
        revision: revision to read; that of the start of the run if not given, which it keeps.
    """

    key: str = Field(min_length=1)
    revision: Annotated[str, BeforeValidator(lambda value: f"{value}" if is_whole(value) else value)] | None = None


class DeltaLookup(_Delta, _Lookup):
    """Rows of a Delta table; its revision is a version."""


class IcebergLookup(_Iceberg, _Lookup):
    """Rows of an Iceberg table; its revision is the sequence number of a snapshot."""


class FileLookup(_Lookup):
    """Rows of a file; its revision is the beginning of the SHA-256 of its bytes.

    Attributes:
        path: name of the file, relative to the folder of the route.
    """

    format: Literal["csv", "json", "parquet"]
    path: str = Field(min_length=1)


class BucketLookup(NatsEndpoint, _Lookup):
    """Entries of a KV bucket: JSON objects by their key; its revision is that of the newest entry.

    Attributes:
        bucket: name of the bucket.
        key: name under which a row has its key.
    """

    bucket: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    key: str = "key"


LookupPart: TypeAlias = DeltaLookup | IcebergLookup | FileLookup | BucketLookup


@dataclass(frozen=True)
class Lookup:
    """Table of a route's lookups, pinned to a revision once its rows are read.

    Attributes:
        part: how it is read.
        revision: revision of the rows; "" until they are read.
        rows: the rows; None until then.
    """

    part: LookupPart
    revision: str = ""
    rows: TableRows | None = None


class IcebergSource(_Iceberg, LakeSource):
    """Rows of an Iceberg table, by its snapshots."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """Content of a column of a sink's table.

    Attributes:
        name: name of the column.
        part: ``value``, or another part of the message.
        path: names of fields below the value, or the name of a header.
        type: Spark's type as DDL; "" for that of the field, or of the table's column.
    """

    name: str
    part: str
    path: tuple[str, ...] = ()
    type: str = ""

    @classmethod
    def of(cls, name: str, text: str) -> ColumnSpec:
        """Read ``PATH`` or ``PATH TYPE``.

        Raises:
            ValueError: it is neither.

        >>> ColumnSpec.of("delay", "value.arrival.delay INT")
        ColumnSpec(name='delay', part='value', path=('arrival', 'delay'), type='INT')
        """
        path, _, type_ = text.strip().partition(" ")
        part, _, rest = path.partition(".")
        if type_:
            try:
                parse_ddl(f"c {type_}")
            except DdlError as error:
                raise ValueError(f"{name}: {error}, in {type_!r}") from None
        if part == "value":
            steps = parse_path(path)[1:]
            if not steps or any(not step or step.endswith("[]") for step in steps):
                raise ValueError(f"{name}: found {path!r}, expected a field, as in value.arrival.delay")
            return cls(name, part, steps, type_)
        if part == "headers" and rest:
            spec = cls(name, part, (rest,), type_ or "STRING")
        elif path in MATCH_COLUMNS.values() and part == "match":
            spec = cls(name, path, (), type_ or ("BIGINT" if rest == "revision" else "STRING"))
        elif not rest and part in _PARTS:
            spec = cls(name, part, (), type_ or _PARTS[part])
        else:
            raise ValueError(
                f"{name}: found {path!r}, expected value.FIELD, headers.NAME or one of {', '.join(_PARTS)}"
            )
        if (problem := spec.problem(_precise(f"c {spec.type}"))) is not None:
            raise ValueError(f"{name}: {problem}")
        return spec

    @property
    def schema(self) -> Schema | None:
        """Schema of the declared type; None without one."""
        return _precise(f"c {self.type}") if self.type else None

    def problem(self, schema: Schema) -> str | None:
        """Return why some messages would not fit a column of a type; None where all do, and of fields of values.

        Spark makes these columns, and fails the whole micro-batch for one message.
        """
        if self.part == "value" or (self.part == "headers" and not self.path):
            return None
        if self.part == "timestamp":
            fits = schema.type == "string" or schema.logical in (DATE, TIMESTAMP)
            return None if fits else f"found a time as {schema.type}, expected TIMESTAMP, DATE or STRING"
        fitting = _FITTING.get(self.part, ("string",))
        if schema.type in fitting and schema.logical is None:
            return None
        types = " or ".join(
            {"int32": "INT", "int64": "BIGINT", "bytes": "BINARY"}.get(one, "STRING") for one in fitting
        )
        problem = f"found {'.'.join((self.part, *self.path))} as {schema.logical or schema.type}, expected {types}"
        if self.part not in ("key", "headers"):
            return problem
        expression = f"headers['{self.path[0]}']" if self.path else "key"
        return f"{problem}: a Set transform makes a field of it, value.{self.name}: int({expression})"


def _precise(ddl: str) -> Schema:
    declared = parse_ddl(ddl)
    (inner,), (one,) = declared.inner, declared.schema.fields
    digits = ((PRECISION, str(inner.digits)),) if inner.schema.logical == DECIMAL else ()
    return one.schema.with_(parameters=(*one.schema.parameters, *digits))


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def _columns(value: object) -> object:
    if isinstance(value, Mapping):
        for name, text in value.items():
            if not isinstance(text, str):
                raise ValueError(f"{name}: found {text!r}, expected a path, as in value.delay or value.delay INT")  # noqa: TRY004 - pydantic's
            ColumnSpec.of(str(name), text)
    return value


class TableSink(Sink):
    """Table that a row is appended to for each message.

    Attributes:
        columns: name of a column → ``PATH`` or ``PATH TYPE`` of the message; the fields of the value if not given.
            ``record``: the columns of a record, with the value as text, as files have them.
        partition_by: columns by which the table is partitioned.
    """

    topics_are_addresses: ClassVar[bool] = False

    columns: Annotated[dict[str, str] | Literal["record"] | None, BeforeValidator(_columns)] = None
    partition_by: str | list[str] | None = None

    @property
    def is_typed(self) -> bool:
        """True if its rows have columns of their own."""
        return self.columns != "record"

    @property
    def specs(self) -> tuple[ColumnSpec, ...] | None:
        """The columns; None for the fields of the value."""
        if self.columns == "record" or self.columns is None:
            return None
        return tuple(ColumnSpec.of(name, text) for name, text in self.columns.items())

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the columns by which the table is partitioned."""
        return listed(self.partition_by)

    @property
    def exactness(self) -> str:
        """Delivery guarantee for the rows of a micro-batch that is done again."""
        raise NotImplementedError


class SparkSink(_OfSpark, TableSink):
    """Sink for which Spark has a connector.

    Attributes:
        mode: ``append``; for a source that is read once ``overwrite``, ``ignore`` or ``errorifexists`` as well.
        upsert_by: of ``jdbc`` to PostgreSQL: columns of a unique key, by which a row replaces an earlier one.
    """

    mode: Literal["append", "overwrite", "ignore", "errorifexists"] = "append"
    upsert_by: str | list[str] | None = None

    @model_validator(mode="after")
    def _fits(self) -> SparkSink:
        url = str(self.options_.get("url", ""))
        if self.upsert_by is not None and (self.provider != "jdbc" or not url.startswith("jdbc:postgresql:")):
            raise ValueError("upsertBy: only jdbc to PostgreSQL replaces rows by a key")
        if self.upsert_by is not None and (self.mode != "append" or "dbtable" not in self.options_):
            raise ValueError("upsertBy: needs mode: append, and the table under options.dbtable")
        if self.provider == "jdbc" and self.partition_by is not None:
            raise ValueError("partitionBy: tables of jdbc have none here")
        return self

    @property
    def exactness(self) -> str:
        """Delivery guarantee for the rows of a micro-batch that is done again."""
        keys = ", ".join(listed(self.upsert_by))
        if keys:
            return f"exactly once by the key {keys}: a micro-batch that is done again replaces its rows"
        return f"at least once: a micro-batch that is done again appends its rows to {self.provider} again"


class LakeSink(_LakeEnd, TableSink):
    """Table with versions: a micro-batch is one commit, which notes it.

    Attributes:
        schema_evolution: whether columns that the table lacks are added to it.
        create: whether a table that is not there is made.
    """

    noted_as: ClassVar[str]

    schema_evolution: bool = False
    create: bool = True

    @property
    def exactness(self) -> str:
        """Delivery guarantee for the rows of a micro-batch that is done again."""
        return (
            f"exactly once: a commit has the micro-batch as {self.noted_as}; a run of a source that is read once"
            " commits as a whole, and again if it is run again"
        )


class DeltaSink(_Delta, LakeSink):
    """Delta table; a micro-batch that is done again is recognised by its transaction."""

    noted_as: ClassVar = "the application's transaction (txnAppId, txnVersion)"


class IcebergSink(_Iceberg, LakeSink):
    """Iceberg table; a micro-batch that is done again is recognised by a property of the table."""

    noted_as: ClassVar = "a property of the table"


def struct_of(specs: Iterator[tuple[tuple[str, ...], Schema]]) -> Schema:
    """Return the struct that has schemas at paths.

    >>> a, b = Schema("int32", True), Schema("string", True)
    >>> [field.name for field in struct_of(iter([(("x", "a"), a), (("y",), b), (("x", "b"), b)])).fields]
    ['x', 'y']
    """
    inner: dict[str, list[tuple[tuple[str, ...], Schema]]] = {}
    for path, schema in specs:
        inner.setdefault(path[0], []).append((path[1:], schema))
    fields = []
    for name, below in inner.items():
        whole = next((schema for path, schema in below if not path), None)
        fields.append(StructField(name, whole if whole is not None else struct_of(iter(below))))
    return Schema("struct", True, fields=tuple(fields))
