"""Clients of the subscriptions service: a remote store, and matching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl

import grpc

from turnout.conditions import Condition, Explanation, Group
from turnout.epoch import microseconds_since_epoch
from turnout.errors import ConfigError, HistoryForgottenError, Mistake, SubscriptionError, SubscriptionInvalidError
from turnout.loopback import host_of, is_loopback
from turnout.rpc.caller import ACTOR_KEY, TENANT_KEY
from turnout.rpc.convert import condition_from, data_from, data_to, metadata_to, subscription_from, subscription_to
from turnout.rpc.message_parts import audit_entry, births_of, changes_of, line_parts
from turnout.rpc.status import error_of, translated
from turnout.rpc.storage import COUNT_KEY
from turnout.rpc.v1 import matching_pb2, subscriptions_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub, StorageStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub
from turnout.secrets import masked_url
from turnout.subscriptions import (
    MAX_LIMIT,
    Changes,
    ConditionMatch,
    Match,
    Page,
    Snapshot,
    Store,
    StoreBase,
    Subscription,
)
from turnout.subscriptions.actor import current_actor
from turnout.subscriptions.audit import AuditEntry
from turnout.subscriptions.destinations import checked_version
from turnout.subscriptions.lines import line_of, whole_subscription
from turnout.subscriptions.past import Creation, Moment, PastStore
from turnout.subscriptions.plain_lines import PlainLine
from turnout.subscriptions.tenants import check_tenant


@dataclass(frozen=True, slots=True)
class Channel:
    """Address and credentials of a service.

    Attributes:
        address: ``host:port``.
        ca: the authority of the server's certificate (PEM); no TLS without one.
        certificate: the client's own certificate, if the server requires one (PEM).
        key: its private key (PEM).
        token: a bearer token.
        timeout: seconds for a call; none for watching.
        tenant: tenant of the calls, if the token, or no token, gives access to the whole store.
        insecure: send a token to another machine without TLS, where others on the network can read it.

    Raises:
        ConfigError: the token would go to another machine without TLS.
    """

    address: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: str | None = field(default=None, repr=False)
    timeout: float = 30.0
    tenant: str | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.token and self.ca is None and not self.insecure and not is_loopback(host_of(self.address)):
            problem = f"a token for {self.address} would travel in the clear: add ca=…, or say insecure=true"
            raise ConfigError([Mistake("store", problem)])

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``grpc://host:port?ca=ca.pem&certificate=…&key=…&token-file=…&timeout=30``.

        Raises:
            ConfigError: the URL says something else, or names a file that is not there.
        """
        address, _, query = url.removeprefix("grpc://").partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        values: dict[str, Any] = {}
        shown = masked_url(url)
        mistakes = [] if address.rstrip("/") else [f"{shown!r} names no host: expected grpc://host:port"]
        if "@" in address:
            mistakes.append(f"{shown!r} has user and password; the service knows tokens: token-file=…")
        for name, written in options.items():
            if name not in _OPTIONS:
                mistakes.append(f"unknown option {name!r}; there are {', '.join(_OPTIONS)}")
                continue
            field, read = _OPTIONS[name]
            try:
                values[field] = read(written)
            except (OSError, ValueError) as problem:
                mistakes.append(f"{name}: {problem}")
        if mistakes:
            raise ConfigError([Mistake("store", mistake) for mistake in mistakes])
        return cls(address.rstrip("/"), **values)

    def open(self) -> grpc.Channel:
        """A gRPC channel; it connects when it is first used."""
        options = [("grpc.max_receive_message_length", -1)]
        if self.ca is None:
            return grpc.insecure_channel(self.address, options=options)
        credentials = grpc.ssl_channel_credentials(
            self.ca.read_bytes(),
            self.key.read_bytes() if self.key else None,
            self.certificate.read_bytes() if self.certificate else None,
        )
        return grpc.secure_channel(self.address, credentials, options=options)

    def call(self, *, endless: bool = False, more: Sequence[tuple[str, str]] = ()) -> dict[str, object]:
        """The keyword arguments that every call needs, with *more* metadata."""
        metadata: list[tuple[str, str | bytes]] = [*more]
        if self.token:
            metadata.append(("authorization", f"Bearer {self.token}"))
        if self.tenant:
            metadata.append((TENANT_KEY, self.tenant))
        if actor := current_actor():
            metadata.append((ACTOR_KEY, actor.encode("utf-8", "replace")))
        return {"timeout": None if endless else self.timeout, "metadata": metadata or None}


def _truth(written: str) -> bool:
    if written not in ("true", "false"):
        raise ValueError(f"expected true or false, found {written!r}")
    return written == "true"


def _file(written: str) -> Path:
    # Opened once here, so that a missing file is reported before the first call.
    with Path(written).open("rb"):
        return Path(written)


