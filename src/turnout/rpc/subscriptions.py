"""``subscriptions.Service``, the original's API, and ``turnout.subscriptions.v1.Matching``."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import grpc
from google.protobuf.empty_pb2 import Empty

from turnout.base.clocks import milliseconds_now
from turnout.base.multivalued import Metadata
from turnout.conditions import Condition, Explanation, explain
from turnout.conditions.text import format_condition
from turnout.errors import SubscriptionInvalidError
from turnout.rpc.caller import MAX_RESPONSE, CallContext, Right, Tenants
from turnout.rpc.convert import changes_parts, data_from, data_to, metadata_from, subscription_to, write_settings
from turnout.rpc.status import MAX_EXPLAINED, MAX_SEARCHED, MessageBounds, RefusedError, Slots, is_large
from turnout.rpc.v1 import matching_pb2
from turnout.rpc.v1 import subscriptions_pb2 as pb
from turnout.rpc.v1.matching_pb2_grpc import MatchingServicer as _MatchingServicer
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceServicer
from turnout.subscriptions import ConditionMatch
from turnout.subscriptions import Match as SubscriptionMatch

_Result = TypeVar("_Result", pb.ConditionMatch, pb.Subscription)

_FRAME_BYTES = 8
"""Bytes, at most, that frame one result in its page."""


class SubscriptionsServicer(ServiceServicer):
    """Translates between the wire and the use cases, on the caller's view."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    def Create(self, request: pb.SubscriptionDataInput, context: CallContext) -> pb.CreateResponse:  # noqa: N802
        """Validate and store a subscription."""
        subscription = data_from(request)
        context.caller.check_destinations([subscription])
        with self._tenants.changing():
            created = self._tenants.service(context.caller).create(subscription)
        context.warn([subscription], [created])
        return pb.CreateResponse(id=created)

    def Read(self, request: pb.ReadRequest, context: CallContext) -> pb.SubscriptionDataOutput:  # noqa: N802
        """Return a subscription by its id."""
        return data_to(self._tenants.service(context.caller).read(request.id))

    def Update(self, request: pb.UpdateRequest, context: CallContext) -> pb.UpdateResponse:  # noqa: N802
        """Validate and store a new version of a subscription."""
        subscription = data_from(request.data, request.id)
        context.caller.check_destinations([subscription])
        expected = request.expectedRevision if request.HasField("expectedRevision") else None
        with self._tenants.changing():
            revision = self._tenants.service(context.caller).update(request.id, subscription, expected)
        context.warn([subscription], [request.id])
        return pb.UpdateResponse(revision=revision)

    def Delete(self, request: pb.DeleteRequest, context: CallContext) -> Empty:  # noqa: N802
        """Delete a subscription by its id, in the expected revision if there is one."""
        expected = request.expectedRevision if request.HasField("expectedRevision") else None
        with self._tenants.changing():
            self._tenants.service(context.caller).delete(request.id, expected)
        return Empty()

    def SearchByCondition(  # noqa: N802
        self, request: pb.SearchByConditionRequest, context: CallContext
    ) -> pb.SearchByConditionResponse:
        """Return the subscriptions that contain a leaf."""
        if request.WhichOneof("condition") is None:
            raise SubscriptionInvalidError("a query is missing; there is kiwiConditionQuery")
        query = request.kiwiConditionQuery
        page = self._tenants.service(context.caller).search_by_condition(
            query.key, query.pattern, query.partial, limit=request.limit, cursor=request.cursor
        )
        ids = [match.subscription_id for match in page.items]
        written, cursor = fitting(map(_written_match, page.items), ids, page.cursor, context)
        return pb.SearchByConditionResponse(page=written, cursor=cursor)

    def SearchByMetadata(  # noqa: N802
        self, request: pb.SearchByMetadataRequest, context: CallContext
    ) -> pb.SearchByMetadataResponse:
        """Return the subscriptions whose metadata contains every pair."""
        if len(request.metadata) > MAX_SEARCHED:
            raise SubscriptionInvalidError(
                f"metadata: {len(request.metadata)} pairs, a search takes at most {MAX_SEARCHED}"
            )
        service = self._tenants.service(context.caller)
        page = service.search_by_metadata(dict(request.metadata), limit=request.limit, cursor=request.cursor)
        ids = [subscription.id for subscription in page.items]
        found, cursor = fitting(map(subscription_to, page.items), ids, page.cursor, context)
        return pb.SearchByMetadataResponse(page=found, cursor=cursor)


