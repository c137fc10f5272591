"""``turnout.subscriptions.v1.Matching``: matching messages to subscriptions, and following changes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import grpc

from turnout.base.clocks import milliseconds_now
from turnout.base.multivalued import Metadata
from turnout.conditions import Condition, Explanation, explain
from turnout.conditions.text import format_condition
from turnout.rpc.call_limits import MAX_EXPLAINED, MessageBounds, Slots, is_large
from turnout.rpc.caller import CallContext, Right
from turnout.rpc.convert import data_to, metadata_from
from turnout.rpc.message_parts import changes_parts
from turnout.rpc.status import RefusedError
from turnout.rpc.tenants import Tenants
from turnout.rpc.v1 import matching_pb2 as pb
from turnout.rpc.v1.matching_pb2_grpc import MatchingServicer as _Servicer
from turnout.subscriptions import Match as SubscriptionMatch


class MatchingServicer(_Servicer):
    """Matches against indexes that keep up with the store.

    Args:
        tenants: tenants with their indexes.
        bounds: limits of a message.
        streams: limit of the streams that are open at once; each holds a thread, and other calls need some too.
        max_large: large messages that may be matched at once, for the same reason.
        stopping: set when the server shuts down, so that watchers end.
    """

    def __init__(
        self,
        tenants: Tenants,
        *,
        bounds: MessageBounds,
        streams: Slots,
        max_large: int,
        stopping: threading.Event,
    ) -> None:
        self._tenants = tenants
        self._bounds = bounds
        self._streams = streams
        self._large = Slots(max_large, "too many large messages are being matched: try again, or send less of them")
        self._stopping = stopping

    def Match(self, request: pb.MatchRequest, context: CallContext) -> pb.MatchResponse:  # noqa: N802
        """Match one message."""
        return self._match(request, context, self._large)

    def _match(
        self, request: pb.MatchRequest, context: CallContext, large: AbstractContextManager[None]
    ) -> pb.MatchResponse:
        metadata = metadata_from(request)
        self._bounds.check(metadata)
        if request.explain:
            context.caller.demand(Right.READ)
        with large if is_large(metadata) else nullcontext():
            matches, revision = self._tenants.live(context.caller).match(metadata)
            response = pb.MatchResponse(revision=revision, tag=request.tag)
            for match in matches:
                response.matches.add(
                    subscription_id=match.subscription_id,
                    destinations=match.destinations,
                    condition_ids=match.leaf_ids,
                )
            if request.explain:
                self._explain(response, matches, metadata, context)
        return response

    def _explain(
        self,
        response: pb.MatchResponse,
        matches: list[SubscriptionMatch],
        metadata: Metadata,
        context: CallContext,
    ) -> None:
        """Add an explanation to each match."""
        if len(matches) > MAX_EXPLAINED:
            raise RefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{len(matches)} subscriptions match: at most {MAX_EXPLAINED} are explained at once",
            )
        service = self._tenants.service(context.caller)
        for written, match in zip(response.matches, matches, strict=True):
            condition = service.read(match.subscription_id).condition
            written.explanation.CopyFrom(_explanation(condition, metadata))

    def MatchStream(  # noqa: N802
        self, request_iterator: Iterable[pb.MatchRequest], context: CallContext
    ) -> Iterator[pb.MatchResponse]:
        """Match a stream of messages."""
        with self._streams:
            for request in request_iterator:
                yield self._match(request, context, self._large.patiently())

    def Explain(self, request: pb.ExplainRequest, context: CallContext) -> pb.ExplainResponse:  # noqa: N802
        """Explain the outcome for one subscription, down to the leaf."""
        metadata = metadata_from(request)
        self._bounds.check(metadata)
        subscription = self._tenants.service(context.caller).read(request.subscription_id)
        with self._large if is_large(metadata) else nullcontext():
            explanation = _explanation(subscription.condition, metadata)
        now = milliseconds_now()
        inactive = subscription.inactive(now, now)
        return pb.ExplainResponse(
            matched=explanation.holds and not inactive,
            inactive=inactive,
            explanation=explanation,
            condition=data_to(subscription).route.condition,
        )

    def Watch(self, request: pb.WatchRequest, context: CallContext) -> Iterator[pb.Changes]:  # noqa: N802
        """Stream changes as they occur."""

        def going() -> bool:
            return context.is_active() and not self._stopping.is_set()

        live = self._tenants.live(context.caller)
        with self._streams:
            for changes in live.follow(request.since, going=going):
                yield from changes_parts(changes)
        if self._stopping.is_set():
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, "the server is shutting down: watch again from here")


def _explanation(condition: Condition, metadata: Metadata) -> pb.Explanation:
    return _message(explain(condition, metadata))


def _message(explanation: Explanation) -> pb.Explanation:
    return pb.Explanation(
        condition_id=explanation.condition.id,
        text=format_condition(explanation.condition),
        holds=explanation.holds,
        reason=explanation.reason,
        children=map(_message, explanation.children),
    )
