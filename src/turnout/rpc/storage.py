"""``turnout.subscriptions.v1.Storage``: what a program elsewhere needs to use the service as its store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from turnout.rpc.convert import subscription_from
from turnout.rpc.parts import batches, changes_parts
from turnout.rpc.v1 import matching_pb2 as pb
from turnout.rpc.v1 import subscriptions_pb2
from turnout.rpc.v1.matching_pb2_grpc import StorageServicer as _Servicer
from turnout.subscriptions.service import SubscriptionService

__all__ = ["StorageServicer"]


class StorageServicer(_Servicer):
    """Translates between the wire and the store; *changed* is called after each change."""

    def __init__(self, service: SubscriptionService, changed: Callable[[], None]) -> None:
        self._service = service
        self._changed = changed

    def CreateMany(  # noqa: N802
        self,
        request_iterator: Iterable[subscriptions_pb2.Subscription],
        context: Any,  # noqa: ARG002
    ) -> pb.CreateManyResponse:
        """All or none. A stream that its caller breaks off raises here, before anything is stored."""
        ids = self._service.create_many([subscription_from(message) for message in request_iterator])
        if ids:
            self._changed()
        return pb.CreateManyResponse(ids=ids)

    def Revision(self, request: pb.RevisionRequest, context: Any) -> pb.RevisionResponse:  # noqa: ARG002, N802
        """The present revision."""
        return pb.RevisionResponse(revision=self._service.store.revision())

    def GetChanges(self, request: pb.ChangesRequest, context: Any) -> Iterator[pb.Changes]:  # noqa: ARG002, N802
        """What happened after a revision."""
        yield from changes_parts(self._service.store.changes(request.since))

    def GetSnapshot(  # noqa: N802
        self,
        request: pb.SnapshotRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> Iterator[pb.SnapshotPart]:
        """Everything."""
        snapshot = self._service.store.snapshot()
        for batch in batches(snapshot.subscriptions):
            yield pb.SnapshotPart(revision=snapshot.revision, subscriptions=batch)
