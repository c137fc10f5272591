"""A chain of transforms compiled to Spark: one output row for each record, without shuffles or per-record Python.

Every stage becomes one or two projections, so that expression trees stay shallow and no intermediate result is
computed twice: Spark folds a projection into the next one only where that costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from turnout.spark.headers import TYPED_HEADER
from turnout.spark.merge import Merge
from turnout.spark.predicates import compile_predicate
from turnout.spark.record import Failure, Record, Step, names_of_columns
from turnout.spark.schemas import metadata_of, schema_of
from turnout.spark.transforms import compile_transform
from turnout.spark.typed import Object, Struct, Typed, opened
from turnout.transforms.chain import Chain, Stage
from turnout.transforms.policy import ErrorPolicy
from turnout.transforms.schema import Schema

__all__ = [
    "DROPPED",
    "ERROR",
    "ERROR_TYPE",
    "NOTED",
    "Applied",
    "ChainCompiler",
    "apply_chain",
    "compile_chain",
    "error_headers",
    "logged_error",
]

ERROR: Final = "_error"
"""The column that says why a record failed; null for one that did not."""

DROPPED: Final = "_dropped"
"""The column that says whether a Filter dropped the record; never null."""

NOTED: Final = "_noted"
"""The column with the first predicate that failed and, with ``errors.predicates: not-matched``, only left its stage
out. It is there only for chains that log failures and have a predicate that can fail."""

ERROR_TYPE: Final = T.StructType(
    [
        T.StructField("stage", T.StringType()),
        T.StructField("class_name", T.StringType()),
        T.StructField("exception", T.StringType()),
        T.StructField("message", T.StringType()),
    ]
)

Tolerance = Literal["none", "all"]

_SIDES = ("key", "value")


@dataclass(frozen=True)
class Applied:
    """What `apply_chain` gives.

    Attributes:
        records: those that came through.
        dead_letters: the consumed records that failed, unchanged, with ``_error``.
    """

    records: DataFrame
    dead_letters: DataFrame


def apply_chain(chain: Chain, records: DataFrame, tolerance: Tolerance = "none") -> Applied:
    """The records after the chain, and those that failed as they were before it.

    Each of the two frames computes the chain when it is used; `compile_chain` does it once for both.
    """
    kept = {name: f"_original_{name}" for name in ("topic", *_SIDES, "headers") if name in records.columns}
    rows = compile_chain(chain, records.withColumns({new: F.col(old) for old, new in kept.items()}), tolerance)
    good = rows.where(F.col(ERROR).isNull() & ~F.col(DROPPED)).drop(ERROR, DROPPED, *kept.values())
    dead = rows.where(F.col(ERROR).isNotNull()).drop(DROPPED)
    dead = dead.withColumns({old: F.col(new) for old, new in kept.items()}).drop(*kept.values())
    return Applied(good, dead)


def compile_chain(
    chain: Chain,
    records: DataFrame,
    tolerance: Tolerance = "none",
    *,
    predicates: Literal["fail", "not-matched"] | None = None,
) -> DataFrame:
    """The records after the chain, one row each, with `ERROR` and `DROPPED` beside their other columns.

    A record that failed or was dropped passes the later stages untouched; where a later stage changes the type of a
    column, it has null there. An `ERROR` column that the records already have (`decode_values` makes one) is kept.

    Args:
        chain: the stages.
        records: a frame with the columns of a record: at least ``topic`` and ``value``.
        tolerance: ``none`` stops the job at the first failure with its place and reason; ``all`` notes it.
        predicates: what a failing predicate is; the chain's own ``errors.predicates`` if not given.

    Raises:
        NotCompilableError: when a stage cannot be said in Spark for these columns.
    """
    compiler = ChainCompiler(
        records, replace(chain.errors, failed_predicates=predicates or chain.errors.failed_predicates)
    )
    for stage in chain.stages:
        compiler.add(stage)
    rows = compiler.rows()
    return _stopping(rows) if tolerance == "none" else rows


def _stopping(rows: DataFrame) -> DataFrame:
    """The same rows; the job fails at the first one with an error."""
    error = F.col(ERROR)
    place = [F.coalesce(F.col(name).cast("string"), F.lit("?")) for name in _PLACE if name in rows.columns]
    labels = [F.concat(F.lit(f"{name} "), text) for name, text in zip(_PLACE, place, strict=False)]
    what = F.concat_ws(": ", F.concat_ws(", ", *labels), error["stage"], error["class_name"], error["message"])
    stopped = F.when(error.isNotNull(), F.raise_error(what).cast(ERROR_TYPE))
    return rows.withColumn(ERROR, stopped)


_PLACE = ("topic", "partition", "offset")


class ChainCompiler:
    """Adds one stage after the other to a frame, and keeps what is known of its key and value.

    What a stage makes of them stands in columns of its own; `rows` puts the key and the value together.
    """

    def __init__(self, records: DataFrame, policy: ErrorPolicy) -> None:
        self.policy = policy
        self.frame = _complete(records)
        self.names = names_of_columns()
        self.made: list[str] = []
        self.given = {name: self._opened(F.col(name), schema_of(self.frame.schema[name])) for name in _SIDES}
        self.sides = dict(self.given)
        self.can_die = ERROR in records.columns or DROPPED in records.columns
        self.source = "offset" not in records.columns
        self.typed_headers = _has_typed_headers(self.frame)

    def rows(self) -> DataFrame:
        """The frame, with the schemas in its columns' metadata."""
        whole: dict[str, Column] = {}
        for name, side in self.sides.items():
            same = side is self.given[name]
            if side.schema is not None:
                column = F.col(name) if same else side.column
                whole[name] = column.alias(name, metadata=metadata_of(side.schema))
            elif not same:
                whole[name] = side.column
        rows = self.frame.withColumns(whole) if whole else self.frame
        return rows.drop(*self.made)

    def add(self, stage: Stage) -> None:
        """One stage more: whether it applies, whether it fails, what it changes."""
        record = self.record()
        applies, failed_guards = self._applies(stage, record)
        step = compile_transform(stage.transform, record)
        failures = [*failed_guards, *step.failures]
        where: Column | None = None
        beside: dict[str, Column] = {}
        if applies is not None:
            where = self._beside(applies, beside)
        for name, column in step.bound:
            beside[name] = column if where is None else F.when(where, column)
            self.made.append(name)
        failure: Column | None = None
        if failures:
            failure = self._beside(self._failure(stage, failures, where), beside)
        if beside:
            # In one select, where each may refer to those before it: Spark analyses a frame anew for every call.
            self.frame = self.frame.select("*", *[column.alias(name) for name, column in beside.items()])
        self._change(record, step, where, failure, guarded=bool(stage.guards))

    def _beside(self, column: Column, columns: dict[str, Column]) -> Column:
        """The column under a name of its own, among those to be added."""
        name = self._name()
        columns[name] = column
        return F.col(name)

    def record(self) -> Record:
        """The record as the stages so far have left it."""
        offset = None if self.source else F.col("offset")
        return Record(
            F.col("topic"), F.col("partition"), offset, F.col("timestamp"), self.sides["key"], self.sides["value"],
            F.col("headers"), self.typed_headers, self.names,
        )  # fmt: skip

    def _applies(self, stage: Stage, record: Record) -> tuple[Column | None, list[Failure]]:
        """Where the stage applies (None: everywhere), and how its predicates can fail."""
        failures: list[Failure] = []
        holds: Column | None = None
        for guard in stage.guards:
            test = compile_predicate(guard.predicate, record)
            answer = F.coalesce(test.holds, F.lit(False))
            answer = ~answer if guard.negate else answer
            holds = answer if holds is None else holds & answer
            failures += test.failures
        if holds is not None and stage.negate:
            holds = ~holds
        if holds is not None and failures:
            broken = _any([failure.when for failure in failures])
            # A failing predicate leaves its stage out, whatever negate says, or is a failure that the stage reports.
            if self.policy.failed_predicates == "not-matched":
                holds = ~broken & holds
                self._note(stage, failures)
                failures = []
            else:
                holds = broken | holds
        if self.can_die:
            live = F.col(ERROR).isNull() & ~F.col(DROPPED)
            holds = live if holds is None else live & holds
        return holds, failures

    def _note(self, stage: Stage, failures: list[Failure]) -> None:
        """Keep the first failure of a predicate that counts as not matched, for the log."""
        if not self.policy.log:
            return
        found = self._failure(stage, failures, None)
        live = F.col(ERROR).isNull() & ~F.col(DROPPED)
        noted = F.coalesce(F.col(NOTED), F.when(live, found)) if NOTED in self.frame.columns else F.when(live, found)
        self.frame = self.frame.withColumn(NOTED, noted)

    def _failure(self, stage: Stage, failures: list[Failure], where: Column | None) -> Column:
        found = F.lit(None).cast(ERROR_TYPE)
        for failure in reversed(failures):
            error = F.struct(
                F.lit("TRANSFORMATION").alias("stage"),
                F.lit(stage.transform.full_name).alias("class_name"),
                F.lit(failure.exception).alias("exception"),
                F.concat(F.lit(f"{stage.name}: "), failure.message).alias("message"),
            )
            found = F.when(failure.when, error).otherwise(found)
        return found if where is None else F.when(where, found)

    def _change(
        self, before: Record, step: Step, where: Column | None, failure: Column | None, *, guarded: bool
    ) -> None:
        done = where
        if failure is not None:
            fine = failure.isNull()
            done = fine if done is None else done & fine
        after = step.record
        merge = Merge(done, self._name, guarded=guarded)
        for name in ("topic", "partition", "timestamp", "headers"):
            old, new = getattr(before, name), getattr(after, name)
            if new is not old:
                merge.columns[name] = new if done is None else F.when(done, new).otherwise(old)
        merged = {name: merge.side(self.sides[name], getattr(after, name)) for name in _SIDES}
        if failure is not None:
            merge.columns[ERROR] = F.coalesce(F.col(ERROR), failure)
        if step.drops:
            merge.columns[DROPPED] = F.lit(True) if done is None else F.col(DROPPED) | done
        self.can_die = self.can_die or failure is not None or step.drops
        if merge.columns:
            self.frame = self.frame.withColumns(merge.columns)
        for name, side in merged.items():
            in_parts = side is self.sides[name] or isinstance(side, Struct | Object)
            self.sides[name] = side if in_parts else self._opened(side.column, side.schema)

    def _opened(self, column: Column, schema: Schema | None) -> Typed:
        """The column in parts; whether it is an object is looked at once a row."""
        side = opened(column, schema)
        if isinstance(side, Object):
            name = self._name()
            self.frame = self.frame.withColumn(name, side.is_object)
            return Object(side.base, F.col(name))
        return side

    def _name(self) -> str:
        name = next(self.names)
        self.made.append(name)
        return name


