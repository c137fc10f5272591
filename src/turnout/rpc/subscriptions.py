"""``subscriptions.Service``: the original's API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from google.protobuf.empty_pb2 import Empty

from turnout.errors import SubscriptionInvalidError
from turnout.rpc.call_limits import MAX_SEARCHED
from turnout.rpc.caller import MAX_RESPONSE, CallContext
from turnout.rpc.convert import data_from, data_to, subscription_to
from turnout.rpc.settings_messages import write_settings
from turnout.rpc.tenants import Tenants
from turnout.rpc.v1 import subscriptions_pb2 as pb
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceServicer
from turnout.subscriptions import ConditionMatch

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
        written, cursor = _fitting(map(_written_match, page.items), ids, page.cursor, context)
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
        found, cursor = _fitting(map(subscription_to, page.items), ids, page.cursor, context)
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


def _fitting(
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
