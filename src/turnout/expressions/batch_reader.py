"""Reading of the records of a batch for expressions, by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.expressions.inputs import Inputs, wanted_of
from turnout.records import Batch, Block, Schema


class BatchReader:
    """Reads what expressions name of each record of a batch.

    Args:
        batch: the batch.
        paths: paths in the expressions.
        rows: rows of the records; None for all.
    """

    def __init__(self, batch: Batch, paths: Iterable[tuple[str, ...]], rows: NDArray[np.int64] | None = None) -> None:
        by_root: dict[str, set[tuple[str, ...]]] = {}
        for path in paths:
            by_root.setdefault(path[0], set()).add(path[1:])
        self.roots = by_root
        self.wanted = {root: wanted_of(inside) for root, inside in by_root.items()}
        self.sides = {
            root: _whole_values(side, by_root[root], rows)
            for root, side in (("key", batch.key), ("value", batch.value))
            if root in by_root
        }
        address: dict[str, Sequence[Any] | NDArray[np.int64] | None] = {
            "topic": batch.topics,
            "partition": batch.partitions,
            "offset": batch.offsets,
            "timestamp": batch.timestamps,
        }
        self.address = {name: column for name, column in address.items() if name in by_root and column is not None}
        named = by_root.get("headers", set())
        names = batch.headers.names() if () in named else {path[0] for path in named}
        self.headers = {name: batch.headers.last(name) for name in names}

    def inputs(self, row: int) -> Inputs:
        """Return the inputs of the expressions for a row.

        Raises:
            RecordError: they cannot see it.
        """
        inputs = Inputs()
        for root, (schemas, values) in self.sides.items():
            inputs.add(root, values.get(row), schemas.get(row), self.wanted[root])
        if "headers" in self.roots:
            found = {name: texts[row] for name, texts in self.headers.items()}
            inputs.add("headers", {name: text for name, text in found.items() if text is not None})
        for name, column in self.address.items():
            part = column[row]
            if part is not None:
                inputs.add(name, part if isinstance(part, str) else int(part))
        return inputs


def _whole_values(
    side: Sequence[Block], paths: set[tuple[str, ...]], chosen: NDArray[np.int64] | None
) -> tuple[dict[int, Schema | None], dict[int, Any]]:
    """Return the schema and the value of each chosen row, of objects only the fields that are named."""
    schemas: dict[int, Schema | None] = {}
    values: dict[int, Any] = {}
    for block in side:
        if chosen is not None and len(chosen) < len(block):
            block = block.take(np.flatnonzero(np.isin(block.rows, chosen)))
        if block.kind == "object" and () not in paths:
            names = [name for name in dict.fromkeys(path[0] for path in sorted(paths)) if name in block.columns]
            block = block.with_columns(block.schema, {name: block.columns[name] for name in names})
        rows = block.rows.tolist()
        values.update(zip(rows, block.whole(), strict=True))
        schemas.update(dict.fromkeys(rows, block.schema))
    return schemas, values