_OPTIONS: dict[str, tuple[str, Callable[[str], object]]] = {
    "ca": ("ca", _file),
    "certificate": ("certificate", _file),
    "key": ("key", _file),
    "token-file": ("token", lambda written: Path(written).read_text("utf-8").strip()),
    "timeout": ("timeout", float),
    "tenant": ("tenant", check_tenant),
    "insecure": ("insecure", _truth),
}
"""Options of a URL: the field that each sets, and its parser. A token itself may not be in a URL."""


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
        # Errors of the caller's iterable are raised here: inside gRPC's thread they would become "unknown".
        messages = [subscription_to(subscription) for subscription in subscriptions]
        with translated():
            response = self._storage.CreateMany(
                iter(messages), **self._options.call(more=((COUNT_KEY, f"{len(messages)}"),))
            )
        return list(response.ids)

    def create_read(self, subscriptions: Iterable[Subscription | PlainLine]) -> list[str]:
        """See `turnout.subscriptions.store.PlainLineStore`. A service of an earlier version gets subscriptions."""
        lines = list(map(line_of, read := list(subscriptions)))
        parts = (matching_pb2.CreateLinesRequest(lines=part) for part in line_parts(lines))
        call = self._options.call(more=((COUNT_KEY, f"{len(lines)}"),))
        with translated():
            try:
                return list(self._storage.CreateLines(parts, **call).ids)
            except grpc.RpcError as failure:
                if failure.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
        return self.create_many(map(whole_subscription, read))

    def read(self, id: str) -> Subscription:  # noqa: A002 - the field's own name
        """See `Store.read`."""
        with translated():
            response = self._service.Read(subscriptions_pb2.ReadRequest(id=id), **self._options.call())
        return data_from(response, id)

    def update(
        self,
        id: str,  # noqa: A002 - the field's own name
        subscription: Subscription,
        expected_revision: int | None = None,
    ) -> int:
        """See `Store.update`."""
        version = checked_version(id, subscription)
        request = subscriptions_pb2.UpdateRequest(id=id, data=data_to(version), expectedRevision=expected_revision)
        with translated():
            return int(self._service.Update(request, **self._options.call()).revision)

    def delete(self, id: str) -> None:  # noqa: A002 - the field's own name
        """See `Store.delete`."""
        with translated():
            self._service.Delete(subscriptions_pb2.DeleteRequest(id=id), **self._options.call())

    def delete_many(self, ids: Iterable[str]) -> None:
        """See `BulkStore.delete_many`. A service takes at most 100,000 of them at a time."""
        distinct = list(dict.fromkeys(ids))
        parts = (
            matching_pb2.DeleteManyRequest(ids=distinct[start : start + _IDS])
            for start in range(0, len(distinct), _IDS)
        )
        with translated():
            self._storage.DeleteMany(parts, **self._options.call(more=((COUNT_KEY, f"{len(distinct)}"),)))

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
        with translated():
            parts = self._storage.GetChanges(matching_pb2.ChangesRequest(since=since), **self._options.call())
            return next(changes_of(parts))

    def snapshot(self) -> Snapshot:
        """See `Store.snapshot`."""
        subscriptions: list[Subscription] = []
        revision = 0
        with translated():
            for part in self._storage.GetSnapshot(matching_pb2.SnapshotRequest(), **self._options.call()):
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

    def read_at(self, revision: int, id: str) -> Subscription | None:  # noqa: A002 - the field's own name
        """See `turnout.subscriptions.past.Remembering`."""
        return next(iter(self._past(matching_pb2.PastRequest(revision=revision, id=id))), None)

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """See `turnout.subscriptions.past.Remembering`."""
        then = self._past(matching_pb2.PastRequest(revision=revision))
        return tuple(subscription for subscription in then if subscription.id.startswith(prefix))

    def _past(self, request: matching_pb2.PastRequest) -> list[Subscription]:
        with translated():
            parts = self._storage.GetPast(request, **self._options.call())
            return [subscription_from(subscription) for part in parts for subscription in part.subscriptions]

    def births(self) -> Mapping[str, Creation]:
        """See `VersionedStore.births`."""
        with translated():
            return births_of(self._storage.GetBirths(matching_pb2.BirthsRequest(), **self._options.call()))

    def history(self, id: str) -> tuple[AuditEntry, ...]:  # noqa: A002 - the field's own name
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


class MatchingClient:
    """Client for matching messages with a subscriptions service."""

    def __init__(self, channel: Channel) -> None:
        self._options = channel
        self._channel = channel.open()
        self._stub = MatchingStub(self._channel)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def match(self, metadata: Mapping[str, object]) -> list[Match]:
        """Return every subscription that matches the message; values are as in `Matcher.match`."""
        with translated():
            request = matching_pb2.MatchRequest(**metadata_to(metadata))
            return _matches(self._stub.Match(request, **self._options.call()))

    def match_stream(self, messages: Iterable[Mapping[str, object]]) -> Iterator[list[Match]]:
        """Yield the matches of each message, in the order of the messages."""
        requests = (matching_pb2.MatchRequest(**metadata_to(metadata)) for metadata in messages)
        with translated():
            yield from map(_matches, self._stub.MatchStream(requests, **self._options.call(endless=True)))

    def explain(self, id: str, metadata: Mapping[str, object]) -> Explanation:  # noqa: A002 - the field's own name
        """Explain the match or mismatch between a subscription and the message."""
        request = matching_pb2.ExplainRequest(subscription_id=id, **metadata_to(metadata))
        with translated():
            response = self._stub.Explain(request, **self._options.call())
        return _explanation(response.explanation, condition_from(response.condition))

    def watch(self, since: int = 0) -> Iterator[Changes]:
        """Yield changes after a revision as they occur. Close the iterator to stop.

        Raises:
            StoreUnavailableError: the connection was lost; watch again from the last revision.
        """
        call = self._stub.Watch(matching_pb2.WatchRequest(since=since), **self._options.call(endless=True))
        try:
            with translated():
                yield from changes_of(call)
        finally:
            call.cancel()


def _matches(response: matching_pb2.MatchResponse) -> list[Match]:
    return [
        Match(match.subscription_id, tuple(match.destinations), tuple(match.condition_ids))
        for match in response.matches
    ]


def _explanation(message: matching_pb2.Explanation, condition: Condition) -> Explanation:
    nodes = condition.children if isinstance(condition, Group) else ()
    children = (_explanation(*pair) for pair in zip(message.children, nodes, strict=True))
    return Explanation(condition, message.holds, message.reason, tuple(children))
