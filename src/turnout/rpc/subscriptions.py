"""``subscriptions.Service``: the original's API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.empty_pb2 import Empty

from turnout.errors import SubscriptionInvalidError
from turnout.rpc.convert import data_from, data_to, subscription_to
from turnout.rpc.v1 import subscriptions_pb2 as pb
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceServicer
from turnout.subscriptions.service import SubscriptionService

__all__ = ["SubscriptionsServicer"]


class SubscriptionsServicer(ServiceServicer):
    """Translates between the wire and the use cases; *changed* is called after each change."""

    def __init__(self, service: SubscriptionService, changed: Callable[[], None]) -> None:
        self._service = service
        self._changed = changed

    def Create(self, request: pb.SubscriptionDataInput, context: Any) -> pb.CreateResponse:  # noqa: ARG002, N802
        """Validate and store."""
        created = self._service.create(data_from(request))
        self._changed()
        return pb.CreateResponse(id=created)

    def Read(self, request: pb.ReadRequest, context: Any) -> pb.SubscriptionDataOutput:  # noqa: ARG002, N802
        """One by its id."""
        return data_to(self._service.read(request.id))

    def Delete(self, request: pb.DeleteRequest, context: Any) -> Empty:  # noqa: ARG002, N802
        """Forget one."""
        self._service.delete(request.id)
        self._changed()
        return Empty()

    def SearchByCondition(  # noqa: N802
        self,
        request: pb.SearchByConditionRequest,
        context: Any,  # noqa: ARG002
    ) -> pb.SearchByConditionResponse:
        """Those that contain a leaf."""
        if request.WhichOneof("condition") is None:
            raise SubscriptionInvalidError("a query is missing; there is kiwiConditionQuery")
        query = request.kiwiConditionQuery
        page = self._service.search_by_condition(
            query.key, query.pattern, query.partial, limit=request.limit, cursor=request.cursor
        )
        response = pb.SearchByConditionResponse(cursor=page.cursor)
        for match in page.items:
            data = data_to(match.subscription)
            response.page.add(
                subscriptionId=match.subscription_id,
                conditionId=match.condition_id,
                route=data.route,
                metadata=data.metadata,
            )
        return response

    def SearchByMetadata(  # noqa: N802
        self,
        request: pb.SearchByMetadataRequest,
        context: Any,  # noqa: ARG002
    ) -> pb.SearchByMetadataResponse:
        """Those whose metadata has every pair."""
        page = self._service.search_by_metadata(dict(request.metadata), limit=request.limit, cursor=request.cursor)
        return pb.SearchByMetadataResponse(page=map(subscription_to, page.items), cursor=page.cursor)
