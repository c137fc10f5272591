"""Predicates on columns: Connect's three, and conditions over topic, headers, key and value."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatch

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.conditions import Condition as ConditionTree
from turnout.conditions import leaves
from turnout.errors import NotCompilableError
from turnout.spark.conditions import to_column
from turnout.spark.headers import last_text
from turnout.spark.java_regex import matches_whole
from turnout.spark.record import Failure, Record
from turnout.spark.subjects import subject_matches
from turnout.spark.text import text_of
from turnout.spark.typed import Typed
from turnout.transforms.base import Predicate
from turnout.transforms.paths import parse_path
from turnout.transforms.predicates import (
    Condition,
    HasHeaderKey,
    RecordIsTombstone,
    SubjectMatches,
    TopicNameMatches,
)
from turnout.transforms.schema import Schema

__all__ = ["Test", "compile_predicate", "condition_holds", "operand"]


@dataclass
class Test:
    """What a predicate says: *holds* may be null, which counts as false; *failures* are how it can fail."""

    holds: Column
    failures: list[Failure] = field(default_factory=list)


@singledispatch
def compile_predicate(predicate: Predicate, record: Record) -> Test:
    """Compile *predicate* over the record's columns.

    Raises:
        NotCompilableError: for a predicate that has no Spark form.
    """
    holds = getattr(predicate, "holds", None)
    if holds is None:
        raise NotCompilableError(predicate, f"{type(predicate).__name__} has no method 'holds'")
    return Test(holds(record))


@compile_predicate.register
def _(predicate: TopicNameMatches, record: Record) -> Test:
    return Test(matches_whole(record.topic, predicate.pattern))


@compile_predicate.register
def _(predicate: HasHeaderKey, record: Record) -> Test:
    return Test(F.array_contains(record.headers.getField("key"), predicate.name))


@compile_predicate.register
def _(_predicate: RecordIsTombstone, record: Record) -> Test:
    return Test(~record.value.present)


@compile_predicate.register
def _(predicate: SubjectMatches, record: Record) -> Test:
    return Test(subject_matches(predicate.subject, record.topic))


@compile_predicate.register
def _(predicate: Condition, record: Record) -> Test:
    return Test(condition_holds(predicate.tree, record))


def condition_holds(condition: ConditionTree, record: Record) -> Column:
    """A boolean column that is never null: whether the condition is true of the record."""
    keys = {leaf.key for leaf in leaves(condition)}
    return to_column(condition, {key: text_of(operand(key, record)) for key in sorted(keys)})


def operand(key: str, record: Record) -> Typed:
    """What a leaf of that key looks at: the topic, the key, a path into key or value, else a header."""
    if key in ("topic", "subject"):
        return Typed(record.topic, Schema("string"))
    if key in ("key", "value"):
        return record.key if key == "key" else record.value
    head, _, rest = key.partition(".")
    if rest and head in ("key", "value"):
        found = record.key if head == "key" else record.value
        for step in parse_path(rest):
            found = _inside(found, step)
        return found
    return Typed(last_text(record, key), Schema("string"))


_MISSING = Schema("string", optional=True)


def _inside(found: Typed, name: str) -> Typed:
    """The field of that name; a column of nulls where there can be none."""
    if found.schema is None or found.schema.type == "variant":
        return Typed(found.get(name), None)
    if found.schema.type == "map" and found.schema.keys and found.schema.keys.type == "string":
        return Typed(F.try_element_at(found.column, F.lit(name)), found.schema.values)
    if found.schema.field(name) is None:
        return Typed(F.lit(None).cast("string"), _MISSING)
    return found.field(name, defaults=False)
