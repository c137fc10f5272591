"""Subscriptions service over gRPC, with the same store, index and feeds as HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from turnout.errors import SubscriptionError, TurnoutError, message_of
from turnout.history.feed import FeedPage
from turnout.rpc.caller import Caller, Tenants
from turnout.rpc.settings import ServerSettings
from turnout.rpc.status import RefusedError
from turnout.runtime.feeds.cursors import cursor_in
from turnout.server.config import ServerConfig
from turnout.server.feeds import Feed
from turnout.server.rest.dependencies import Parts
from turnout.server.rest.problems import RETRY_SECONDS, status_of
from turnout.subjects.rights import Rights
from turnout.subscriptions.service import KiwiTrees
from turnout.subscriptions.store import Store
from turnout.subscriptions.store_threads import BoundedPool

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
    return ServerSettings.from_environment({**environment, **own}, jwt=config.jwt_settings())


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
        parts = self.parts
        if parts is None:
            raise RefusedError.of_http(503, "the server is starting", RETRY_SECONDS[503])
        with _refusals():
            feed = Feed.of(parts.feeds, parts.routes, route or None, caller, subscription_id)
        return FeedCall(feed, parts.threads.servers)


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
