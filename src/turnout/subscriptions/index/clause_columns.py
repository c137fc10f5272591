"""Clauses of a segment as columns: operations, sets, limits, tests and trees, with the final numbers of literals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import EQUAL, MANY
from turnout.subscriptions.index.buckets import Indices, Ints, Longs, arranged, mixed
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.facts import encoded_all
from turnout.subscriptions.index.numbered_literals import NumberedLiterals
from turnout.subscriptions.index.text_arrays import Texts


class ClauseColumns(NamedTuple):
    """Columns of all clauses; see `turnout.subscriptions.index.arrays.Arrays` for those of the same names.

    Attributes:
        op: by clause: its operation.
        a: see `turnout.subscriptions.index.arrays.EQUAL` and the others.
        b: see there.
        limits: by limits: the least and the greatest number.
    """

    op: Indices
    a: Indices
    b: Indices
    set_key: Longs
    set_start: NDArray[np.uint32]
    set_bits: NDArray[np.uint64]
    limits: NDArray[np.float64]
    test_form: NDArray[np.uint8]
    test_text: Texts
    test_last: Texts
    tree_at: Ints
    node_op: NDArray[np.uint8]
    node_a: Ints
    node_b: Ints
    node_parent: Ints
    node_depth: NDArray[np.uint8]


def clause_columns(clauses: Clauses, literals: NumberedLiterals) -> ClauseColumns:
    """Return the columns of the clauses."""
    trees = clauses.trees
    return ClauseColumns(
        *_final_clauses(clauses, literals),
        *_sets(clauses, literals),
        np.array(clauses.limits, np.float64).reshape(-1, 2),
        np.array([form for form, _, _ in clauses.tests], np.uint8),
        Texts.of(encoded_all([text for _, text, _ in clauses.tests])),
        Texts.of(encoded_all([last for _, _, last in clauses.tests])),
        np.array(trees.at, np.int32),
        *_final_nodes(clauses, literals),
        np.array(trees.parent, np.int32),
        np.array(trees.depth, np.uint8),
    )


def _final_clauses(clauses: Clauses, literals: NumberedLiterals) -> tuple[Indices, Indices, Indices]:
    op, a, b = (np.array(column, np.int64) for column in (clauses.op, clauses.a, clauses.b))
    by_literal = (op == EQUAL) | (op == MANY)
    b[by_literal] = literals.of(b[by_literal])
    return op, a, b


def _final_nodes(clauses: Clauses, literals: NumberedLiterals) -> tuple[NDArray[np.uint8], Ints, Ints]:
    trees = clauses.trees
    op, b = np.array(trees.op, np.uint8), np.array(trees.b, np.int64)
    by_literal = (op >> 1 == EQUAL) | (op >> 1 == MANY)
    b[by_literal] = literals.of(b[by_literal])
    return op, np.array(trees.a, np.int32), b.astype(np.int32)


def _sets(clauses: Clauses, literals: NumberedLiterals) -> tuple[Longs, NDArray[np.uint32], NDArray[np.uint64]]:
    sizes = np.array([len(members) for members in clauses.sets], np.int64)
    members = literals.of(np.array([literal for members in clauses.sets for literal in members], np.int64))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    keys = (owner << 32) | members
    order, start = arranged(mixed(keys))
    bits = np.zeros(len(sizes), np.uint64)
    np.bitwise_or.at(bits, owner, np.uint64(1) << (members & 63).astype(np.uint64))
    return keys.take(order), start, bits
