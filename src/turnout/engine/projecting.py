"""Bodies of messages that subscriptions compute from the record: each expression once for each record of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from turnout.codecs.plain_json import SchemalessJson
from turnout.engine.deliveries import NO_SUBSCRIPTION, OutgoingDeliveries
from turnout.engine.writing import encode_block
from turnout.errors import RecordError
from turnout.expressions import BatchReader, Expression, ExpressionError
from turnout.records import Batch, group
from turnout.records.block import rows_of
from turnout.records.types import DynamicValue, RowIds

if TYPE_CHECKING:
    from turnout.subscriptions.index import Index

_JSON = SchemalessJson()


@dataclass(frozen=True, slots=True)
class Projections:
    """Bodies of a batch that are not the values of their records.

    Attributes:
        rows: rows of the record of each.
        values: values of each; None is a tombstone.
    """

    rows: Sequence[int] = ()
    values: Sequence[bytes | None] = ()


def project(
    records: Batch, deliveries: OutgoingDeliveries, index: Index | None
) -> tuple[OutgoingDeliveries, Projections]:
    """Return the deliveries with the numbers of their bodies, and the bodies; a failed projection gets a problem.

    Without projections the deliveries are unchanged.

    Args:
        records: records of the batch, as transformed and mapped.
        deliveries: deliveries of the batch.
        index: the subscriptions that they were matched with.

    Raises:
        MissingExtraError: there are projections, and no ``cel-expr-python`` to evaluate them.
    """
    if index is None or not index.projects or not len(deliveries):
        return deliveries, Projections()
    own = np.flatnonzero(deliveries.subscriptions != NO_SUBSCRIPTION)
    own = own[[number not in deliveries.problems for number in own.tolist()]]
    numbers = np.full(len(deliveries), -1, np.int64)
    rows: list[int] = []
    values: list[bytes | None] = []
    problems = dict(deliveries.problems)
    for text, indices in index.projections(deliveries.subscriptions[own]):
        own_indices = own[indices]
        distinct, codes = np.unique(deliveries.rows[own_indices], return_inverse=True)
        bodies, errors = bodies_of(Expression(text), records, distinct)
        numbers[own_indices] = codes + len(rows)
        rows += distinct.tolist()
        values += bodies
        if errors:
            wrong = (
                (number, errors.get(code)) for number, code in zip(own_indices.tolist(), codes.tolist(), strict=True)
            )
            problems |= {number: f"has no message by its projection: {error}" for number, error in wrong if error}
    return replace(deliveries, problems=problems, bodies=numbers if rows else None), Projections(rows, values)


def bodies_of(
    expression: Expression, records: Batch, rows: RowIds
) -> tuple[list[bytes | None], dict[int, RecordError]]:
    """Return the result of an expression for each of some records, and index → error for the others.

    A text is its characters in UTF-8, bytes are themselves, null is a tombstone, anything else is JSON.
    """
    errors: dict[int, RecordError] = {}
    found: list[DynamicValue] = []
    try:
        reader = BatchReader(records, expression.references.paths, rows)
        for number, row in enumerate(rows.tolist()):
            try:
                found.append(expression.evaluate(reader.inputs(row)))
            except RecordError as error:
                errors[number] = error
                found.append(None)
    except ExpressionError as error:
        # Another version of turnout may have stored it.
        return [None] * len(rows), dict.fromkeys(range(len(rows)), RecordError(str(error)))
    bodies: list[bytes | None] = [
        value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None for value in found
    ]
    others = [number for number, value in enumerate(found) if value is not None and not isinstance(value, str | bytes)]
    for block in group(rows_of(len(others)), None, [found[number] for number in others]):
        encoded, wrong = encode_block(records, _JSON, block)
        for index, (number, body) in enumerate(zip(block.rows.tolist(), encoded, strict=True)):
            bodies[others[number]] = body
            if index in wrong:
                errors[others[number]] = wrong[index]
    return bodies, errors
