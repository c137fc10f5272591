"""A record through a route's engine, without Spark and without delivering anything."""

from __future__ import annotations

from collections.abc import Mapping

from turnout.engine import Program
from turnout.engine.explain import RecordExplanation, explain
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import ConfigError, Mistake
from turnout.history.masking import masked_explanation
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.preflight import preflight_of_reachable
from turnout.server.errors import ConflictError
from turnout.server.matchers import Matchers, StoredSubscriptions
from turnout.server.route_entry import RouteEntry


def route_of(entry: RouteEntry) -> Route:
    """Return the route as it runs, or would.

    Raises:
        ConflictError: no version of it could ever be used.
    """
    if entry.version is None:
        raise ConflictError(f"route {entry.name} cannot be used: {entry.status.reason}")
    return entry.version.route


def batch_of(route: Route, record: Mapping[str, object]) -> ArrowBatch:
    """Return a given record as a batch, in the form of the route's source.

    Raises:
        ConfigError: it is no record; lists every mistake.
    """
    return record_batch([SampleRecord.of(record, stream=route.source.only_stream, route=route)])


def batch_at(route: Route, position: str) -> ArrowBatch:
    """Return a record of the route's source, by ``STREAM:SEQ`` or ``TOPIC:PARTITION:OFFSET``.

    A sequence alone suffices if the source has one stream.

    Raises:
        ConfigError: it is no such place.
        ConflictError: the source keeps no history.
        StreamError: there is no such message.
        ConnectionLostError: the server is away.
    """
    source = route.source
    if not source.keeps_history:
        raise ConflictError(f"route {route.name} does not read a stream: give the record itself")
    try:
        stream, sequence = source.message(position)
    except ValueError as wrong:
        raise ConfigError([Mistake("at", str(wrong))], what="bad place") from None
    return adapter_of(source).record_at(stream, sequence)


def explained(
    route: Route, batch: ArrowBatch, matchers: Matchers, *, asked: str | None = None, masked: bool = False
) -> RecordExplanation:
    """Explain the only record of a batch, matched with the route's current subscriptions.

    With *masked*, the route's masks apply to every part of it.

    Raises:
        SubscriptionNotFoundError: there is no subscription *asked*.
        StoreUnavailableError: the store is away.
    """
    live = matchers.of(route)
    reachable, notes = preflight_of_reachable(route)
    if live is None:
        explanation = explain(Program.of(reachable), batch, asked=asked, notes=notes)
    else:
        stored = StoredSubscriptions(live)
        explanation = explain(Program.of(reachable), batch, live.index(), stored, asked=asked, notes=notes)
    return masked_explanation(explanation, route) if masked else explanation
