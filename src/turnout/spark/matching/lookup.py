"""A record's probes, the entries that they lead to, and which of these are true: as one expression."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.conditions.anchor import GRAM, Kind
from turnout.spark.conditions import Features, folded, holds, lexemes
from turnout.spark.matching.access import Part
from turnout.spark.matching.table import Layout

__all__ = ["WANTED", "wanted_by"]


WANTED = "array<struct<subscription_id string, destination string>>"
"""The type of what `wanted_by` gives."""


def wanted_by(metadata: Column, layout: Layout, *, prefix: str = "", gone: Column | None = None) -> Column:
    """Who wants the record: an array of (subscription_id, destination), empty where nobody does.

    Args:
        metadata: the array of the record's texts, in the order of the layout's keys; the columns of the table stand
            beside it.
        layout: of the table.
        prefix: what the names of the table's columns begin with.
        gone: ids of subscriptions that do not count any more.
    """
    entries = F.col(f"{prefix}entries")
    candidates = F.concat(F.col(f"{prefix}always"), _candidates(metadata, layout, F.col(f"{prefix}slots")))

    def is_true(number: Column) -> Column:
        entry = F.get(entries, number)
        true = _is_true(entry, metadata, layout.features)
        return true if gone is None else true & ~F.array_contains(gone, entry["id"])

    def deliveries(number: Column) -> Column:
        entry = F.get(entries, number)
        return F.transform(
            entry["destinations"],
            lambda destination: F.struct(entry["id"].alias("subscription_id"), destination.alias("destination")),
        )

    return F.flatten(F.transform(F.filter(candidates, is_true), deliveries)).cast(WANTED)


def _candidates(metadata: Column, layout: Layout, slots: Column) -> Column:
    """The numbers of all entries that one of the record's probes leads to.

    A slot that is asked once for a record is written out, without an array of probes between.
    """
    none = F.array().cast("array<int>")
    found: list[Column] = []
    for number, slot in enumerate(layout.slots):
        buckets = F.get(slots, F.lit(number))
        values = [_value(metadata, layout, part) for part in slot]
        kind = slot[0][1]
        if len(slot) == 2:
            first, second = (_one(kind, value) for (_, kind), value in zip(slot, values, strict=True))
            found.append(F.coalesce(_entries_under(buckets, _pair_text(first, second)), none))
        elif not kind.lexeme and kind.op != "~":
            found.append(F.coalesce(_entries_under(buckets, _one(kind, values[0])), none))
        else:
            texts = F.transform(lexemes(values[0]), partial(_one, kind)) if kind.lexeme else _grams(values[0])
            each = F.transform(F.array_distinct(texts), partial(_found_or, none, buckets))
            found.append(F.coalesce(F.flatten(each), none))
    return F.concat(*found) if found else none


def _value(metadata: Column, layout: Layout, part: Part) -> Column:
    key, kind = part
    value = F.get(metadata, F.lit(layout.keys.index(key)))
    return folded(value) if kind.fold else value


def _pair_text(first: Column, second: Column) -> Column:
    """As `turnout.spark.matching.access.pair_text`; null where one of them is."""
    return F.concat(F.char_length(first).cast("string"), F.lit(":"), first, second)


def _entries_under(buckets: Column, text: Column) -> Column:
    """What a slot's buckets have for a text; null for nothing, and where the record has no such text."""
    place = (F.crc32(text.cast("binary")) % F.size(buckets)).cast("int")
    return F.try_element_at(F.get(buckets, place), text)


def _found_or(none: Column, buckets: Column, text: Column) -> Column:
    return F.coalesce(_entries_under(buckets, text), none)


def _one(kind: Kind, text: Column) -> Column:
    match kind.op:
        case "=":
            return text
        case "^":
            return F.substring(text, 1, kind.length)
        case "$":
            return F.right(text, F.lit(kind.length))
    return F.when(text.isNotNull(), F.lit(""))


def _grams(text: Column) -> Column:
    """Each run of three characters; none where the text is shorter."""
    starts = F.sequence(F.lit(1), F.length(text) - (GRAM - 1))
    grams = F.transform(starts, lambda start: F.substring(text, start, F.lit(GRAM)))
    return F.when(F.length(text) >= GRAM, grams)


def _is_true(entry: Column, metadata: Column, features: Features) -> Column:
    if not features.ops:
        return F.lit(True)

    def check_holds(check: Column) -> Column:
        return holds(check, F.get(metadata, check["k"]), features)

    true = F.forall(entry["checks"], check_holds)
    if not features.trees:
        return true
    return true & (entry["tree"].isNull() | _tree_is_true(entry["tree"], check_holds))


def _tree_is_true(tree: Column, check_holds: Callable[[Column], Column]) -> Column:
    def counted(truth: Column, node: Column) -> Column:
        true = F.size(F.filter(node["children"], lambda child: F.get(truth, child)))
        holds_here = true.between(node["low"], node["high"]) != node["negated"]
        return F.concat(truth, F.array(holds_here)).cast("array<boolean>")

    begin = F.transform(tree["checks"], check_holds).cast("array<boolean>")
    return F.coalesce(
        F.aggregate(tree["nodes"], begin, counted, lambda truth: F.try_element_at(truth, F.lit(-1))), F.lit(False)
    )
