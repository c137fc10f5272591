"""The gRPC server: its settings, services and port, start and stop."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

import grpc
from google.protobuf.empty_pb2 import Empty
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from turnout.base.background import Background
from turnout.base.files import FileChanges
from turnout.base.http_exchange import is_loopback
from turnout.base.options import Option, of_text, option, options_of, read_options
from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, Mistake, StoreUnavailableError, SubscriptionInvalidError, TurnoutError
from turnout.rpc.call_interceptor import CallMetrics, Calls, logger
from turnout.rpc.caller import Tenants
from turnout.rpc.feeds import FeedAccess, FeedsServicer
from turnout.rpc.status import MessageBounds, Slots, translated
from turnout.rpc.storage import StorageServicer
from turnout.rpc.subscriptions import MatchingServicer, SubscriptionsServicer
from turnout.rpc.tokens import AcceptedToken, JwtSettings, Tokens, read_tokens
from turnout.rpc.v1 import feeds_pb2_grpc, kiwi_tree_pb2_grpc, matching_pb2_grpc, subscriptions_pb2_grpc
from turnout.rpc.v1 import kiwi_tree_pb2 as pb
from turnout.rpc.v1.kiwi_tree_pb2_grpc import ServiceServicer, ServiceStub
from turnout.subjects.pattern import Rights, check_pattern
from turnout.subscriptions.import_set import Comparing
from turnout.subscriptions.service import KiwiTrees, PatternRegistry
from turnout.subscriptions.store import Store, StoreThreads, within

_FEWEST_WORKERS: Final = 2
_LEVELS: Final = ("debug", "info", "warning", "error")


def _port(text: str) -> int:
    if decimal(text, 65535) is None:
        raise ValueError(f"expected a port from 0 to 65535, found {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not decimal(text):
        raise ValueError(f"expected a whole number above 0, found {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise ValueError(f"expected a number of seconds, found {text!r}")
    return seconds


def _truth(text: str) -> bool:
    truth = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower())
    if truth is None:
        raise ValueError(f"expected true or false, found {text!r}")
    return truth


def _jwt(text: str) -> JwtSettings:
    try:
        given = json.loads(text)
        return JwtSettings.model_validate({to_camel(name): value for name, value in given.items()})
    except ValidationError as failure:
        texts = [(*map(str, one["loc"]), one["msg"].removeprefix("Value error, ")) for one in failure.errors()]
        problem: object = "; ".join(map(": ".join, texts))
    except (AttributeError, json.JSONDecodeError) as failure:
        problem = failure
    raise ValueError(f"expected a JSON object of an issuer's settings: {problem}")


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(check_pattern(pattern.strip()) for pattern in text.split(",") if pattern.strip())


_TEXT: Final = of_text(str)
_PORT: Final = of_text(_port)
_COUNT: Final = of_text(_positive)
_SECONDS: Final = of_text(_seconds)
_TOKENS: Final = of_text(lambda text: read_tokens(Path(text)))
_TRUTH: Final = of_text(_truth)
_FILE: Final = of_text(Path)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server, independent of its services.

    Off loopback there is TLS or an explicit *insecure*, and no token without TLS: others on the network could
    use it.

    Attributes:
        port: gRPC port.
        host: address to listen on, also for metrics; loopback if not given.
        workers: threads that answer calls.
        max_page: largest page of a search.
        max_message_bytes: largest request.
        max_value: characters of one value of a message that is matched.
        max_calls: calls at once; more are refused with RESOURCE_EXHAUSTED.
        max_connections: connections at once; more are closed.
        handshake_seconds: time for a new connection's TLS and HTTP/2 handshakes.
        grace_seconds: time for running calls at shutdown.
        metrics_port: HTTP port of the Prometheus metrics; none: no metrics.
        tls_certificate: certificate chain (PEM).
        tls_key: private key (PEM).
        tls_client_ca: clients must show a certificate of this authority (PEM).
        jwt: issuer of JSON Web Tokens, as JSON: issuer, audience, jwks (URL of its keys), ….
        tokens: accepted bearer tokens: tokens.yaml, or one a line.
        insecure: true: serve without TLS to other machines, and without tokens.
        reflection: false: no server reflection.
        allow_destinations: subjects that destinations may be, wildcards allowed, with commas; none: all but $…,
            _INBOX.….
        log_level: debug, info, warning or error.
    """

    port: int = option(_PORT, 8080)
    host: str = option(_TEXT, "127.0.0.1")
    workers: int = option(_COUNT, 16)
    max_page: int = option(_COUNT, 1_000)
    max_message_bytes: int = option(_COUNT, 4 << 20)
    max_value: int = option(_COUNT, 65_536)
    max_calls: int = option(_COUNT, 1_000)
    max_connections: int = option(_COUNT, 1_000)
    handshake_seconds: float = option(_SECONDS, 10.0)
    grace_seconds: float = option(_SECONDS, 10.0)
    metrics_port: int | None = option(_PORT, None)
    tls_certificate: Path | None = option(_FILE, None, name="API_TLS_CERT")
    tls_key: Path | None = option(_FILE, None, secret=True)
    tls_client_ca: Path | None = option(_FILE, None)
    jwt: JwtSettings | None = option(of_text(_jwt), None)
    tokens: tuple[AcceptedToken, ...] = option(_TOKENS, (), name="API_TOKENS_FILE", secret=True)
    insecure: bool = option(_TRUTH, False)
    reflection: bool = option(_TRUTH, True)
    allow_destinations: tuple[str, ...] = option(of_text(_patterns), ())
    log_level: str = option(of_text(str.lower), "info", name="LOG_LEVEL")

    def __post_init__(self) -> None:
        mistakes: list[Mistake] = []
        if (self.tls_certificate is None) != (self.tls_key is None):
            mistakes.append(Mistake("API_TLS_CERT, API_TLS_KEY", "TLS needs both, one was given"))
        if self.tls_client_ca is not None and self.tls_certificate is None:
            mistakes.append(Mistake("API_TLS_CLIENT_CA", "client certificates need API_TLS_CERT and API_TLS_KEY"))
        paths = (self.tls_certificate, self.tls_key, self.tls_client_ca)
        missing = (path for path in paths if path is not None and not path.is_file())
        mistakes += [Mistake("TLS", f"there is no file {str(path)!r}") for path in missing]
        if self.tls_certificate is None and not is_loopback(self.host):
            mistakes += self._in_the_open()
        if self.workers < _FEWEST_WORKERS:
            mistakes.append(Mistake("API_WORKERS", f"expected {_FEWEST_WORKERS} or more, found {self.workers}"))
        if self.log_level not in _LEVELS:
            mistakes.append(Mistake("LOG_LEVEL", f"expected one of {', '.join(_LEVELS)}, found {self.log_level!r}"))
        if mistakes:
            raise ConfigError(mistakes, what="bad server settings")

    def _in_the_open(self) -> list[Mistake]:
        """Return the mistakes of an address that is reachable from outside without TLS."""
        cure = "give --tls-cert and --tls-key (API_TLS_CERT, API_TLS_KEY)"
        if not self.insecure:
            risk = "would serve in the clear to other machines"
            choice = "--insecure (API_INSECURE=true), as in a container whose port is published on 127.0.0.1 alone"
            return [Mistake("API_HOST", f"{self.host} {risk}: {cure}, or {choice}")]
        if self.tokens or self.jwt is not None:
            return [Mistake("API_TOKENS_FILE", f"tokens without TLS can be read by others on the way: {cure}")]
        return []

    @property
    def large(self) -> int:
        """Number of large messages matched at once, on threads beside the *workers*."""
        return max(1, self.workers // 4)

    def tenants(self) -> set[str | None]:
        """Return the tenants of the tokens; None (the whole store) without a tenant or without tokens."""
        # Tenants of an issuer's tokens are not known before they call.
        return {token.caller.tenant for token in self.tokens} or (set() if self.jwt else {None})

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **flags: object) -> Self:
        """Return the settings of the variables; *flags* that are not None take precedence.

        Raises:
            ConfigError: lists every variable that cannot be read.
        """
        mistakes: list[Mistake] = []
        values = read_options(options_of(cls, _variable), environment, mistakes)
        if mistakes:
            raise ConfigError(mistakes, what="bad environment")
        known = {setting.name for setting in fields(cls)}
        values |= {name: value for name, value in flags.items() if value is not None and name in known}
        return cls(**values)


