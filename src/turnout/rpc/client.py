"""Client of a subscriptions service: its connection, and matching. Calls have no retry policy."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Self, cast
from urllib.parse import parse_qsl

import grpc

from turnout.base.files import FileChanges
from turnout.base.http_exchange import host_of, is_loopback
from turnout.base.untrusted import JsonObject
from turnout.conditions import Condition, Explanation, Group
from turnout.errors import ConfigError, Mistake
from turnout.rpc.caller import ACTOR_KEY, MAX_RESPONSE_KEY, TENANT_KEY
from turnout.rpc.convert import changes_of, condition_from, metadata_to
from turnout.rpc.status import translated
from turnout.rpc.v1 import matching_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub
from turnout.secrets import masked_url
from turnout.subscriptions import Changes, Match
from turnout.subscriptions.past import current_actor
from turnout.subscriptions.store import remaining
from turnout.subscriptions.tenants import check_tenant

_log = logging.getLogger(__name__)

_MAX_RESPONSE = (1 << 31) - 1
"""Bytes of the largest response that this client takes: as many as gRPC counts."""

_CHANNEL: Final = [("grpc.max_receive_message_length", _MAX_RESPONSE)]


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
        token_file: the file of the token, which is read again after a change.

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
    token_file: Path | None = field(default=None, compare=False)

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
        values: JsonObject = {}
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
        if "token" in values:
            values["token_file"] = Path(options["token-file"])
        if mistakes:
            raise ConfigError([Mistake("store", mistake) for mistake in mistakes])
        return cls(address.rstrip("/"), **values)

    def open(self) -> grpc.Channel:
        """A gRPC channel; it connects when it is first used, and again after a change of its certificates' files."""
        if self.ca is None:
            return grpc.insecure_channel(self.address, options=_CHANNEL)
        files = [file for file in (self.ca, self.certificate, self.key) if file]
        return cast("grpc.Channel", _FollowedChannel(self._secured, files))

    def _secured(self) -> grpc.Channel:
        """Return a channel with the certificates as their files have them.

        Raises:
            OSError: a file cannot be read.
            ValueError: certificate and key do not belong together.
        """
        assert self.ca is not None
        if self.certificate and self.key:
            # gRPC would end handshakes with a pair that does not fit, which is being written just now.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(self.certificate, self.key)
        credentials = grpc.ssl_channel_credentials(
            self.ca.read_bytes(),
            self.key.read_bytes() if self.key else None,
            self.certificate.read_bytes() if self.certificate else None,
        )
        return grpc.secure_channel(self.address, credentials, options=_CHANNEL)

    def call(
        self, *, endless: bool = False, whole: bool = False, more: Sequence[tuple[str, str]] = ()
    ) -> dict[str, object]:
        """The keyword arguments that every call needs, with *more* metadata.

        Args:
            endless: without a limit of time.
            whole: for the content of a whole store, whose time is not bounded by the caller's deadline.
            more: further metadata.

        Raises:
            StoreUnavailableError: the caller's deadline is over.
        """
        metadata: list[tuple[str, str | bytes]] = [(MAX_RESPONSE_KEY, f"{_MAX_RESPONSE}"), *more]
        token = self.token if self.token_file is None else _followed(self.token_file).token
        if token:
            metadata.append(("authorization", f"Bearer {token}"))
        if self.tenant:
            metadata.append((TENANT_KEY, self.tenant))
        if actor := current_actor():
            metadata.append((ACTOR_KEY, actor.encode("utf-8", "replace")))
        limit = self.timeout if whole else remaining(self.timeout)
        return {"timeout": None if endless else limit, "metadata": metadata}


class _FollowedChannel:
    """Part of a channel that stubs use; each call goes through one with the present certificates.

    Calls under way keep the former channel.
    """

    def __init__(self, make: Callable[[], grpc.Channel], files: Iterable[Path]) -> None:
        self._changes = FileChanges(files)
        self._make = make
        self._channel = make()
        self._lock = threading.Lock()

    def close(self) -> None:
        self._channel.close()

    def __getattr__(self, kind: str) -> Callable[..., Callable[..., object]]:
        """Return a maker of calls: ``unary_unary`` and its like."""
        return lambda *method, **form: (
            lambda *call, **more: getattr(self._present(), kind)(*method, **form)(*call, **more)
        )

    def _present(self) -> grpc.Channel:
        with self._lock:
            if self._changes.found():
                try:
                    self._channel = self._make()
                except (OSError, ValueError) as failure:
                    _log.warning("the renewed certificate cannot be used, and the former one is: %s", failure)
            return self._channel


class _FollowedToken:
    """Token of a file, read again after a change; the former one is kept while the file cannot be read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._changes = FileChanges([file])
        self._token = _token_in(file)

    @property
    def token(self) -> str:
        if self._changes.found():
            try:
                self._token = _token_in(self._file)
            except (OSError, ValueError) as failure:
                _log.warning(
                    "the changed token of %s cannot be read, and the former one is used: %s", self._file, failure
                )
        return self._token


@lru_cache(maxsize=64)
def _followed(file: Path) -> _FollowedToken:
    """Return the token of a file, for all channels of this process."""
    return _FollowedToken(file)


def _token_in(file: Path) -> str:
    return file.read_text("utf-8").strip()


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
    "token-file": ("token", lambda written: _token_in(Path(written))),
    "timeout": ("timeout", float),
    "tenant": ("tenant", check_tenant),
    "insecure": ("insecure", _truth),
}
"""Options of a URL: the field that each sets, and its parser. A token itself may not be in a URL."""


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

    def explain(self, id: str, metadata: Mapping[str, object]) -> Explanation:
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
