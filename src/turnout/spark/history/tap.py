"""Records of a range at one stage of a route, a row each."""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from turnout.conditions import Condition
from turnout.history.tap import Tapped, taps
from turnout.history.tap_watch import DELIVERED
from turnout.nats.wire.positions import Place
from turnout.routes import Route

_COLUMNS: Final = (
    "stream string, offset bigint, stage string, outcome string, before string, after string, reason string,"
    " messages array<struct<topic: string, id: string, subscription: string, dead_letter: boolean>>"
)


def tap(
    route: Route,
    spark: SparkSession,
    stage: str = DELIVERED,
    *,
    where: str | Condition | None = None,
    start: Place = "earliest",
    end: Place = "latest",
    limit: int | None = 1_000,
    unmasked: bool = False,
) -> DataFrame:
    """Return the records of a range at one stage of a route. Nothing is delivered, and a run is not disturbed.

    The driver reads them, and holds what it shows: *limit* bounds that, and `turnout.history.tap.taps` follows a
    stream that has no end.

    Args:
        route: whose way; its source is NATS.
        spark: makes the frame.
        stage: one of `turnout.history.tap.stages_of`.
        where: only records that meet this condition there, over the metadata as it is at that place.
        start: the first place.
        end: the place after the last record.
        limit: how many records at most; None for all.
        unmasked: show what the route masks.

    Returns:
        ``stream``, ``offset``, ``stage``, ``outcome``; ``before`` and ``after`` as JSON, null where there is none any
        more; ``reason`` of a failure; the ``messages`` of what is delivered.

    Raises:
        ConfigError: there is no such stage, or the source is not NATS.
        ConditionError: *where* cannot be read.
        TurnoutError: the server or the store cannot be reached.
    """
    shown = taps(route, stage, where=where, start=start, end=end, limit=limit, unmasked=unmasked)
    return spark.createDataFrame([_row(tapped) for tapped in shown], _COLUMNS)


def _row(tapped: Tapped) -> tuple[Any, ...]:
    messages = [(message.topic, message.id, message.subscription, message.dead_letter) for message in tapped.messages]
    sides = (None if side is None else json.dumps(side, ensure_ascii=False) for side in (tapped.before, tapped.after))
    return (tapped.stream, tapped.sequence, tapped.stage, tapped.outcome, *sides, tapped.reason, messages)
