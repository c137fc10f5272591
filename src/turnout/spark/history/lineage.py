"""Lineage of delivered messages: the record, subscription and route of each as a row."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from turnout.errors import ConfigError, Mistake
from turnout.history.lineage_lookup import walk
from turnout.routes import Route

if TYPE_CHECKING:
    from turnout.history.lineage_model import Lineage

_COLUMNS: Final = (
    "message string, topic string, timestamp timestamp, value string, route string, digest string, same boolean,"
    " `commit` string, revision bigint, source string, source_topic string, source_timestamp timestamp,"
    " source_value string, subscription string, condition string, destinations array<string>, still boolean,"
    " gaps array<string>"
)


def lineage(
    messages: str | Iterable[str] | DataFrame,
    spark: SparkSession,
    *,
    route: Route | None = None,
    server: str | None = None,
    git: bool = False,
) -> DataFrame:
    """Go back from delivered messages to the record, the subscription and the route that each was made from.

    The driver asks for each message by itself: this is for as many as somebody looks at. What cannot be found out is
    null, and the reason is among the ``gaps``.

    Args:
        messages: ``STREAM:SEQUENCE``, some of them, or a frame with the columns ``stream`` and ``offset``, as the
            format ``nats`` reads them with ``includeStream``.
        spark: makes the frame.
        route: that delivered them, as it is now.
        server: where the messages are; if not given, the servers of the route's NATS sinks.
        git: look for the commit that had the route's file as it was.

    Returns:
        In the order of the messages: ``message``, its ``topic``, ``timestamp`` and ``value``; ``route`` and ``digest``
        as its headers tell, whether the file is the ``same``, and the ``commit`` that had it; the ``revision`` of the
        subscriptions; ``source``, and that record's topic, timestamp and value; the ``subscription`` with its condition
        and destinations as they were, and whether it is ``still`` so; ``gaps``.

    Raises:
        ConfigError: the frame has no such columns.
        TurnoutError: as `turnout.history.lineage_lookup.walk`.
    """
    places = _places(messages)
    return spark.createDataFrame([_row(walk(place, route, server=server, git=git)) for place in places], _COLUMNS)


def _places(messages: str | Iterable[str] | DataFrame) -> list[str]:
    if isinstance(messages, str):
        return [messages]
    if isinstance(messages, DataFrame):
        missing = [name for name in ("stream", "offset") if name not in messages.columns]
        if missing:
            problem = f"the frame has no column {' and no '.join(missing)}; format nats adds stream with includeStream"
            raise ConfigError([Mistake("messages", problem)])
        return [f"{row['stream']}:{row['offset']}" for row in messages.select("stream", "offset").collect()]
    return list(messages)


def _row(walked: Lineage) -> tuple[Any, ...]:
    message, origin, known = walked.message, walked.made, walked.route
    record, subscription = walked.record, walked.subscription
    delivered = (message.place, message.topic, datetime.fromisoformat(message.timestamp), message.value)
    route = (origin.route, origin.digest, known.same, known.commit, origin.revision, origin.source)
    source = (None,) * 3 if record is None else (record.topic, datetime.fromisoformat(record.timestamp), record.value)
    whose = (
        (None,) * 4
        if subscription is None
        else (subscription.id, subscription.condition, list(subscription.destinations), subscription.still)
    )
    return (*delivered, *route, *source, *whose, list(walked.gaps))
