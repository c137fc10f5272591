"""``turnout.subscriptions.v1.Storage``: operations for remote programs that use the service as their store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import grpc

from turnout.errors import SubscriptionInvalidError, SubscriptionNotFoundError
from turnout.rpc.caller import CallContext, Tenants
from turnout.rpc.convert import (
    audit_message,
    batches,
    births_parts,
    changes_parts,
    edited_parts,
    plan_parts,
    search_from,
    subscription_from,
    subscription_to,
)
from turnout.rpc.status import MAX_BULK, MAX_BULK_BYTES, MAX_SEARCHED, RefusedError, Slots
from turnout.rpc.subscriptions import fitting
from turnout.rpc.v1 import matching_pb2 as pb
from turnout.rpc.v1 import subscriptions_pb2
from turnout.rpc.v1.matching_pb2_grpc import StorageServicer as _Servicer
from turnout.subscriptions import Snapshot, Subscription
from turnout.subscriptions.import_set import LAST_RECORDS, Comparing, Effect, ImportPlan, ImportSet, import_set
from turnout.subscriptions.lines import read_lines, whole_subscription
from turnout.subscriptions.past import PastStore, time_of
from turnout.subscriptions.search import Edit, edit_all
from turnout.subscriptions.store import STORE_SECONDS, ChangeSet, creations_of, history_of, view_as_of, within
from turnout.subscriptions.validation import check_id

COUNT_KEY = "turnout-count"
"""The metadata by which a client says how many subscriptions or ids its stream has. To gRPC for Python a stream that
breaks off may look like one that ends; this number distinguishes the two."""


class StorageServicer(_Servicer):
    """Translates between the wire and the caller's view of the store.

    Args:
        tenants: tenants with their stores.
        max_bulks: bulks that may be under way at once; each holds a thread, and other calls need some too.
        comparing: compares two sets of subscriptions on the last records of a route; None where there are no routes.
    """

    def __init__(self, tenants: Tenants, *, max_bulks: int, comparing: Comparing | None = None) -> None:
        self._tenants = tenants
        self._comparing = comparing
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

    def Apply(  # noqa: N802
        self, request_iterator: Iterable[pb.ApplyRequest], context: CallContext
    ) -> pb.RevisionResponse:
        """Make all changes or none. A stream that breaks off raises here, before anything is changed."""
        with self._bulks:
            parts = list(_bounded_parts(request_iterator))
            created = tuple(subscription_from(one) for part in parts for one in part.created)
            updated = tuple(subscription_from(one) for part in parts for one in part.updated)
            deleted = [one for part in parts for one in part.deleted]
            _check_count(context, len(created) + len(updated) + len(deleted))
            changes = ChangeSet(created, updated, {one.id: one.revision for one in deleted})
            if len(changes.deleted) != len(deleted):
                raise SubscriptionInvalidError("a change set deletes each subscription once")
            context.caller.check_destinations([*created, *updated])
            with self._tenants.changing(), within(STORE_SECONDS):
                revision = self._tenants.service(context.caller).apply(changes)
            new = [*created, *updated]
            context.warn(new, [one.id or "new" for one in new])
        return pb.RevisionResponse(revision=revision)

    def Search(  # noqa: N802
        self, request: pb.SearchRequest, context: CallContext
    ) -> subscriptions_pb2.SearchByMetadataResponse:
        """Return a page of the subscriptions that have all parts of the query."""
        if len(request.query.metadata) > MAX_SEARCHED:
            raise SubscriptionInvalidError(f"metadata: at most {MAX_SEARCHED} pairs are searched for")
        search = search_from(request.query)
        service = self._tenants.service(context.caller)
        page = service.search(search, limit=request.limit, cursor=request.cursor)
        ids = [one.id for one in page.items]
        written, cursor = fitting(map(subscription_to, page.items), ids, page.cursor, context)
        return subscriptions_pb2.SearchByMetadataResponse(page=written, cursor=cursor)

    def Replace(  # noqa: N802
        self, request_iterator: Iterable[pb.ReplaceRequest], context: CallContext
    ) -> Iterator[pb.ReplaceResponse]:
        """Bring an import's subscriptions to the content of lines. A stream that breaks off raises here."""
        with self._bulks:
            options, parts = pb.ReplaceOptions(), []
            for number, request in enumerate(_bounded_bytes(request_iterator)):
                if request.HasField("options") and number:
                    raise SubscriptionInvalidError("options: they are in the first message")
                options = request.options if request.HasField("options") else options
                parts.append(request.lines)
            lines = [line for part in parts for line in part.splitlines()]
            _check_count(context, len(lines))
            if options.route and not options.dry_run:
                raise SubscriptionInvalidError("route: the effect on its records is compared with dry_run")
            new = list(map(whole_subscription, read_lines(lines, plain=False)))
            context.caller.check_destinations(new)
            prefix = options.prefix if options.HasField("prefix") else None
            owned = ImportSet(options.set, prefix, options.prune, options.prune_all)
            service = self._tenants.service(context.caller)
            before = service.store.snapshot() if options.route else None
            with self._tenants.changing(), within(STORE_SECONDS):
                by = partial(service.apply, planned=True)
                plan = import_set(service.store, new, owned, dry_run=options.dry_run, by=by)
            effect = None if before is None else self._effect(options, plan, before, context)
            if not options.dry_run:
                context.warn(new, [one.id for one in new])
        yield from plan_parts(plan, effect)

    def _effect(self, options: pb.ReplaceOptions, plan: ImportPlan, before: Snapshot, context: CallContext) -> Effect:
        """Return the effect of an import on the last records of a route of this server."""
        if self._comparing is None:
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "route: this service has no routes")
        if context.caller.tenant is not None:
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, "this token is for the subscriptions of one tenant")
        return self._comparing(options.route, options.last or LAST_RECORDS, before, plan.after(before))

    def EditMany(self, request: pb.EditManyRequest, context: CallContext) -> Iterator[pb.EditManyResponse]:  # noqa: N802
        """Edit all that a search finds, as one change."""
        enabled = request.enabled if request.HasField("enabled") else None
        edit = Edit(enabled, request.keep_paused, dict(request.metadata), tuple(request.without))
        service = self._tenants.service(context.caller)
        with self._bulks, self._tenants.changing(), within(STORE_SECONDS):
            edited = edit_all(
                service.store,
                search_from(request.query),
                edit,
                dry_run=request.dry_run,
                everything=request.everything,
                by=partial(service.apply, planned=True),
            )
        yield from edited_parts(edited)

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


def _bounded_parts(parts: Iterable[pb.ApplyRequest]) -> Iterator[pb.ApplyRequest]:
    """The parts of a change, which end where they get too long to be held."""
    count = size = 0
    for part in parts:
        count += len(part.created) + len(part.updated) + len(part.deleted)
        size += part.ByteSize()
        if count > MAX_BULK or size > MAX_BULK_BYTES:
            raise _too_large()
        yield part


def _bounded_bytes(parts: Iterable[pb.ReplaceRequest]) -> Iterator[pb.ReplaceRequest]:
    """The parts of an import, which end where they get too long to be held."""
    count = size = 0
    for part in parts:
        count += part.lines.count(b"\n") + 1
        size += len(part.lines)
        if count > 2 * MAX_BULK or size > MAX_BULK_BYTES:
            raise _too_large()
        yield part


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