def _written_match(match: ConditionMatch) -> pb.ConditionMatch:
    data = data_to(match.subscription)
    written = pb.ConditionMatch(
        subscriptionId=match.subscription_id,
        conditionId=match.condition_id,
        route=data.route,
        metadata=data.metadata,
        revision=data.revision,
    )
    write_settings(match.subscription, written)
    return written


def fitting(
    results: Iterable[_Result], ids: Sequence[str], cursor: str, context: CallContext
) -> tuple[list[_Result], str]:
    """Return the results of a page for which the client has room, at least one, and the cursor behind them.

    Args:
        results: results of the search.
        ids: id of the subscription of each of them, which is the cursor behind it.
        cursor: cursor behind all of them.
        context: context of the call.
    """
    left = max(MAX_RESPONSE, context.max_response) - MAX_RESPONSE // 64
    fitting: list[_Result] = []
    for result in results:
        left -= result.ByteSize() + _FRAME_BYTES
        if left < 0 and fitting:
            return fitting, ids[len(fitting) - 1]
        fitting.append(result)
    return fitting, cursor


class MatchingServicer(_MatchingServicer):
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

    def Match(self, request: matching_pb2.MatchRequest, context: CallContext) -> matching_pb2.MatchResponse:  # noqa: N802
        """Match one message."""
        return self._match(request, context, self._large)

    def _match(
        self, request: matching_pb2.MatchRequest, context: CallContext, large: AbstractContextManager[None]
    ) -> matching_pb2.MatchResponse:
        metadata = metadata_from(request)
        self._bounds.check(metadata)
        if request.explain:
            context.caller.demand(Right.READ)
        with large if is_large(metadata) else nullcontext():
            matches, revision = self._tenants.live(context.caller).match(metadata)
            response = matching_pb2.MatchResponse(revision=revision, tag=request.tag)
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
        response: matching_pb2.MatchResponse,
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
        self, request_iterator: Iterable[matching_pb2.MatchRequest], context: CallContext
    ) -> Iterator[matching_pb2.MatchResponse]:
        """Match a stream of messages."""
        with self._streams:
            for request in request_iterator:
                yield self._match(request, context, self._large.patiently())

    def Explain(self, request: matching_pb2.ExplainRequest, context: CallContext) -> matching_pb2.ExplainResponse:  # noqa: N802
        """Explain the outcome for one subscription, down to the leaf."""
        metadata = metadata_from(request)
        self._bounds.check(metadata)
        subscription = self._tenants.service(context.caller).read(request.subscription_id)
        with self._large if is_large(metadata) else nullcontext():
            explanation = _explanation(subscription.condition, metadata)
        now = milliseconds_now()
        inactive = subscription.inactive(now, now)
        return matching_pb2.ExplainResponse(
            matched=explanation.holds and not inactive,
            inactive=inactive,
            explanation=explanation,
            condition=data_to(subscription).route.condition,
        )

    def Watch(self, request: matching_pb2.WatchRequest, context: CallContext) -> Iterator[matching_pb2.Changes]:  # noqa: N802
        """Stream changes as they occur."""

        def going() -> bool:
            return context.is_active() and not self._stopping.is_set()

        live = self._tenants.live(context.caller)
        with self._streams:
            for changes in live.follow(request.since, going=going):
                yield from changes_parts(changes)
        if self._stopping.is_set():
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, "the server is shutting down: watch again from here")


def _explanation(condition: Condition, metadata: Metadata) -> matching_pb2.Explanation:
    return _message(explain(condition, metadata))


def _message(explanation: Explanation) -> matching_pb2.Explanation:
    return matching_pb2.Explanation(
        condition_id=explanation.condition.id,
        text=format_condition(explanation.condition),
        holds=explanation.holds,
        reason=explanation.reason,
        children=map(_message, explanation.children),
    )