def _variable(name: str) -> str:
    return f"API_{name.upper()}"


OPTIONS: Final = (
    Option("DB_URI", _TEXT, "where subscriptions are kept: sqlite:///file.db, mongodb://host"),
    Option("DB_NAME", _TEXT, "database name (MongoDB)"),
    Option("DB_TABLE_NAME", _TEXT, "collection name (MongoDB)"),
    Option(
        "API_KIWI_TREE_COMPLETE_URI",
        _TEXT,
        "kiwi-tree service for patterns of whole values; none: the embedded index",
    ),
    Option("API_KIWI_TREE_PARTIAL_URI", _TEXT, "kiwi-tree service for patterns of lexemes; none: the embedded index"),
    *options_of(ServerSettings, _variable).values(),
)
"""Every variable that a server reads; the first six are the original's."""


class KiwiTreeServicer(ServiceServicer):
    """Translates between the wire and a registry."""

    def __init__(self, registry: PatternRegistry) -> None:
        self._registry = registry

    def Create(self, request: pb.KeyPatternRequest, context: grpc.ServicerContext) -> Empty:  # noqa: ARG002, N802
        """Register a pair."""
        self._registry.create(request.key, request.pattern)
        return Empty()

    def LockCreate(self, request: pb.KeyPatternRequest, context: grpc.ServicerContext) -> Empty:  # noqa: ARG002, N802
        """Stop its creation."""
        self._registry.lock_create(request.key, request.pattern)
        return Empty()

    def UnlockCreate(self, request: pb.KeyPatternRequest, context: grpc.ServicerContext) -> Empty:  # noqa: ARG002, N802
        """Allow it again."""
        self._registry.unlock_create(request.key, request.pattern)
        return Empty()

    def Delete(self, request: pb.KeyPatternRequest, context: grpc.ServicerContext) -> Empty:  # noqa: ARG002, N802
        """Remove it."""
        self._registry.delete(request.key, request.pattern)
        return Empty()


