"""Construction of a segment: literals in the order of their hashes, entries in that of literals, and checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import Arrays, Head
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.columns import (
    ClauseColumns,
    EntryColumns,
    NumberedLiterals,
    SubscriptionColumns,
    SubscriptionTable,
    clause_columns,
    entry_columns,
)
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.index.postings import SecondaryKeys, entries_of, rows_of_conditions
from turnout.subscriptions.index.ranges import Intervals
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.model import Subscription

_NO_CUTS = np.zeros(0, np.float64)


def build(subscriptions: Iterable[Subscription], costs: Costs) -> Segment:
    """Build a segment of these subscriptions in memory, without disabled ones; their ids have to be distinct."""
    clauses, table = Clauses(), SubscriptionTable()
    entries, prices = entries_of(rows_of_conditions(table.conditions(enabled(subscriptions)), clauses), costs)
    ways = SecondaryKeys(entries, prices, clauses)
    literals = NumberedLiterals(clauses, ways, prices)
    by_clause = clause_columns(clauses, literals)
    by_entry = entry_columns(ways, literals, by_clause.op)
    keys, facts = tuple(clauses.literals.keys), tuple(clauses.literals.facts)
    head = Head(keys, facts, literals.first_facts, by_entry.always, by_entry.paired, clauses.overlapping)
    arrays = _arrays(literals, by_clause, by_entry, table.columns(), _cuts(prices.intervals, len(keys)))
    return Segment(head, arrays, literals.uses)


def enabled(subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
    """Yield the subscriptions that are not disabled."""
    return (subscription for subscription in subscriptions if subscription.enabled)


def _cuts(intervals: Mapping[int, Intervals], keys: int) -> list[NDArray[np.float64]]:
    """Return the cuts of each key."""
    return [intervals[key].cuts if key in intervals else _NO_CUTS for key in range(keys)]


def _arrays(
    literals: NumberedLiterals,
    clauses: ClauseColumns,
    entries: EntryColumns,
    table: SubscriptionColumns,
    cuts: list[NDArray[np.float64]],
) -> Arrays:
    clause, is_negated = entries.check_rows >> 1, entries.check_rows & 1
    # A line for each array, in the order in which `Arrays` describes them: divided, it would be a table in pieces.
    return Arrays(
        literal_hash=literals.hash,
        literal_fact=literals.fact,
        literal_start=literals.start,
        literal_text=literals.text,
        entries_at=entries.entries_at,
        ways_at=entries.ways_at,
        way_fact=entries.way_fact,
        pair_key=entries.pair_key,
        pair_start=entries.pair_start,
        entry_subscription=entries.subscription,
        entry_program=entries.program,
        checks_at=entries.checks_at,
        check_op=(clauses.op.take(clause) * 2 + is_negated).astype(np.uint8),
        check_a=clauses.a.take(clause).astype(np.int32),
        check_b=clauses.b.take(clause).astype(np.int32),
        set_key=clauses.set_key,
        set_start=clauses.set_start,
        set_bits=clauses.set_bits,
        limit_low=np.ascontiguousarray(clauses.limits[:, 0]),
        limit_high=np.ascontiguousarray(clauses.limits[:, 1]),
        cuts_at=np.cumsum([0, *map(len, cuts)]).astype(np.int32),
        cuts=np.concatenate([_NO_CUTS, *cuts]),
        test_form=clauses.test_form,
        test_text=clauses.test_text,
        test_last=clauses.test_last,
        tree_at=clauses.tree_at,
        node_op=clauses.node_op,
        node_a=clauses.node_a,
        node_b=clauses.node_b,
        node_parent=clauses.node_parent,
        node_depth=clauses.node_depth,
        ids=table.ids,
        destinations_at=table.destinations_at,
        destination=table.destination,
        destinations=table.destinations,
        expires_record=table.expires_record,
        expires_wall=table.expires_wall,
        project=table.project,
        projects=table.projects,
    )
