"""The log of failures that ``errors.log.enable`` asks for: a few of each micro-batch in full, the others counted.

Nothing is read twice and no row goes through Python for it. While the micro-batch is written, Spark keeps the first
failures that go by and counts them all (an observation); the driver writes them to the log when it has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.transforms.policy import ErrorPolicy

__all__ = ["IN_FULL", "log_failures", "observed_failures"]

IN_FULL: Final = 20
"""How many failures of one micro-batch are logged one by one, those with the smallest offsets."""

_LONGEST: Final = 1000
"""How many characters of a key or value are logged."""

_FAILURES, _COUNT = "_failures", "_failures_count"
_PLACE = ("topic", "partition", "offset", "timestamp")

_log = logging.getLogger("turnout.errors")


def observed_failures(policy: ErrorPolicy, error: Column, where: Column, record: Mapping[str, Column]) -> list[Column]:
    """The aggregates to observe; none where the policy does not ask for a log.

    Args:
        policy: ``errors.log.enable`` and ``errors.log.include.messages``.
        error: the chain's error, null for a record without one.
        where: true on one row of each record.
        record: the consumed record: ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``, ``value``.
    """
    if not policy.log:
        return []
    failed = F.coalesce(where & error.isNotNull(), F.lit(False))
    shown = {name: record[name].cast("string") for name in _PLACE}
    shown |= {name: error[name] for name in ("stage", "class_name", "exception", "message")}
    if policy.log_messages:
        shown |= {name: F.left(record[name].cast("string"), F.lit(_LONGEST)) for name in ("key", "value")}
    one = F.struct(*[column.alias(name) for name, column in shown.items()])
    order = F.when(failed, F.coalesce(record["offset"].cast("bigint"), F.lit(0)))
    return [
        F.min_by(F.when(failed, one), order, IN_FULL).alias(_FAILURES),
        F.count_if(failed).alias(_COUNT),
    ]


def log_failures(metrics: Mapping[str, Any], *, route: str) -> None:
    """Write what was observed to the logger ``turnout.errors``, at the level ERROR."""
    count = metrics.get(_COUNT) or 0
    failures = metrics.get(_FAILURES) or []
    for failure in failures:
        # An Observation gives rows, the report of a query what JSON has made of them.
        values = failure if isinstance(failure, Mapping) else failure.asDict()
        _log.error("route %s: %s", route, _sentence(values))
    if count > len(failures):
        _log.error("route %s: %d more records failed in this micro-batch", route, count - len(failures))


def _sentence(failure: Mapping[str, Any]) -> str:
    """What Connect's log reporter says of one failure."""
    place = ", ".join(f"{name}={failure[name]!r}" for name in _PLACE if failure[name] is not None)
    said = (
        f"Error encountered. Executing stage '{failure['stage']}' with class '{failure['class_name']}', "
        f"where consumed record is {{{place}}}: {failure['exception']}: {failure['message']}"
    )
    if "value" not in failure:
        return said
    return f"{said} (key={failure['key']!r}, value={failure['value']!r})"
