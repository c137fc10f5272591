"""Headers that no message gets: reserved names, which only a route writes, and those that NATS cannot carry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.deferred import pc
from turnout.nats.protocol.headers import NAME_RULE, UNFIT_NAME
from turnout.records import Failure
from turnout.records.header_column import ARROW
from turnout.records.headers import has_match
from turnout.records.types import ArrowArray, ArrowBatch
from turnout.routes import Route

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


_BREAK = re.compile(rb"[\r\n]")

_REMEMBERED = 10_000
_SHOWN_CHARACTERS = 80


class HeaderRules:
    """Header restrictions of a route's sinks; each name is checked once.

    Args:
        route: some of its sinks may have no such rules.
    """

    def __init__(self, route: Route) -> None:
        self._apply = any(sink.restricts_headers for sink in route.sinks.values())
        self._fit: set[str] = set()

    def unfit(self, headers: ArrowArray) -> NDArray[np.bool_] | None:
        """Return the mask of headers that cannot be written; None if all can.

        Args:
            headers: a list for each record, see `turnout.records.headers.ARROW`.
        """
        if not self._apply or not len(headers):
            return None
        pairs = headers.flatten()
        names, values = pairs.field(0), pairs.field(1)
        distinct = names if len(names) <= _MAX_LISTED_HEADERS else pc.unique(names)
        bad_names = self._bad_names(distinct.to_pylist())
        breaks = has_match(_BREAK, values)
        if not bad_names and not breaks:
            return None
        bad = pc.is_in(names, value_set=pa.array(bad_names, pa.string())).to_numpy(zero_copy_only=False)
        if breaks:
            broken = pc.fill_null(pc.match_substring_regex(values, "[\r\n]"), False)
            bad = bad | broken.to_numpy(zero_copy_only=False)
        return bad if bad.any() else None

    def fit(self, headers: Iterable[Iterable[tuple[str | None, bytes | None]]]) -> bool:
        """Return True if all headers of a few records can be written: see `unfit`."""
        if not self._apply:
            return True
        pairs = [pair for own in headers for pair in own]
        if any(value is not None and _BREAK.search(value) for _, value in pairs):
            return False
        return not pairs or not self._bad_names({name for name, _ in pairs})

    def _bad_names(self, names: Iterable[str | None]) -> list[str]:
        bad = []
        for name in names:
            if name is None or name in self._fit:
                continue
            if UNFIT_NAME.search(name):
                bad.append(name)
                continue
            if len(self._fit) >= _REMEMBERED:
                self._fit.clear()
            self._fit.add(name)
        return bad

    def failures(self, headers: ArrowArray, bad: NDArray[np.bool_]) -> dict[int, Failure]:
        """Return record index → failure of its first header that cannot be written."""
        owners = pc.list_parent_indices(headers).to_numpy()
        names = pc.struct_field(pc.list_flatten(headers), [0])
        return {int(owners[at]): _failure(names[at].as_py()) for at in reversed(np.flatnonzero(bad).tolist())}

    def left_out(self, headers: ArrowArray, bad: NDArray[np.bool_]) -> dict[int, str]:
        """Return record index → the names of its headers that cannot be written, as text."""
        owners = pc.list_parent_indices(headers).to_numpy()
        names = pc.struct_field(pc.list_flatten(headers), [0])
        texts: dict[int, str] = {}
        for at in np.flatnonzero(bad).tolist():
            owner, name = int(owners[at]), _escaped(names[at].as_py())
            texts[owner] = f"{texts[owner]}, {name}" if owner in texts else name
        return texts


def without(headers: ArrowArray, bad: NDArray[np.bool_]) -> ArrowArray:
    """Return the headers of each record without the bad ones."""
    valid = np.flatnonzero(~bad)
    owners = pc.list_parent_indices(headers).to_numpy()[valid]
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=len(headers)), out=offsets[1:])
    pairs = pc.list_flatten(headers).take(pa.array(valid))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=ARROW)


def _failure(name: str) -> Failure:
    problem = NAME_RULE if UNFIT_NAME.search(name) else "a value cannot hold a line break"
    return Failure(
        "HEADER_CONVERTER",
        "turnout.sink.nats",
        "org.apache.kafka.connect.errors.DataException",
        f"header {_escaped(name)} cannot be written to NATS: {problem}",
    )


def _escaped(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]!r}…"
