"""The demo of webhooks: a year of flights, three subscriptions, and a local endpoint that fails one request in ten.

The same subscriptions are read as feeds afterwards, which have to give the same messages.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from aiohttp import web

from turnout.conditions import parse
from turnout.delivery.dispatcher import deliver
from turnout.delivery.failures import DeliveryCounts
from turnout.delivery.requests import Signer, message_id
from turnout.demo.year import Demo
from turnout.history.feed import FeedReader
from turnout.nats.wire import Connection, PullReader, Range, stream_info
from turnout.routes import Route
from turnout.routes.webhooks import WebhookEndpoint, WebhooksPart
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.credentials import new_secret
from turnout.subscriptions.delivery_settings import DeliverySettings


@dataclass(slots=True)
class Receiver:
    """Endpoint on a loopback address, which takes a message of each id once.

    Attributes:
        signer: has the secret that requests are signed with.
        fails_each: every so many requests fail with 503; 0 for none.
        url: its URL, while it is `serving`.
        ids: ids of the messages that it has taken.
        requests: how many it had.
        refused: how many of them it has failed on purpose.
        unverified: how many of them had a wrong signature.
        repeated: how many of them had the id of a message that it had taken.
    """

    signer: Signer
    fails_each: int = 0
    url: str = ""
    ids: set[str] = field(default_factory=set)
    requests: int = 0
    refused: int = 0
    unverified: int = 0
    repeated: int = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on a free port for as long as the block lasts."""
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        self.requests += 1
        if not self._is_signed(request, body):
            self.unverified += 1
            return web.Response(status=401)
        if self.fails_each and self.requests % self.fails_each == 0:
            self.refused += 1
            return web.Response(status=503)
        identity = request.headers["webhook-id"]
        self.repeated += identity in self.ids
        self.ids.add(identity)
        return web.Response(status=204)

    def _is_signed(self, request: web.BaseRequest, body: bytes) -> bool:
        identity, seconds, signature = (request.headers.get(f"webhook-{name}", "") for name in _SIGNED)
        if not identity or not seconds.isdecimal():
            return False
        return hmac.compare_digest(self.signer.signature(identity, int(seconds), body).encode(), signature.encode())


_SIGNED = ("id", "timestamp", "signature")


FAILS_EACH = 10
_DESTINATION = "webhook:receiver"
_STREAM = "DELIVERIES"
_INTERESTS = {
    "to-honolulu": "dest:HNL",
    "united-two-hours-late": "carrier:UA AND departure_delay>=120",
    "kennedy-to-boston": "origin:JFK AND dest:BOS",
}
"""Ids of the subscriptions, and their conditions."""


@dataclass(frozen=True, slots=True)
class WebhookResult:
    """Outcome of the deliveries.

    Attributes:
        expected: ``webhook-id`` → value of the messages that the route has stored for the endpoint.
        feeds: the same of the messages in the feeds of the subscriptions.
        receiver: receiver with its requests.
        counts: counts of the dispatcher.
    """

    expected: Mapping[str, bytes]
    feeds: Mapping[str, bytes]
    receiver: Receiver
    counts: DeliveryCounts

    @property
    def is_complete(self) -> bool:
        """True if exactly the stored messages were received, with right signatures."""
        return bool(self.expected) and self.expected.keys() == self.receiver.ids and not self.receiver.unverified

    @property
    def has_same_feeds(self) -> bool:
        """True if the feeds have exactly the stored messages, byte by byte."""
        return self.expected == self.feeds

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as JSON has it."""
        return {
            "complete": self.is_complete,
            "expected": len(self.expected),
            "received": len(self.receiver.ids & self.expected.keys()),
            "feeds": len(self.feeds),
            "same_feeds": self.has_same_feeds,
            "refused": self.receiver.refused,
            "unverified": self.receiver.unverified,
            "repeated": self.receiver.repeated,
            "dispatcher": asdict(self.counts),
        }


class WebhookDemo(Demo):
    """The demo with three subscriptions, whose destination is a local endpoint.

    Its methods are called as those of `Demo`, then `deliver`.
    """

    @cached_property
    def _secret(self) -> str:
        return new_secret()

    def subscribe(self) -> None:
        """Store the subscriptions; their retries are quick, as the demo is short."""
        quick = DeliverySettings(retry=(0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0), concurrency=32)
        with closing(open_store(self.store)) as store:
            for id_, condition in _INTERESTS.items():
                store.create(Subscription([_DESTINATION], parse(condition), id=id_, delivery=quick))
        self.subscriptions = len(_INTERESTS)

    def route(self) -> Route:
        """Return the route, with feeds and a webhooks block; the endpoint's URL is known while it is served."""
        route = super().route()
        assert route.subscriptions is not None
        with_feeds = route.subscriptions.model_copy(update={"feeds": True})
        return replace(route, subscriptions=with_feeds, webhooks=self._webhooks("http://127.0.0.1/"))

    def _webhooks(self, url: str) -> WebhooksPart:
        endpoint = WebhookEndpoint(url=url, secrets=[self._secret])
        return WebhooksPart(stream=_STREAM, allow=["127.0.0.1/32"], endpoints={"receiver": endpoint})

    def deliver(self, stop: threading.Event) -> WebhookResult:
        """Deliver everything that the route has stored to an endpoint that is served meanwhile.

        Args:
            stop: ends it before everything is delivered.
        """
        receiver = Receiver(Signer([self._secret]), FAILS_EACH)

        async def delivered() -> DeliveryCounts:
            async with receiver.serving():
                route = replace(self.route(), webhooks=self._webhooks(receiver.url))
                return await deliver(route, stop, drain=True)

        counts = asyncio.run(delivered())
        return WebhookResult(self._stored(), self._feeds(stop), receiver, counts)

    def _stored(self) -> dict[str, bytes]:
        """Return ``webhook-id`` and value of each message that the stream has for the endpoint."""
        with Connection.open(self.server.url) as connection:
            last = stream_info(connection, _STREAM)["state"]["last_seq"]
            batches = PullReader(connection, Range(_STREAM, 1, last + 1)).batches()
            return {
                message_id(key.decode(), ""): value
                for batch in batches
                for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
            }

    def _feeds(self, stop: threading.Event) -> dict[str, bytes]:
        """Return ``webhook-id`` and value of each message in the feeds of the subscriptions."""
        messages: dict[str, bytes] = {}
        with FeedReader(self.route(), self.work / "checkpoint") as reader:
            for id_ in _INTERESTS:
                for page in reader.follow(id_, reader.start("earliest"), stop, limit=1_000):
                    messages |= {message_id(message.id or "", ""): message.value or b"" for message in page.messages}
                    if page.is_last:
                        break
        return messages
