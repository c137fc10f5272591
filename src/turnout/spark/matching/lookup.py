"""A record's probes, the entries that they lead to, which of these are true, and who wants the record then.

Each of these is an expression that loops over data, slots and checks alike: its code stays short whatever the index
holds, which the JVM's compiler, with a method as long as a route's, repays in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.conditions.check import COMPARISONS
from turnout.spark.conditions import passes
from turnout.spark.matching.table import OPS, Layout

__all__ = ["WANTED", "Tables"]

WANTED = "array<struct<subscription_id string, destination string>>"
"""The type of who wants a record."""


class Tables:
    """The columns of one table, or of a base and what is laid over it, beside a record.

    Entries of the second table have numbers below zero, so that all are verified by one expression.

    Args:
        base: the layout of the first table.
        over: the layout of the second, whose ``gone`` says which of the first table's subscriptions do not count.
        prefixes: what the names of each table's columns begin with.
    """

    def __init__(self, base: Layout, over: Layout | None, prefixes: tuple[str, str]) -> None:
        self.layouts = (base,) if over is None else (base, over)
        self.layout = base if over is None else base | over
        self.base, self.over = prefixes

    def candidates(self, facts: Mapping[str, Column]) -> Column:
        """The numbers of all entries that one of the record's probes leads to."""
        found = _candidates_in(facts, self.layouts[0], self.base)
        if len(self.layouts) == 1:
            return found
        others = _candidates_in(facts, self.layouts[1], self.over)
        return F.concat(found, F.transform(others, lambda number: -1 - number))

    def true(self, candidates: Column, facts: Mapping[str, Column]) -> Column:
        """Those of the candidates that are true of the record."""

        def is_true(number: Column) -> Column:
            entry = self._entry(number)
            true = _is_true(entry, facts, self.layout)
            if len(self.layouts) == 1:
                return true
            return true & ((number < 0) | ~F.array_contains(f"{self.over}gone", entry["id"]))

        return F.filter(candidates, is_true)

    def deliveries(self, true: Column) -> Column:
        """Who wants the record: an array of (subscription_id, destination), empty where nobody does."""

        def of_entry(number: Column) -> Column:
            entry = self._entry(number)
            return F.transform(
                entry["destinations"],
                lambda destination: F.struct(entry["id"].alias("subscription_id"), destination.alias("destination")),
            )

        return F.flatten(F.transform(true, of_entry)).cast(WANTED)

    def _entry(self, number: Column) -> Column:
        entry = F.get(f"{self.base}entries", number)
        if len(self.layouts) == 1:
            return entry
        return F.when(number >= 0, entry).otherwise(F.get(f"{self.over}entries", -1 - number))


def _candidates_in(facts: Mapping[str, Column], layout: Layout, prefix: str) -> Column:
    """The numbers of the entries in one table that one of the record's probes leads to."""
    none = F.array().cast("array<int>")

    def in_slot(slot: Column) -> Column:
        text = F.get(facts["parts"], slot["first"])
        if any(len(one) == 2 for one in layout.slots):
            pair = _pair_text(text, F.get(facts["parts"], slot["second"]))
            text = F.when(slot["second"] < 0, text).otherwise(pair)
        return F.coalesce(_entries_under(slot["buckets"], text), none)

    def in_many(slot: Column) -> Column:
        texts = F.coalesce(F.get(facts["many"], slot["first"]), F.array().cast("array<string>"))
        return F.flatten(F.transform(texts, lambda text: F.coalesce(_entries_under(slot["buckets"], text), none)))

    found = [F.col(f"{prefix}always")]
    if layout.slots:
        found.append(F.flatten(F.transform(f"{prefix}slots", in_slot)))
    if layout.many:
        found.append(F.flatten(F.transform(f"{prefix}many", in_many)))
    return F.concat(*found) if len(found) > 1 else found[0]


def _pair_text(first: Column, second: Column) -> Column:
    """As `turnout.spark.matching.access.pair_text`; null where one of them is."""
    return F.concat(F.char_length(first).cast("string"), F.lit(":"), first, second)


def _entries_under(buckets: Column, text: Column) -> Column:
    """What a slot's buckets have for a text; null for nothing, and where the record has no such text."""
    place = (F.crc32(text.cast("binary")) % F.size(buckets)).cast("int")
    return F.try_element_at(F.get(buckets, place), text)


def _is_true(entry: Column, facts: Mapping[str, Column], layout: Layout) -> Column:
    if not layout.ops and not layout.word_ops:
        return F.lit(True)

    def check_holds(check: Column) -> Column:
        return F.coalesce(_passes(check, facts, layout), F.lit(False)) != check["negated"]

    holds = F.forall(entry["checks"], check_holds)
    if not layout.trees:
        return holds
    # Few entries are trees. To work out every check, as these need, for the others too would double their cost.
    truth = F.transform(entry["checks"], check_holds).cast("array<boolean>")
    return F.when(F.size(entry["nodes"]) > 0, _tree_is_true(entry["nodes"], truth)).otherwise(holds)


def _passes(check: Column, facts: Mapping[str, Column], layout: Layout) -> Column:
    text = F.get(facts["texts"], check["k"])
    number = F.get(facts["numbers"], check["k"])
    whole = {op: passes(OPS[op], number if OPS[op] in COMPARISONS else text, check) for op in layout.ops}
    if not layout.word_ops:
        return _case(check["op"], whole)
    any_word = F.exists(
        F.get(facts["words"], check["k"]),
        lambda word: _case(check["op"], {op: passes(OPS[op], word, check) for op in layout.word_ops}),
    )
    return F.when(check["partial"], any_word).otherwise(_case(check["op"], whole)) if whole else any_word


def _case(op: Column, tests: Mapping[int, Column]) -> Column:
    """The test that *op* names; without a question where there is only one."""
    *others, (_, last) = tests.items()
    return reduce(lambda found, test: F.when(op == test[0], test[1]).otherwise(found), reversed(others), last)


def _tree_is_true(nodes: Column, begin: Column) -> Column:
    def counted(truth: Column, node: Column) -> Column:
        true = F.size(F.filter(node["children"], lambda child: F.get(truth, child)))
        holds_here = true.between(node["low"], node["high"]) != node["negated"]
        return F.concat(truth, F.array(holds_here)).cast("array<boolean>")

    return F.aggregate(nodes, begin, counted, lambda truth: F.try_element_at(truth, F.lit(-1)))
