"""A local HTTP endpoint that records requests, and deliveries for it in a stream of a real server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.nats.jetstream.support import fresh
from turnout.delivery.dispatcher import deliver, opened_queue
from turnout.delivery.failures import DeliveryCounts
from turnout.delivery.streams import DeliveryStreams
from turnout.embedded import NatsServer
from turnout.nats.jetstream import connect
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.destinations import delivery_subject

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

Answer = Callable[["Request"], "web.Response | Awaitable[web.Response]"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it was received."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    number: int
    method: str = "POST"


@dataclass(slots=True)
class Receiver:
    """Endpoint at *url*; *answer* decides what it says."""

    answer: Answer = lambda _: web.Response(status=204)
    url: str = ""
    requests: list[Request] = field(default_factory=list)

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Request(request.path, request.headers, await request.read(), len(self.requests) + 1, request.method)
        self.requests.append(seen)
        said = self.answer(seen)
        return said if isinstance(said, web.StreamResponse) else await said

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Receiver]:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
        try:
            yield self
        finally:
            await runner.cleanup()


class Hooks:
    """A route with webhooks on a real server, with streams of its own."""

    def __init__(self, url: str, receiver: Receiver, **endpoint: Any) -> None:
        self.name = fresh("HOOKS")
        self.server = url
        self.endpoint = {"url": receiver.url, "secrets": [SECRET], **endpoint}
        self.store_url = f"memory://{self.name}"
        self.store = open_store(self.store_url)
        self.allow = ["127.0.0.0/8"]
        self.others: dict[str, Any] = {}
        self.webhooks: dict[str, Any] = {}

    @property
    def sink(self) -> dict[str, Any]:
        """The sink that has the deliveries."""
        return {"format": "nats", "servers": self.server}

    @property
    def document(self) -> dict[str, Any]:
        """The route as a document."""
        webhooks = {
            "stream": self.name,
            "subject": f"{self.name}-out",
            "allow": self.allow,
            "secrets": [SECRET],
            "endpoints": {"e": self.endpoint, **self.others},
            **self.webhooks,
        }
        return {
            "name": self.name,
            "source": {"format": "nats", "servers": "nats://127.0.0.1:4222", "stream": "S"},
            "subscriptions": {"store": self.store_url},
            "webhooks": webhooks,
            "sink": self.sink,
        }

    @property
    def route(self) -> Route:
        """The route."""
        return Route.parse(json.dumps(self.document))

    def subscribe(self, id_: str, **delivery: Any) -> None:
        settings = DeliverySettings.from_mapping(delivery)
        self.store.create(Subscription(["d"], "a:1", id=id_, delivery=settings))

    async def publish(
        self,
        *bodies: bytes,
        to: str = "webhook:e",
        subscription: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        async with opened_queue(self.route):
            pass
        async with connect(self.server) as js:
            subject = delivery_subject(f"{self.name}-out", to, subscription)
            for number, body in enumerate(bodies):
                await js.publish(subject, body, headers=headers, msg_id=f"{subject}:{number}:{body[:40]!r}")

    async def deliver(self, seconds: float = 30.0) -> DeliveryCounts:
        """Deliver until nothing waits."""
        return await asyncio.wait_for(deliver(self.route, threading.Event(), drain=True), seconds)

    async def dead(self) -> list[tuple[bytes, dict[str, str]]]:
        """Dead letters: body and headers."""
        async with opened_queue(self.route) as queue:
            assert isinstance(queue, DeliveryStreams)
            info = await queue.dead.info()
            letters = [await queue.dead.get_message(number + 1) for number in range(info.state.last_seq)]
            return [(letter.data, {name: values[0] for name, values in letter.headers.items()}) for letter in letters]


def run(
    nats_server: NatsServer,
    answer: Callable[[Request], Any],
    work: Callable[[Hooks, Receiver], Any],
    **endpoint: Any,
) -> Receiver:
    """Do *work* with a receiver that answers so, and return the receiver."""
    receiver = Receiver(answer)

    async def all_of_it() -> None:
        async with receiver.serving():
            await work(Hooks(nats_server.url, receiver, **endpoint), receiver)

    asyncio.run(all_of_it())
    return receiver


def fine(_: Request) -> web.Response:
    """Take a request."""
    return web.Response(status=204)