def _any(conditions: list[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found = found | condition
    return found


def _complete(records: DataFrame) -> DataFrame:
    """The frame with every column of a record, missing ones null."""
    missing = {name: F.lit(None).cast(kind) for name, kind in _RECORD.items() if name not in records.columns}
    frame = records.withColumns(missing) if missing else records
    if ERROR not in records.columns:
        frame = frame.withColumn(ERROR, F.lit(None).cast(ERROR_TYPE))
    return frame if DROPPED in records.columns else frame.withColumn(DROPPED, F.lit(False))


_RECORD = {
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}


def _has_typed_headers(frame: DataFrame) -> bool:
    """Whether headers carry a variant and a schema beside their names, as in `turnout.spark.headers`."""
    headers = frame.schema["headers"].dataType
    return isinstance(headers, T.ArrayType) and headers.elementType.simpleString() == TYPED_HEADER


def logged_error(rows: DataFrame) -> Column:
    """What the log says of a row after `compile_chain`: its failure, or that of a predicate that was passed over."""
    return F.coalesce(F.col(ERROR), F.col(NOTED)) if NOTED in rows.columns else F.col(ERROR)


def error_headers(error: Column, topic: Column, partition: Column, offset: Column, *, name: str = "") -> Column:
    """Connect's context headers for a dead letter, as an array to append to the record's own.

    Args:
        error: the `ERROR` column.
        topic: the consumed record's topic.
        partition: its partition.
        offset: its offset there.
        name: the connector's, here the route's, name; left out if empty.
    """
    texts = [
        ("topic", topic),
        ("partition", partition.cast("string")),
        ("offset", offset.cast("string")),
        ("connector.name", F.lit(name or None)),
        # A route is one task to Connect, however many Spark makes of it.
        ("task.id", F.lit("0")),
        ("stage", error["stage"]),
        ("class.name", error["class_name"]),
        ("exception.class.name", error["exception"]),
        ("exception.message", error["message"]),
        # The first line of Java's trace. No Java exception was thrown, so there are no others.
        ("exception.stacktrace", F.concat(error["exception"], F.lit(": "), error["message"])),
    ]
    headers = [
        F.when(
            text.isNotNull(),
            F.struct(F.lit(f"__connect.errors.{key}").alias("key"), F.encode(text, "UTF-8").alias("value")),
        )
        for key, text in texts
    ]
    return F.array_compact(F.array(*headers))
