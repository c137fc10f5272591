"""A whole server: its parts, their order of start, and their end."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from turnout.base.background import Background
from turnout.errors import ConfigError, Mistake, RouteError, RunError, SubscriptionError, TurnoutError, message_of
from turnout.history.feed import FeedPage
from turnout.routes import Route
from turnout.rpc.caller import Caller, Tenants
from turnout.rpc.server import ServerSettings, registries, subscriptions_server
from turnout.rpc.status import RefusedError
from turnout.runtime.cursors import cursor_in
from turnout.server.config import HaPart, ServerConfig
from turnout.server.deliveries import ScheduledDeliveries, WebhookDeliveries
from turnout.server.election import Elector, Leadership, lease_store
from turnout.server.errors import RETRY_SECONDS, status_of
from turnout.server.feeds import Feed
from turnout.server.health import Health, LossMonitor, Survey, reach_all
from turnout.server.inputs import Intake
from turnout.server.listener import HttpServer, LimitedProtocol, LimitedWebSocket
from turnout.server.metrics import Metrics, Push, endpoint_of
from turnout.server.oidc import with_sessions
from turnout.server.rest.app import TracedApp, build_app, guarded
from turnout.server.rest.dependencies import Parts
from turnout.server.routes.events import Events, Recorder
from turnout.server.routes.routes import Routes
from turnout.server.routes.state import State
from turnout.server.routes.supervisor import Runner
from turnout.server.routes.table import Files, RouteTexts
from turnout.server.sandbox import Matchers, import_effect
from turnout.server.security import ANONYMOUS, Authenticator, Bodies, Entrance, TokenFile, allowed_hosts
from turnout.server.standby import StandbyApp, folder_of_term
from turnout.subjects.pattern import Rights
from turnout.subscriptions import open_store
from turnout.subscriptions.import_set import Effect
from turnout.subscriptions.past import Snapshot
from turnout.subscriptions.service import KiwiTrees
from turnout.subscriptions.store import BoundedPool, Store, StoreThreads
from turnout.traces.spans import TraceSettings

_log = logging.getLogger("turnout.server")

P = ParamSpec("P")
T = TypeVar("T")


def grpc_settings(config: ServerConfig, environment: Mapping[str, str]) -> ServerSettings:
    """Return the service's settings, from the environment and the configuration, which takes precedence.

    Raises:
        ConfigError: lists every setting that cannot be used.
    """
    own = {
        "API_HOST": config.grpc_address.host,
        "API_PORT": str(config.grpc_address.port),
        "API_INSECURE": str(config.insecure).lower(),
        "LOG_LEVEL": config.log_level,
    }
    if config.tls is not None:
        own |= {"API_TLS_CERT": str(config.tls.cert), "API_TLS_KEY": str(config.tls.key)}
        own |= {"API_TLS_CLIENT_CA": str(config.tls.client_ca)} if config.tls.client_ca else {}
    if config.tokens is not None:
        own["API_TOKENS_FILE"] = str(config.tokens)
    return ServerSettings.from_environment({**environment, **own}, jwt=config.jwt)


def tenants_of(store: Store, settings: ServerSettings, kiwi_trees: KiwiTrees | None = None) -> Tenants:
    """Return the indexes and use cases of gRPC and HTTP; the whole store's index is built immediately."""
    return Tenants(
        store,
        {None, *settings.tenants()},
        kiwi_trees=kiwi_trees,
        max_page=settings.max_page,
        rights=Rights.of(settings.allow_destinations),
    )


class FeedCalls:
    """Feeds for gRPC, with REST's readers, threads, limits and texts.

    Attributes:
        parts: the parts of the server; None while it starts.
    """

    def __init__(self, parts: Parts | None = None) -> None:
        self.parts = parts

    def open(self, caller: Caller, subscription_id: str, route: str) -> FeedCall:
        """Return the feed of a caller's subscription.

        Raises:
            RefusedError: the server starts, or no such route stores feeds.
        """
        parts = self.started()
        with _refusals():
            feed = Feed.of(parts.feeds, parts.routes, route or None, caller, subscription_id)
        return FeedCall(feed, parts.threads.servers)

    def started(self) -> Parts:
        """Return the parts of the server.

        Raises:
            RefusedError: there are none yet.
        """
        if self.parts is None:
            raise RefusedError.of_http(503, "the server is starting, or is a standby", RETRY_SECONDS[503])
        return self.parts


