"""Store behind a subscriptions service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import grpc

from turnout.base.clocks import microseconds_since_epoch
from turnout.errors import HistoryForgottenError, SubscriptionError, SubscriptionInvalidError
from turnout.rpc.client import Channel
from turnout.rpc.convert import (
    audit_entry,
    births_of,
    change_parts,
    changes_of,
    data_from,
    data_to,
    line_parts,
    search_to,
    subscription_from,
    subscription_to,
)
from turnout.rpc.status import error_of, translated
from turnout.rpc.storage import COUNT_KEY
from turnout.rpc.v1 import matching_pb2, subscriptions_pb2
from turnout.rpc.v1.matching_pb2_grpc import StorageStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub
from turnout.subscriptions import MAX_LIMIT, Changes, ConditionMatch, Page, Snapshot, Store, StoreBase, Subscription
from turnout.subscriptions.destinations import checked, checked_version
from turnout.subscriptions.lines import PlainLine, line_of, whole_subscription
from turnout.subscriptions.past import AuditEntry, Creation, Moment, PastStore
from turnout.subscriptions.search import Search
from turnout.subscriptions.store import ChangeSet
from turnout.subscriptions.tenants import check_tenant

_IDS = 5_000
"""Ids of one message: of 321 characters each they are 1.6 MB, and a server takes 4 MB."""


class RemoteStore(StoreBase):
    """`Store` backed by a subscriptions service. The service's rules for new subscriptions apply.

    Args:
        channel: address and credentials of the service.
        shared: another store of the same service, whose connection is shared and kept open.
    """

    def __init__(self, channel: Channel, *, shared: RemoteStore | None = None) -> None:
        self._options = channel
        self._owner = shared is None
        self._channel: grpc.Channel = channel.open() if shared is None else shared._channel  # noqa: SLF001
        self._service = ServiceStub(self._channel)
        self._storage = StorageStub(self._channel)

    def for_tenant(self, name: str) -> Store:
        """See `MultiTenantStore.for_tenant`. The service requires access to the whole store to choose a tenant."""
        if self._options.tenant not in (None, name):
            check_tenant(name)
            raise SubscriptionInvalidError(f"this is the store of the tenant {self._options.tenant!r}, not of {name!r}")
        return RemoteStore(replace(self._options, tenant=check_tenant(name)), shared=self)

    @classmethod
    def open(cls, url: str) -> RemoteStore:
        """The store behind ``grpc://host:port``; see `Channel.parse`."""
        return cls(Channel.parse(url))

    def close(self) -> None:
        """See `Store.close`."""
        if self._owner:
            self._channel.close()

    def create(self, subscription: Subscription) -> str:
        """See `Store.create`."""
        return self.create_many([subscription])[0]

    def create_many(self, subscriptions: Iterable[Subscription]) -> list[str]:
        """See `BulkStore.create_many`."""
        new = list(subscriptions)
        try:
            return self.create_read(new)
        except SubscriptionInvalidError as problem:
            # The service counts lines, and the caller has subscriptions.
            label = f"subscription \\1 of {len(new)}: " if len(new) > 1 else ""
            raise SubscriptionInvalidError(re.sub(r"\Aline (\d+): ", label, str(problem))) from problem

    def create_read(self, subscriptions: Iterable[Subscription | PlainLine]) -> list[str]:
        """See `turnout.subscriptions.store.PlainLineStore`. A service of an earlier version gets subscriptions."""
        # Errors of the caller's iterable are raised here: inside gRPC's thread they would become "unknown".
        lines = list(map(line_of, read := list(subscriptions)))
        # A message of gRPC has many lines: one for each subscription takes eight times as long.
        parts = (matching_pb2.CreateLinesRequest(lines=part) for part in line_parts(lines))
        call = self._options.call(more=((COUNT_KEY, f"{len(lines)}"),))
        with translated():
            try:
                return list(self._storage.CreateLines(parts, **call).ids)
            except grpc.RpcError as failure:
                if failure.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
            messages = [subscription_to(whole_subscription(one)) for one in read]
            return list(self._storage.CreateMany(iter(messages), **call).ids)

    def read(self, id: str) -> Subscription:
        """See `Store.read`."""
        with translated():
            response = self._service.Read(subscriptions_pb2.ReadRequest(id=id), **self._options.call())
        return data_from(response, id)

    def update(self, id: str, subscription: Subscription, expected_revision: int | None = None) -> int:
        """See `Store.update`."""
        version = checked_version(id, subscription)
        request = subscriptions_pb2.UpdateRequest(id=id, data=data_to(version), expectedRevision=expected_revision)
        with translated():
            return int(self._service.Update(request, **self._options.call()).revision)

    def delete(self, id: str, expected_revision: int | None = None) -> None:
        """See `Store.delete`."""
        with translated():
            request = subscriptions_pb2.DeleteRequest(id=id, expectedRevision=expected_revision)
            self._service.Delete(request, **self._options.call())

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`. A service takes at most 100,000 of them at a time."""
        distinct = list(dict.fromkeys(ids))
        parts = (
            matching_pb2.DeleteManyRequest(ids=distinct[start : start + _IDS])
            for start in range(0, len(distinct), _IDS)
        )
        with translated():
            self._storage.DeleteMany(parts, **self._options.call(more=((COUNT_KEY, f"{len(distinct)}"),)))

    def apply(self, changes: ChangeSet) -> int:
        """See `turnout.subscriptions.store.AtomicStore`. A service takes at most 100,000 changes at a time."""
        changes = ChangeSet(tuple(checked(changes.created)), tuple(checked(changes.updated)), changes.deleted)
        changes.replaced()
        count = len(changes.created) + len(changes.updated) + len(changes.deleted)
        call = self._options.call(more=((COUNT_KEY, f"{count}"),))
        with translated():
            return int(self._storage.Apply(change_parts(changes), **call).revision)

    def search(self, search: Search, *, limit: int = 100, cursor: str = "") -> Page[Subscription]:
        """See `turnout.subscriptions.search.SearchableStore`."""
        request = matching_pb2.SearchRequest(query=search_to(search), cursor=cursor, limit=min(limit, MAX_LIMIT))
        with translated():
            response = self._storage.Search(request, **self._options.call())
        return Page(tuple(map(subscription_from, response.page)), response.cursor)

    def search_by_condition(
        self, key: str, pattern: str, partial: bool = False, *, limit: int = 100, cursor: str = ""
    ) -> Page[ConditionMatch]:
        """See `Store.search_by_condition`."""
        request = subscriptions_pb2.SearchByConditionRequest(
            cursor=cursor,
            limit=min(limit, MAX_LIMIT),
            kiwiConditionQuery=subscriptions_pb2.KiwiConditionQuery(key=key, pattern=pattern, partial=partial),
        )
        with translated():
            response = self._service.SearchByCondition(request, **self._options.call())
        matches = (
            ConditionMatch(match.subscriptionId, match.conditionId, data_from(match, match.subscriptionId))
            for match in response.page
        )
        return Page(tuple(matches), response.cursor)

    def search_by_metadata(
        self, metadata: Mapping[str, str], *, limit: int = 100, cursor: str = ""
    ) -> Page[Subscription]:
        """See `Store.search_by_metadata`."""
        request = subscriptions_pb2.SearchByMetadataRequest(
            cursor=cursor, limit=min(limit, MAX_LIMIT), metadata=dict(metadata)
        )
        with translated():
            response = self._service.SearchByMetadata(request, **self._options.call())
        return Page(tuple(map(subscription_from, response.page)), response.cursor)

    def revision(self) -> int:
        """See `Store.revision`."""
        with translated():
            return int(self._storage.Revision(matching_pb2.RevisionRequest(), **self._options.call()).revision)

    def changes(self, since: int) -> Changes:
        """See `Store.changes`."""
        # A service that does not answer is found within the caller's deadline; many changes may take longer.
        if self.revision() == since:
            return Changes(since)
        with translated():
            parts = self._storage.GetChanges(matching_pb2.ChangesRequest(since=since), **self._options.call(whole=True))
            return next(changes_of(parts))

    def snapshot(self) -> Snapshot:
        """See `Store.snapshot`."""
        subscriptions: list[Subscription] = []
        revision = 0
        with translated():
            for part in self._storage.GetSnapshot(matching_pb2.SnapshotRequest(), **self._options.call(whole=True)):
                revision = part.revision
                subscriptions += map(subscription_from, part.subscriptions)
        return Snapshot(tuple(subscriptions), revision)

    def as_of(self, moment: Moment) -> PastStore:
        """See `VersionedStore.as_of`. A service that offers no past, because it is an older one, remembers nothing."""
        request = matching_pb2.AsOfRequest()
        if isinstance(moment, int):
            request.revision = moment
        else:
            request.time = microseconds_since_epoch(moment)
        try:
            response = self._storage.AsOf(request, **self._options.call())
        except grpc.RpcError as failure:
            raise _forgotten(failure, self._options.address) from failure
        return PastStore(self, int(response.revision))

    def read_at(self, revision: int, id: str) -> Subscription | None:
        """See `turnout.subscriptions.past.Remembering`."""
        return next(iter(self._past(matching_pb2.PastRequest(revision=revision, id=id))), None)

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """See `turnout.subscriptions.past.Remembering`."""
        then = self._past(matching_pb2.PastRequest(revision=revision))
        return tuple(subscription for subscription in then if subscription.id.startswith(prefix))

    def _past(self, request: matching_pb2.PastRequest) -> list[Subscription]:
        with translated():
            parts = self._storage.GetPast(request, **self._options.call(whole=True))
            return [subscription_from(subscription) for part in parts for subscription in part.subscriptions]

    def births(self) -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        with translated():
            return births_of(self._storage.GetBirths(matching_pb2.BirthsRequest(), **self._options.call(whole=True)))

    def history(self, id: str) -> tuple[AuditEntry, ...]:
        """See `VersionedStore.history`."""
        with translated():
            parts = self._storage.GetHistory(matching_pb2.HistoryRequest(id=id), **self._options.call())
            return tuple(map(audit_entry, parts))


def _forgotten(failure: grpc.Call, address: str) -> SubscriptionError:
    """Return the error for a service that does not offer its history."""
    problem = error_of(failure)
    if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
        return HistoryForgottenError(f"the service at {address} is an older one, which does not offer its past")
    return problem
