"""``turnout.subscriptions.v1.Matching``: which subscriptions want a message, and following changes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import grpc

from turnout.conditions import Condition, Explanation, explain
from turnout.conditions.text import format_condition
from turnout.rpc.calls import RefusedError
from turnout.rpc.convert import data_to
from turnout.rpc.parts import changes_parts
from turnout.rpc.v1 import matching_pb2 as pb
from turnout.rpc.v1.matching_pb2_grpc import MatchingServicer as _Servicer
from turnout.subscriptions.live import LiveMatcher
from turnout.subscriptions.service import SubscriptionService

__all__ = ["MatchingServicer"]


class MatchingServicer(_Servicer):
    """Matches against an index that keeps up with the store.

    Args:
        service: for the subscriptions that are explained.
        live: the index.
        max_streams: streams that may be open at once; each holds a thread, and other calls need some too.
        stopping: set when the server shuts down, so that those who watch are let go.
    """

    def __init__(
        self, service: SubscriptionService, live: LiveMatcher, *, max_streams: int, stopping: threading.Event
    ) -> None:
        self._service = service
        self._live = live
        self._streams = threading.BoundedSemaphore(max_streams)
        self._stopping = stopping

    def Match(self, request: pb.MatchRequest, context: Any) -> pb.MatchResponse:  # noqa: ARG002, N802
        """One message."""
        metadata = dict(request.metadata)
        found = self._live.match(metadata)
        response = pb.MatchResponse(revision=self._live.revision, tag=request.tag)
        for match in found:
            one = response.matches.add(
                subscription_id=match.subscription_id,
                destinations=match.destinations,
                condition_ids=match.leaf_ids,
            )
            if request.explain:
                condition = self._service.read(match.subscription_id).condition
                one.explanation.CopyFrom(_explanation(condition, metadata))
        return response

    def MatchStream(  # noqa: N802
        self, request_iterator: Iterable[pb.MatchRequest], context: Any
    ) -> Iterator[pb.MatchResponse]:
        """Message after message."""
        with _Place(self._streams):
            for request in request_iterator:
                yield self.Match(request, context)

    def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:  # noqa: ARG002, N802
        """Why, down to the leaf."""
        subscription = self._service.read(request.subscription_id)
        explanation = _explanation(subscription.condition, dict(request.metadata))
        return pb.ExplainResponse(
            matched=explanation.holds,
            explanation=explanation,
            condition=data_to(subscription).route.condition,
        )

    def Watch(self, request: pb.WatchRequest, context: Any) -> Iterator[pb.Changes]:  # noqa: N802
        """Changes as they come."""

        def going() -> bool:
            return context.is_active() and not self._stopping.is_set()

        with _Place(self._streams):
            for changes in self._live.follow(request.since, going=going):
                yield from changes_parts(changes)
        if self._stopping.is_set():
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, "the server is shutting down: watch again from here")


class _Place:
    """One of the places for streams, for as long as the block lasts."""

    def __init__(self, places: threading.BoundedSemaphore) -> None:
        self._places = places

    def __enter__(self) -> None:
        if not self._places.acquire(blocking=False):
            raise RefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams are open; API_WORKERS sets how many may be"
            )

    def __exit__(self, *_: object) -> None:
        self._places.release()


def _explanation(condition: Condition, metadata: dict[str, str]) -> pb.Explanation:
    return _message(explain(condition, metadata))


def _message(told: Explanation) -> pb.Explanation:
    return pb.Explanation(
        condition_id=told.condition.id,
        text=format_condition(told.condition),
        holds=told.holds,
        reason=told.reason,
        children=map(_message, told.children),
    )