@dataclass(frozen=True, slots=True)
class FeedCall:
    """Feed of one call. Cursors are texts."""

    feed: Feed
    threads: BoundedPool

    def begin(self, after: str, reader: str) -> str:
        """Return the cursor to begin behind."""
        return after or (str(self._waited(self.feed.acknowledged, reader)) if reader else "0")

    def page(self, after: str, limit: int) -> FeedPage:
        """Return the page behind a cursor."""
        return self._waited(self.feed.page, cursor_in("after", after), limit)

    def acknowledge(self, reader: str, cursor: str) -> None:
        """Move the position of a named reader forward."""
        self._waited(self.feed.acknowledge, reader, cursor_in("ack.cursor", cursor))

    @contextmanager
    def following(self) -> Iterator[None]:
        """Count the feed as followed."""
        with _refusals():
            self.feed.feeds.begin_following()
        try:
            yield
        finally:
            self.feed.feeds.end_following()

    def _waited(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run *work* on a thread for requests to servers, as REST does."""
        with _refusals():
            self.threads.check()
            result: T = self.threads.submit(work, *args, **named).result()
            return result


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise the refusals that correspond to REST's answers; errors about subscriptions have statuses of their own."""
    try:
        yield
    except SubscriptionError:
        raise
    except TurnoutError as failure:
        status = status_of(failure)
        raise RefusedError.of_http(status, message_of(failure), RETRY_SECONDS.get(status)) from failure


_FLUSH_SECONDS = 5.0
_ALIVE_SECONDS = 2.0
_LEASE_SECONDS = 0.05
"""Seconds between two looks whether this server leads."""
_GRACE_SECONDS = 5
_WEBSOCKET_BYTES = 64 << 10
_BACKLOG = 512

RunnerOf = Callable[[ServerConfig, Path, list[Route]], Runner]
"""Makes what runs routes, from the configuration, the state folder and the routes that are known."""

Pages = Callable[[FastAPI, Authenticator | None, ServerConfig], Entrance]
"""Adds pages to the application, and returns the authentication of browsers."""


def spark_runner(config: ServerConfig, state: Path, routes: list[Route]) -> Runner:
    """Return a runner on Spark with the settings of the configuration."""
    from turnout.spark.running.job import Application

    return Application(
        routes,
        master=config.spark.master,
        properties={name: str(value) for name, value in config.spark.properties.items()},
        log=config.spark.log or state / "spark.log",
    )


class RouteServer:
    """Server of ``turnout serve``. ``with`` starts it, and stops it after the last micro-batches.

    Args:
        config: configuration of the server.
        paths: the folders and files of routes.
        config_file: not a route, even in a folder of routes.
        environment: the variables of the subscriptions service, and OpenTelemetry's.
        runner_of: makes what runs routes.
        pages: adds the console to the application.

    Attributes:
        recorder: writes down what becomes of the routes; there once the server has started.
        authenticator: authenticates callers; None if none are needed. There once the server has started.
    """

    recorder: Recorder
    authenticator: Authenticator | None

    def __init__(
        self,
        config: ServerConfig,
        paths: Sequence[Path],
        *,
        config_file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        runner_of: RunnerOf = spark_runner,
        pages: Pages | None = None,
    ) -> None:
        self.config = config
        self.port = config.address.port
        self.grpc_port: int | None = None
        self._environment = environment or {}
        self._files = Files(paths, config=config_file)
        first = paths[0] if paths[0].is_dir() else paths[0].parent
        self._state_folder = config.state or first.absolute() / ".turnout" / "server"
        self._runner_of = runner_of
        self._pages = pages
        self._resources = ExitStack()
        self._threads = StoreThreads()
        self._feed_calls = FeedCalls()
        self._metrics = Metrics()
        self._tenants: Tenants | None = None
        self._events: Events | None = None
        self._standby: StandbyApp | None = None
        self._leadership: Leadership | None = None
        self._current_routes: Callable[[], dict[str, Route]] = dict
        self._webhooks = WebhookDeliveries(lambda: self._current_routes(), publish=self._publish)
        self._resources.callback(self._threads.close)

    @property
    def url(self) -> str:
        """URL of the server."""
        host = self.config.address.host
        scheme = "https" if self.config.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._leadership is not None:
            self._leadership.announce()
        self._resources.close()

    def _start(self) -> None:
        """Start the parts in the order of their dependencies; they end in reverse order."""
        # An address that is taken should not take ten seconds to be noticed.
        listening = self._listen()
        if self.config.ha is not None:
            self._stand_by(self.config.ha, listening)
        else:
            self._serve_http(self._lead(), listening)

    def _stand_by(self, ha: HaPart, listening: socket.socket) -> None:
        """Answer by the leader, start what routes need, and stand for election; `wait` leads."""
        tls = ssl.create_default_context(cafile=ha.ca)
        if (own := self.config.tls) is not None and own.client_ca is not None:
            # The leader asks its standbys as it asks others.
            tls.load_cert_chain(own.cert, own.key)
        url = ha.url or self.url
        # For what is about this process; all else is in the folder of a term.
        self._state_folder = ha.folder / "servers" / f"{socket.gethostname()}-{self.port}"
        store = lease_store(ha.lease, ha.name, ha.seconds, ha.options)
        elector = Elector(store, f"{socket.gethostname()} {os.getpid()} {token_hex(4)}", url, ha.seconds)
        self._standby = StandbyApp(elector, url, tls)
        self._serve_http(self._standby, listening)
        self._serve_subscriptions()
        state = self._resources.enter_context(State(self._state_folder, self.config.retention))
        self.runner = self._runner_of(self.config, self._state_folder, self._known_routes(state))
        self._resources.callback(self.runner.close)
        self._current_routes = self._routes_of_files(state)
        self._resources.callback(self._webhooks.close)
        self._webhooks.start()
        self._standby.is_warm = self.runner.guard(elector.permit)
        self._leadership = Leadership(elector, store, self._reaches_all)
        self._resources.callback(self._leadership.close)
        self._leadership.start()
        _log.info("standing by for the lease %r, as %s", ha.name, url)

    def _take_over(self, ha: HaPart, standby: StandbyApp, term: int) -> None:
        """Lead: the routes begin where the leader before has ended."""
        _log.warning("leading from now on, in term %d", term)
        folder = folder_of_term(ha.folder, term, self._files.paths)
        self._state_folder = folder / "server"
        self.config = self.config.model_copy(update={"checkpoints": folder / "checkpoints"})
        standby.app = self._lead()

        def stop() -> None:
            standby.app = None

        self._resources.callback(stop)

    def _lead(self) -> ASGIApp:
        """Start the routes and all that shows and controls them; return the HTTP application."""
        jwt = self.config.jwt
        tokens = TokenFile(self.config.tokens, jwt) if self.config.tokens or jwt else None
        self.authenticator = with_sessions(tokens, self.config.oidc)
        pushed_to = endpoint_of(self._environment)
        state = self._resources.enter_context(State(self._state_folder, self.config.retention))
        metrics = self._metrics
        if pushed_to is not None:
            # First begun and last ended: the last push has the last micro-batches.
            self._resources.enter_context(Push(metrics.registry, pushed_to, self._environment))
        if self._leadership is None:
            self._serve_subscriptions()
            self.runner = self._runner_of(self.config, self._state_folder, self._known_routes(state))
            self._resources.callback(self.runner.close)
        else:
            metrics.watch_leadership(self._leadership.elector)
        events = self._events = Events(state)
        recorder = self.recorder = Recorder(state, events, metrics)
        policy, checkpoints = self.config.restarts, self.config.checkpoints
        self.routes = Routes(
            self._files,
            self.runner,
            state,
            recorder,
            policy,
            checkpoints=checkpoints,
            variables=self.config.route_variables,
            store=self.config.store,
            shared=self.config.ha is not None,
        )
        self._resources.callback(self.routes.close)
        survey = Survey(self.routes.entries, observer=recorder.lagged)
        self._resources.callback(survey.close)
        metrics.watch_webhooks(self._webhooks.totals, self._webhooks.states)
        scheduled = ScheduledDeliveries(self._known_versions)
        self._resources.callback(scheduled.close)
        metrics.watch_scheduled(scheduled.states)
        losses = LossMonitor(state, self.routes.entries, self.config.health)
        metrics.watch(self.routes.entries, survey.lag, losses.report, self.routes.slots)
        tenants = self._tenants
        ask_store = tenants.store.revision if tenants else None
        health = Health(self.runner, survey, ask_store, self.routes.entries, self.config.ready_routes)
        health.start()
        self._resources.callback(health.close)
        matchers = self._resources.enter_context(Matchers())
        if tenants is not None and self.config.store is not None:
            matchers.know(self.config.store, tenants.live(ANONYMOUS.caller))
        intake = Intake(self.config.inputs)
        self._resources.callback(intake.close)
        intake.start()
        metrics.watch_inputs(intake)
        self.parts = Parts(
            self.routes,
            state,
            events,
            survey,
            metrics,
            health,
            losses,
            tenants,
            matchers,
            self._threads,
            intake=intake,
            webhooks=self._webhooks,
            elector=None if self._leadership is None else self._leadership.elector,
        )
        self._feed_calls.parts = self.parts
        self._resources.callback(self.parts.scrapes.shutdown, wait=False)
        self._resources.callback(self.parts.feeds.close)
        # Beside the routes' first steps, which take longer.
        self.routes.scan()
        app = self._guarded_app(self.parts, self.authenticator)
        survey.start()
        self._current_routes = self._known_versions
        if self._leadership is None:
            self._resources.callback(self._webhooks.close)
            self._webhooks.start()
        scheduled.start()
        seconds = self.config.interval
        # Each on its own: what fails keeps nothing else from its work.
        for name, step, every in (
            ("watch of the route files", self.routes.scan, seconds),
            ("history of the counts", recorder.flush, _FLUSH_SECONDS),
            ("watch of the losses", losses.look_if_due, seconds),
        ):
            self._resources.enter_context(Background(name, step, every=every, delay=every))
        return app

    def _guarded_app(self, parts: Parts, authenticator: Authenticator | None) -> ASGIApp:
        """Return the HTTP application behind the checks of caller and host name."""
        unguarded = build_app(parts)
        app = guarded(
            unguarded,
            authenticator=authenticator,
            hosts=allowed_hosts(self.config.address.host, self._hosts()),
            entrance=self._pages(unguarded, authenticator, self.config) if self._pages else Entrance(),
            bodies=Bodies(self.config.limits.buffered_bytes),
            inputs={name: part.max_body for name, part in self.config.inputs.items()},
            origins=self.config.cors_origins,
        )
        traces = TraceSettings.of(self._environment)
        return app if traces is None else TracedApp(app, traces)

    def _hosts(self) -> tuple[str, ...]:
        """Return the names of the server; standbys reach it by that of its URL, where there are names at all."""
        hosts, ha = self.config.hosts, self.config.ha
        return (*hosts, urlsplit(ha.url).hostname or "") if hosts and ha is not None and ha.url else hosts

    def _routes_of_files(self, state: State) -> Callable[[], dict[str, Route]]:
        """Return what gives the routes of a server that does not lead: it delivers their webhooks, too."""
        known: tuple[dict[Path, str], dict[str, Route]] = {}, {}

        def routes() -> dict[str, Route]:
            nonlocal known
            texts = {name: file.text for name, file in self._files.scan().items()}
            if texts != known[0]:
                known = texts, {route.name: route for route in self._known_routes(state)}
            return known[1]

        return routes

    def _publish(self, kind: str, route: str, detail: Mapping[str, object]) -> None:
        """Publish an event of the webhooks; of a server that does not lead, the log has it."""
        if self._events is not None:
            self._events.publish(kind, route, detail)

    def _known_versions(self) -> dict[str, Route]:
        """Return the routes that run, or would run, by name."""
        return {entry.name: entry.version.route for entry in self.routes.entries() if entry.version is not None}

    def _listen(self) -> socket.socket:
        address = self.config.address
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listening = self._resources.enter_context(socket.socket(family))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address.host, address.port))
            listening.listen(_BACKLOG)
        except OSError as failure:
            raise ConfigError([Mistake("listen", f"cannot listen on {address}: {failure.strerror}")]) from failure
        self.port = int(listening.getsockname()[1])
        return listening

    def _serve_subscriptions(self) -> None:
        """Serve the store over gRPC, if there is one; a standby does, as the store is not its own."""
        if self.config.store is None:
            return
        store = open_store(self.config.store)
        self._resources.callback(store.close)
        trees = registries(self._environment, self._resources)
        settings = grpc_settings(self.config, self._environment)
        self._tenants = tenants_of(store, settings, trees)
        server = subscriptions_server(
            store,
            settings,
            tenants=self._tenants,
            threads=self._threads,
            feeds=self._feed_calls,
            comparing=self._import_effect,
        )
        self._metrics.add(server.metrics.registry)
        self._resources.enter_context(server)
        self.grpc_port = server.port

    def _import_effect(self, name: str, last: int, before: Snapshot, after: Snapshot) -> Effect:
        """See `turnout.subscriptions.import_set.Comparing`."""
        parts = self._feed_calls.started()
        with _refusals():
            return import_effect(parts.routes.entry(name), parts.matchers, last, before, after)

    def _known_routes(self, state: State) -> list[Route]:
        texts = RouteTexts(state, self._files.folder or Path(), None, variables=self.config.route_variables)
        routes = []
        for file in self._files.scan().values():
            # Mistakes of a file are reported in its turn.
            with suppress(RouteError):
                routes.append(texts.read(file.text, file.path, texts.author_of(file.text, file.path)))
        return routes

    def _reaches_all(self) -> bool:
        """Return True if all servers of the routes answer; a standby knows the routes by their files."""
        return reach_all(
            [end for route in self._current_routes().values() for end in (route.source, *route.sinks.values())]
        )

    def _serve_http(self, app: ASGIApp, listening: socket.socket) -> None:
        tls = self.config.tls
        config = uvicorn.Config(
            app,
            http=LimitedProtocol,
            log_config=None,
            access_log=self.config.log_level == "debug",
            server_header=False,
            lifespan="off" if app is not self._standby else "on",
            ws=LimitedWebSocket,
            ws_max_size=_WEBSOCKET_BYTES,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_certfile=str(tls.cert) if tls else None,
            ssl_keyfile=str(tls.key) if tls else None,
            ssl_ca_certs=str(tls.client_ca) if tls and tls.client_ca else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
        )
        try:
            # In its thread an error of a certificate would not be reported.
            config.load()
        except (ssl.SSLError, OSError) as failure:
            raise ConfigError([Mistake("tls", f"the certificate and the key cannot be used: {failure}")]) from failure
        server = HttpServer(config, self.config.limits)

        serving = Background("HTTP server", lambda: server.run(listening), longest=_ALIVE_SECONDS)

        def stop() -> None:
            serving.stop()
            # Otherwise the end would wait for listeners of events.
            if self._events is not None:
                self._events.close()
            server.stop()

        self._resources.callback(serving.join)
        serving.start()
        self._resources.callback(stop)

    def wait(self, stop: threading.Event) -> None:
        """Serve until the event is set, or, as the leader of several servers, until another one is to lead.

        Raises:
            RunError: the runner of the routes has ended, or the lease is lost: the process should be restarted.
        """
        looked_at = time.monotonic()
        while not stop.wait(_ALIVE_SECONDS if self._leadership is None else _LEASE_SECONDS):
            if time.monotonic() - looked_at >= _ALIVE_SECONDS:
                looked_at = time.monotonic()
                if not self.runner.alive():
                    raise RunError("the Spark session has ended: see its log; the server has to be started again")
            if self._leadership is not None and not self._keeps_leading(self._leadership.elector):
                return

    def _keeps_leading(self, elector: Elector) -> bool:
        """Lead if it is this server's turn; return False if it is to hand over.

        Raises:
            RunError: the lease is lost, or a standby leads as this server is cut off.
        """
        assert self.config.ha is not None
        assert self._standby is not None
        if elector.has_lost():
            raise RunError(
                f"the lease of term {elector.term} is lost, and another server may lead: nothing more is written; "
                "start this one again as a standby"
            )
        if elector.is_wanted:
            assert self._leadership is not None
            self._leadership.resign()
            raise RunError(
                f"the leadership of term {elector.term} has ended: a server of the routes cannot be reached from here, "
                "and a standby reaches all of them; start this one again as a standby"
            )
        if elector.term is not None and self._standby.app is None:
            self._take_over(self.config.ha, self._standby, elector.term)
        return not elector.hands_over
