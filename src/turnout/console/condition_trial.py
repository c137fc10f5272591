"""Trial of a condition on a route's recent records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.conditions import Condition, leaves
from turnout.engine import Program
from turnout.engine.message_ids import origins
from turnout.engine.metadata import texts_of
from turnout.epoch import seconds_of_millis
from turnout.history.masking import check_condition
from turnout.multivalued import readable_texts
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.server.errors import ConflictError
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index

_SHOWN_HITS = 10


@dataclass(frozen=True, slots=True)
class Hit:
    """Record that matches the condition: its position, and the metadata that was tested."""

    position: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class Trial:
    """Matches of a condition among recent records.

    Attributes:
        records: number of tested records.
        dropped: number of records that were filtered, lost or failed before they were matched.
        matched: number of records that match.
        hits: the last of them.
        times: times of the tested records that have one, in seconds since the epoch.
        matched_times: likewise of those that match.
    """

    records: int
    dropped: int
    matched: int
    hits: tuple[Hit, ...]
    times: Sequence[float] = ()
    matched_times: Sequence[float] = ()


def trial_of(route: Route, condition: Condition, count: int, *, masked: bool = False) -> Trial:
    """Try a condition on the last *count* sequences of each stream or partition of a route, after its transforms.

    Raises:
        ConfigError: with *masked*, the condition tests masked fields.
        ConflictError: the source keeps no history.
        StreamError: a stream is not there.
        ConnectionLostError: the server is away.
    """
    if not route.source.keeps_history:
        raise ConflictError(f"route {route.name} does not read a stream or topics: it has no last records to try")
    if masked:
        check_condition(route, len(route.chain.stages), condition)
    program = Program.of(route)
    index = Index.of([Subscription(["trial"], condition, {}, "trial")])
    keys = sorted({leaf.key for leaf in leaves(condition)})
    records = dropped = matched = 0
    hits: list[Hit] = []
    times: list[float] = []
    matched_times: list[float] = []
    for batch in adapter_of(route.source).last_records(count):
        transformed = program.transformed(batch)
        alive = transformed.alive
        columns = program.metadata.columns(transformed, alive, keys)
        rows = index.match(columns, len(alive)).rows.tolist()
        records, dropped, matched = records + len(batch), dropped + len(batch) - len(alive), matched + len(rows)
        # Of the whole batch, whose first and last record bound the picture.
        stored = [
            None if at is None else seconds_of_millis(at)
            for at in transformed.by_row(transformed.timestamps, np.arange(len(batch)))
        ]
        times += [at for at in stored if at is not None]
        matched_times += [at for at in (stored[int(alive[row])] for row in rows) if at is not None]
        record_origins = origins(batch)
        for row in rows[-_SHOWN_HITS:]:
            at = int(alive[row])
            hits.append(Hit(str(record_origins[at]), readable_texts(texts_of(columns, row))))
    return Trial(records, dropped, matched, tuple(reversed(hits[-_SHOWN_HITS:])), times, matched_times)