class KiwiTreeClient:
    """A `PatternRegistry` behind ``host:port`` or ``http://host:port``, the forms that the original documents."""

    def __init__(self, address: str, *, timeout: float = 5.0) -> None:
        self._address = (urlsplit(address).netloc if "://" in address else address).rpartition("@")[2]
        self._channel = grpc.insecure_channel(self._address)
        self._stub = ServiceStub(self._channel)
        self._timeout = timeout

    def create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.create`."""
        self._call(self._stub.Create, key, pattern)

    def lock_create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.lock_create`."""
        self._call(self._stub.LockCreate, key, pattern)

    def unlock_create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.unlock_create`."""
        self._call(self._stub.UnlockCreate, key, pattern)

    def delete(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.delete`."""
        self._call(self._stub.Delete, key, pattern)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _call(self, method: Callable[..., Empty], key: str, pattern: str) -> None:
        try:
            with translated():
                method(pb.KeyPatternRequest(key=key, pattern=pattern), timeout=self._timeout)
        except StoreUnavailableError as failure:
            # Otherwise the client would assume that this service is unreachable.
            raise StoreUnavailableError(f"the kiwi-tree service at {self._address}: {failure}") from failure


def registries(environment: Mapping[str, str], resources: ExitStack) -> KiwiTrees | None:
    """The kiwi-tree services that the environment names, as the original service has them; None where it does not.

    Raises:
        SubscriptionInvalidError: it names one of the two.
    """
    addresses = [environment.get(f"API_KIWI_TREE_{kind}_URI", "") for kind in ("COMPLETE", "PARTIAL")]
    if not any(addresses):
        return None
    if not all(addresses):
        raise SubscriptionInvalidError(
            "API_KIWI_TREE_COMPLETE_URI and API_KIWI_TREE_PARTIAL_URI belong together: one is not set"
        )
    complete, partial = (KiwiTreeClient(address) for address in addresses)
    for registry in (complete, partial):
        resources.callback(registry.close)
    return KiwiTrees(complete, partial)


_REFLECTION = (reflection.SERVICE_NAME, "grpc.reflection.v1.ServerReflection")
"""Names of reflection: the messages of v1, which the library lacks, are those of v1alpha."""

_HEALTH_SECONDS = 5.0

S = TypeVar("S")
_IDLE_SECONDS = 600
"""Time after which a connection without calls is closed; clients open another one when they call again."""
_PING_SECONDS = 60
_PONG_SECONDS = 20
_FEWEST_STREAMS = 100
_METADATA_BYTES = 16 << 10
_MAX_PENDING = 100_000
"""Calls that gRPC holds until they get a thread or are refused."""


class _Health(health.HealthServicer):  # type: ignore[misc]  # grpc has no types
    """Health of each service, and the list of all, which the library's class does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, int] = {}

    def set(self, service: str, status: int) -> None:
        """Set the state of a service."""
        self._states[service] = status
        super().set(service, status)

    def List(  # noqa: N802
        self,
        request: health_pb2.HealthListRequest,  # noqa: ARG002
        context: grpc.ServicerContext,  # noqa: ARG002
    ) -> health_pb2.HealthListResponse:
        """Return the state of every service."""
        states = {name: health_pb2.HealthCheckResponse(status=state) for name, state in dict(self._states).items()}
        return health_pb2.HealthListResponse(statuses=states)


class RpcServer:
    """A gRPC server with health, reflection, logs and metrics around the services that are added.

    ``with`` starts it and stops it gracefully. `port` is known once it runs, also if a free one was requested.

    Args:
        settings: settings of the server.
        check: raises a TurnoutError while the server cannot do its work; health says so then.
        threads: for calls that wait for the store; without them they share the threads of all calls.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        check: Callable[[], object] = lambda: None,
        threads: StoreThreads | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = CallMetrics()
        self.log = logger(settings.log_level)
        self.stopping = threading.Event()
        self.port = 0
        self.metrics_port: int | None = None
        self._check = check
        self._threads = threads
        self._names: list[str] = []
        self._health = _Health()
        # Half of the threads stay for calls with tokens that are known.
        tokens = Tokens(settings.tokens, waiting=max(1, settings.workers // 2), jwt=settings.jwt)
        self._calls = Calls(log=self.log, metrics=self.metrics, tokens=tokens, threads=threads)
        self._checker = Background(
            "check of the store for gRPC",
            self._say_health,
            every=_HEALTH_SECONDS,
            delay=_HEALTH_SECONDS,
            longest=_HEALTH_SECONDS,
        )
        self._pool = ThreadPoolExecutor(settings.workers + settings.large, thread_name_prefix="turnout-rpc")
        self._server = grpc.server(
            self._pool,
            interceptors=[self._calls],
            maximum_concurrent_rpcs=settings.max_calls,
            options=[
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                # Answers are bounded by pages and parts; the default would bound them again, at 4 MB.
                ("grpc.max_send_message_length", -1),
                # Two servers on one port would each get some of the calls.
                ("grpc.so_reuseport", 0),
                *_connection_options(settings),
            ],
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def add(self, name: str, add_to_server: Callable[[S, grpc.Server], None], servicer: S) -> None:
        """Offer a service under its full name."""
        add_to_server(servicer, self._server)
        self._names.append(name)

    def start(self) -> Self:
        """Listen.

        Raises:
            ConfigError: the address cannot be listened on, or the certificates cannot be read.
        """
        if self.settings.reflection:
            names = [*self._names, health.SERVICE_NAME, *_REFLECTION]
            reflect = grpc.stream_stream_rpc_method_handler(
                reflection.ReflectionServicer(names).ServerReflectionInfo,
                request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
                response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
            )
            offered = [
                grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": reflect}) for name in _REFLECTION
            ]
            self._server.add_generic_rpc_handlers(offered)
        address = f"{self.settings.host}:{self.settings.port}"
        try:
            credentials = self._credentials()
            self.port = (
                self._server.add_insecure_port(address)
                if credentials is None
                else self._server.add_secure_port(address, credentials)
            )
        except (RuntimeError, OSError, ValueError) as failure:
            raise ConfigError([Mistake("API_PORT", f"cannot listen on {address}: {failure}")]) from failure
        if self.settings.metrics_port is not None:
            self.metrics_port = self._serve_metrics(self.settings.metrics_port)
        self._server.start()
        self._say_health()
        self._checker.start()
        self.log.info("serving", port=self.port, services=self._names, metrics_port=self.metrics_port)
        return self

    def _serve_metrics(self, port: int) -> int:
        host = self.settings.host
        try:
            return self.metrics.serve(port, host.strip("[]"))
        except OSError as failure:
            raise ConfigError([Mistake("API_METRICS_PORT", f"cannot listen on {host}:{port}: {failure}")]) from failure

    def _credentials(self) -> grpc.ServerCredentials | None:
        if self.settings.tls_certificate is None or self.settings.tls_key is None:
            return None
        files = [self.settings.tls_key, self.settings.tls_certificate, self.settings.tls_client_ca]
        changes = FileChanges(file for file in files if file is not None)

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            """Return what the files have now; None as long as they have not changed, or cannot be read."""
            if not changes.found():
                return None
            try:
                return self._certificates()
            except (OSError, ValueError) as failure:
                self.log.warning("the renewed certificate cannot be used, the former one holds", problem=str(failure))
                return None

        return grpc.dynamic_ssl_server_credentials(
            self._certificates(), renewed, require_client_authentication=self.settings.tls_client_ca is not None
        )

    def _certificates(self) -> grpc.ServerCertificateConfiguration:
        """Return the certificates as their files have them.

        Raises:
            OSError: a file cannot be read.
            ValueError: certificate and key do not belong together.
        """
        assert self.settings.tls_certificate is not None
        assert self.settings.tls_key is not None
        certificate, key = self.settings.tls_certificate, self.settings.tls_key
        # gRPC would end handshakes with a pair that does not fit, which is being written just now.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        authority = self.settings.tls_client_ca
        return grpc.ssl_server_certificate_configuration(
            [(key.read_bytes(), certificate.read_bytes())],
            root_certificates=authority.read_bytes() if authority else None,
        )

    def _say_health(self) -> None:
        state = health_pb2.HealthCheckResponse.NOT_SERVING
        try:
            with within(_HEALTH_SECONDS):
                self._check()
            state = health_pb2.HealthCheckResponse.SERVING
        except TurnoutError as problem:
            self.log.warning("not healthy", problem=str(problem))
        finally:
            for name in ("", *self._names):
                self._health.set(name, state)

    def stop(self) -> None:
        """Report the shutdown to health checks, let running calls end within the grace period, and close."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        self._health.enter_graceful_shutdown()
        deadline = time.monotonic() + self.settings.grace_seconds
        self._calls.drain(self.settings.grace_seconds)
        self._server.stop(max(0.0, deadline - time.monotonic())).wait()
        self._checker.close()
        self._pool.shutdown(wait=True)
        if self._threads is not None:
            self._threads.close()
        self.metrics.close()
        self.log.info("stopped")

    def wait(self, until: threading.Event) -> None:
        """Serve until the event is set, then stop."""
        until.wait()
        self.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _connection_options(settings: ServerSettings) -> list[tuple[str, int]]:
    """Return the options that bound connections, and what one of them may take of the others' share."""
    return [
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.server_handshake_timeout_ms", max(1, round(settings.handshake_seconds * 1_000))),
        ("grpc.max_connection_idle_ms", _IDLE_SECONDS * 1_000),
        # A vanished peer is detected, and its streams end.
        ("grpc.keepalive_time_ms", _PING_SECONDS * 1_000),
        ("grpc.keepalive_timeout_ms", _PONG_SECONDS * 1_000),
        # Calls above *max_calls* are answered with RESOURCE_EXHAUSTED; gRPC's own limits would break their streams.
        ("grpc.http.overload_protection", 0),
        ("grpc.server.max_pending_requests", _MAX_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING),
        ("grpc.max_concurrent_streams", max(_FEWEST_STREAMS, settings.max_calls // 4)),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", 2 * _METADATA_BYTES),
    ]


def subscriptions_server(
    store: Store,
    settings: ServerSettings,
    *,
    kiwi_trees: KiwiTrees | None = None,
    tenants: Tenants | None = None,
    threads: StoreThreads | None = None,
    feeds: FeedAccess | None = None,
    comparing: Comparing | None = None,
) -> RpcServer:
    """The subscriptions service over a store: the original's API, matching, storage for clients, and *feeds*.

    *comparing* compares two sets of subscriptions on the last records of a route.

    It reads everything in the store first, to index it; unless it is given *tenants*, which have their indexes.
    """
    server = RpcServer(settings, check=store.revision, threads=threads or StoreThreads())
    rights = Rights.of(settings.allow_destinations)
    tenants = tenants or Tenants(
        store, settings.tenants(), kiwi_trees=kiwi_trees, max_page=settings.max_page, rights=rights
    )
    # A quarter of the threads is reserved for short calls.
    streams = Slots(max(1, settings.workers * 3 // 4), "too many streams are open; API_WORKERS sets how many may be")
    matching = MatchingServicer(
        tenants,
        bounds=MessageBounds(value=settings.max_value),
        streams=streams,
        max_large=settings.large,
        stopping=server.stopping,
    )
    server.add(
        "subscriptions.Service",
        subscriptions_pb2_grpc.add_ServiceServicer_to_server,
        SubscriptionsServicer(tenants),
    )
    server.add("turnout.subscriptions.v1.Matching", matching_pb2_grpc.add_MatchingServicer_to_server, matching)
    server.add(
        "turnout.subscriptions.v1.Storage",
        matching_pb2_grpc.add_StorageServicer_to_server,
        # A bulk holds its thread for as long as its stream lasts.
        StorageServicer(tenants, max_bulks=max(1, settings.workers // 2), comparing=comparing),
    )
    if feeds is not None:
        servicer = FeedsServicer(feeds, streams=streams, stopping=server.stopping)
        server.add("turnout.feeds.v1.Feeds", feeds_pb2_grpc.add_FeedsServicer_to_server, servicer)
    server.metrics.watch_index(tenants.indexed, tenants.revision)
    return server


def kiwi_tree_server(registry: PatternRegistry, settings: ServerSettings) -> RpcServer:
    """The kiwi-tree service over a registry."""
    server = RpcServer(settings)
    server.add("kiwiTree.Service", kiwi_tree_pb2_grpc.add_ServiceServicer_to_server, KiwiTreeServicer(registry))
    return server
