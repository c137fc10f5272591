"""Reserved header names: only a route writes them, and those of incoming records are removed."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from turnout.base.deferred import pc
from turnout.engine.unfit_headers import without
from turnout.records.header_column import ARROW
from turnout.records.types import ArrowBatch

CONNECT_PREFIX: Final = "__connect.errors."
"""Prefix of Connect's context headers."""

TURNOUT_PREFIX: Final = "__turnout."
"""Prefix of the headers of turnout's own in dead letters."""

RESERVED: Final = ("turnout-", TURNOUT_PREFIX)
"""Prefixes of reserved names, in lower case: names are compared in any case, as clients and proxies rewrite it."""

_MAX_LISTED_HEADERS = 64
"""Number of headers up to which their distinct names are found by Python."""


def is_reserved(name: str) -> bool:
    """Return whether a header's name is reserved.

    >>> [is_reserved(name) for name in ("Turnout-Redriven", "__TURNOUT.subscription", "Turnout", "X-Turnout-Route")]
    [True, True, False, False]
    """
    return name.lower().startswith(RESERVED)


def without_reserved(batch: ArrowBatch) -> tuple[ArrowBatch, int]:
    """Return a record batch without reserved headers, and their number.

    Args:
        batch: as a source reads it; the same object is returned where nothing has to go.
    """
    index = batch.schema.get_field_index("headers")
    if index < 0 or pa.types.is_null(batch.schema.field(index).type):
        return batch, 0
    headers = batch.column(index)
    names = headers.flatten().field(0)
    # Few names are different: each of them is compared once.
    distinct = (names if len(names) <= _MAX_LISTED_HEADERS else pc.unique(names)).to_pylist()
    found = [name for name in dict.fromkeys(distinct) if name is not None and is_reserved(name)]
    if not found:
        return batch, 0
    bad = pc.is_in(names, value_set=pa.array(found, names.type)).to_numpy(zero_copy_only=False)
    headers_left = without(headers.cast(ARROW), bad)
    return batch.set_column(index, pa.field("headers", ARROW), headers_left), int(np.count_nonzero(bad))
