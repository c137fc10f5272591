"""``turnout.subscriptions.v1.Storage``: operations for remote programs that use the service as their store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import grpc

from turnout.errors import SubscriptionInvalidError, SubscriptionNotFoundError
from turnout.rpc.caller import CallContext, Tenants
from turnout.rpc.convert import audit_message, batches, births_parts, changes_parts, subscription_from
from turnout.rpc.status import MAX_BULK, MAX_BULK_BYTES, RefusedError, Slots
from turnout.rpc.v1 import matching_pb2 as pb
from turnout.rpc.v1 import subscriptions_pb2
from turnout.rpc.v1.matching_pb2_grpc import StorageServicer as _Servicer
from turnout.subscriptions import Subscription
from turnout.subscriptions.past import PastStore, time_of
from turnout.subscriptions.store import STORE_SECONDS, creations_of, history_of, view_as_of, within
from turnout.subscriptions.validation import check_id

COUNT_KEY = "turnout-count"
"""The metadata by which a client says how many subscriptions or ids its stream has. To gRPC for Python a stream that
breaks off may look like one that ends; this number distinguishes the two."""


class StorageServicer(_Servicer):
    """Translates between the wire and the caller's view of the store.

    Args:
        tenants: tenants with their stores.
        max_bulks: bulks that may be under way at once; each holds a thread, and other calls need some too.
    """

    def __init__(self, tenants: Tenants, *, max_bulks: int) -> None:
        self._tenants = tenants
        self._bulks = Slots(max_bulks, "too many bulks are under way: try again later")

    def CreateMany(  # noqa: N802
        self, request_iterator: Iterable[subscriptions_pb2.Subscription], context: CallContext
    ) -> pb.CreateManyResponse:
        """Store all subscriptions or none. A stream that breaks off raises here, before anything is stored."""
        with self._bulks:
            subscriptions = list(_bounded(request_iterator))
            _check_count(context, len(subscriptions))
            context.caller.check_destinations(subscriptions)
            with self._tenants.changing(), within(STORE_SECONDS):
                ids = self._tenants.service(context.caller).create_many(subscriptions)
            context.warn(subscriptions, ids)
        return pb.CreateManyResponse(ids=ids)

    def CreateLines(  # noqa: N802
        self, request_iterator: Iterable[pb.CreateLinesRequest], context: CallContext
    ) -> pb.CreateManyResponse:
        """Store the subscriptions of all lines or none. A stream that breaks off raises here, as in `CreateMany`."""
        with self._bulks:
            lines = list(_bounded_lines(request_iterator))
            _check_count(context, len(lines))
            service = self._tenants.service(context.caller)
            new = service.read_lines(lines)
            context.caller.check_destinations(new)
            with self._tenants.changing(), within(STORE_SECONDS):
                ids = service.create_read(new)
            context.warn(new, ids)
        return pb.CreateManyResponse(ids=ids)

    def DeleteMany(  # noqa: N802
        self, request_iterator: Iterable[pb.DeleteManyRequest], context: CallContext
    ) -> pb.DeleteManyResponse:
        """Delete all subscriptions or none. A stream that breaks off raises here, before anything is deleted."""
        with self._bulks:
            ids = list(_bounded_ids(request_iterator))
            _check_count(context, len(ids))
            with self._tenants.changing(), within(STORE_SECONDS):
                count = self._tenants.service(context.caller).delete_many(ids)
        return pb.DeleteManyResponse(count=count)

    def Revision(self, request: pb.RevisionRequest, context: CallContext) -> pb.RevisionResponse:  # noqa: ARG002, N802
        """The present revision."""
        return pb.RevisionResponse(revision=self._tenants.service(context.caller).store.revision())

    def GetChanges(self, request: pb.ChangesRequest, context: CallContext) -> Iterator[pb.Changes]:  # noqa: N802
        """Stream the changes after a revision."""
        yield from changes_parts(self._tenants.service(context.caller).store.changes(request.since))

    def GetSnapshot(  # noqa: N802
        self,
        request: pb.SnapshotRequest,  # noqa: ARG002
        context: CallContext,
    ) -> Iterator[pb.SnapshotPart]:
        """Stream all subscriptions."""
        snapshot = self._tenants.service(context.caller).store.snapshot()
        for batch in batches(snapshot.subscriptions):
            yield pb.SnapshotPart(revision=snapshot.revision, subscriptions=batch)

    def AsOf(self, request: pb.AsOfRequest, context: CallContext) -> pb.RevisionResponse:  # noqa: N802
        """Return the revision at a past moment."""
        store = self._tenants.service(context.caller).store
        if request.WhichOneof("moment") is None:
            raise SubscriptionInvalidError("a moment is a revision or a time: neither is given")
        moment = request.revision if request.WhichOneof("moment") == "revision" else time_of(request.time)
        return pb.RevisionResponse(revision=view_as_of(store, moment).revision)

    def GetPast(self, request: pb.PastRequest, context: CallContext) -> Iterator[pb.SnapshotPart]:  # noqa: N802
        """Stream the content at a past moment."""
        past = view_as_of(self._tenants.service(context.caller).store, request.revision)
        then = past.snapshot().subscriptions if not request.HasField("id") else _one(past, request.id)
        for batch in batches(then):
            yield pb.SnapshotPart(revision=past.revision, subscriptions=batch)

    def GetBirths(self, request: pb.BirthsRequest, context: CallContext) -> Iterator[pb.BirthsPart]:  # noqa: ARG002, N802
        """Stream the creations of present subscriptions."""
        yield from births_parts(creations_of(self._tenants.service(context.caller).store))

    def GetHistory(self, request: pb.HistoryRequest, context: CallContext) -> Iterator[pb.AuditEntry]:  # noqa: N802
        """Stream the remembered changes of a subscription."""
        check_id(request.id)
        yield from map(audit_message, history_of(self._tenants.service(context.caller).store, request.id))


def _one(past: PastStore, id_: str) -> tuple[Subscription, ...]:
    check_id(id_)
    try:
        return (past.read(id_),)
    except SubscriptionNotFoundError:
        return ()


def _check_count(context: CallContext, count: int) -> None:
    """Refuse a stream that has ended before its time."""
    announced = dict(context.invocation_metadata() or ()).get(COUNT_KEY, f"{count}")
    if announced != f"{count}":
        raise RefusedError(grpc.StatusCode.ABORTED, f"the stream broke off: got {count} of {announced} subscriptions")


def _bounded_lines(parts: Iterable[pb.CreateLinesRequest]) -> Iterator[bytes]:
    """The lines of a stream, which ends where it gets too long to be held."""
    count = size = 0
    for part in parts:
        lines = part.lines.splitlines()
        count += len(lines)
        size += len(part.lines)
        if count > MAX_BULK or size > MAX_BULK_BYTES:
            raise _too_large()
        yield from lines


def _too_large() -> RefusedError:
    return RefusedError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"a bulk has at most {MAX_BULK} subscriptions and {MAX_BULK_BYTES} bytes: send it in parts",
    )


def _bounded(messages: Iterable[subscriptions_pb2.Subscription]) -> Iterator[Subscription]:
    """The subscriptions of a stream, which ends where it gets too long to be held."""
    size = 0
    for number, message in enumerate(messages):
        size += message.ByteSize()
        if number >= MAX_BULK or size > MAX_BULK_BYTES:
            raise _too_large()
        yield subscription_from(message)


def _bounded_ids(parts: Iterable[pb.DeleteManyRequest]) -> Iterator[str]:
    """The ids of a stream, which ends where there are too many."""
    count = 0
    for part in parts:
        count += len(part.ids)
        if count > MAX_BULK:
            problem = f"a bulk has at most {MAX_BULK} ids: send it in parts"
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, problem)
        yield from part.ids
