"""Search of dead letters by a condition over the metadata of their records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from turnout.codecs import Codec, codec_of
from turnout.codecs.plain import Raw
from turnout.conditions import Condition, parse
from turnout.engine.reading import batch_of
from turnout.engine.replay import Where
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.history.dead_letters import DeadLetter
from turnout.history.masked_views import check_condition
from turnout.records import ALIVE
from turnout.records.types import RowIds
from turnout.routes import Route

_BATCH_LETTERS: Final = 1_000
_WHOLE: Final = {"value.*": "value.*", "key.*": "key.*"}
"""Paths of any record: what a transform would have renamed or computed is not in the metadata of one that failed."""


def meeting(
    route: Route, letters: Iterable[DeadLetter], where: str | Condition, *, strict: bool = False
) -> list[DeadLetter]:
    """Return the letters whose records, as read from the source, match a condition.

    A record that cannot be decoded has its topic and its headers, and neither key nor value.

    Args:
        route: whose letters they are.
        letters: of `turnout.history.dead_letters.read`.
        where: the condition, over the metadata that the route's subscriptions see, and any path: ``value.city:Oulu``.
        strict: refuse a condition on what the route masks, which would tell what it is.

    Raises:
        ConditionError: *where* cannot be read.
        ConfigError: *strict*, and it is on what is masked; it has a name that is neither listed nor a letter's header.
    """
    condition = parse(where) if isinstance(where, str) else where
    paths = {**_WHOLE, **(route.subscriptions.metadata if route.subscriptions else {})}
    if strict:
        check_condition(route, 0, condition, paths)
    selected = Where(condition, paths)
    codecs = codec_of(route.key), codec_of(route.value)
    found: list[DeadLetter] = []
    waiting = iter(letters)
    while part := list(islice(waiting, _BATCH_LETTERS)):
        rows = _rows(selected, [letter.record for letter in part], codecs)
        found += [part[row] for row in rows]
    selected.check_seen()
    return found


def _rows(where: Where, records: Sequence[SampleRecord], codecs: tuple[Codec, Codec]) -> list[int]:
    """Return the numbers of the records that are chosen, in order."""
    rows, broken = _chosen(where, records, codecs)
    found: list[int] = rows.tolist()
    if not len(broken):
        return found
    bare = [replace(records[row], key=None, value=None) for row in broken.tolist()]
    others, _ = _chosen(where, bare, (Raw(), Raw()))
    return sorted([*found, *broken[others].tolist()])


def _chosen(where: Where, records: Sequence[SampleRecord], codecs: tuple[Codec, Codec]) -> tuple[RowIds, RowIds]:
    """Return the rows that are chosen, and those that cannot be decoded."""
    batch, _ = batch_of(record_batch(records), *codecs)
    alive = batch.outcomes == ALIVE
    return where.chosen(batch, np.flatnonzero(alive)), np.flatnonzero(~alive)
