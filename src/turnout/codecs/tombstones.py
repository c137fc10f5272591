"""Separation of a batch's values from its tombstones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turnout.codecs.codec import Decoded
from turnout.records import Block, Positions, Schema


def with_tombstones(
    rows: Positions,
    texts: Sequence[bytes | None],
    read: Callable[[Positions, Sequence[Any]], Decoded],
    schema: Schema | None = None,
) -> Decoded:
    """Decode the texts with *read*, and return a null with this schema for each that is None."""
    if None not in texts:
        return read(rows, texts) if len(texts) else ([], {})
    absent = np.fromiter((text is None for text in texts), np.bool_, len(texts))
    nulls = Block(rows[absent], schema)
    there = [text for text in texts if text is not None]
    if not there:
        return [nulls], {}
    blocks, errors = read(rows[~absent], there)
    return [*blocks, nulls], errors
