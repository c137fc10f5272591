"""Dispatcher: takes deliveries from their queue, posts them, and acknowledges what an endpoint has taken.

A message is acknowledged after its endpoint's 2xx, or when it is stored as a dead letter: at least once, with a
``webhook-id`` that does not change. A failed delivery without an order is given back to the queue until its next
attempt; one with an order stays in memory, and blocks those behind it. Whatever goes wrong with one delivery is
a failed attempt of that delivery, and keeps no other from its endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pkgutil import resolve_name
from typing import Final, TypeVar

from turnout.base.background import Tasks, keep_running, spread
from turnout.base.terminal import plural
from turnout.delivery.access import NO_HEADERS
from turnout.delivery.client import GONE, Client, Response, Target
from turnout.delivery.consent import Consents, Question
from turnout.delivery.failures import DeliveryCounts, DeliveryEvent, Failures, seconds_of
from turnout.delivery.guard import Proxies
from turnout.delivery.lane import Delivery, EndpointStatus, Lane, LastResponse
from turnout.delivery.queue import (
    AttemptLog,
    Backlog,
    Consent,
    DeadDelivery,
    DeliveryQueue,
    QueuedMessage,
    endpoint_key,
)
from turnout.delivery.requests import merged_headers, order_key, request_of, signed, traced_post
from turnout.delivery.settings import Capacity, Lanes
from turnout.errors import (
    ConfigError,
    ConnectionLostError,
    Mistake,
    StoreUnavailableError,
    StreamError,
    TurnoutError,
    message_of,
)
from turnout.routes import Route
from turnout.routes.endpoints.formats import format_of
from turnout.routes.webhooks import WebhooksPart
from turnout.runtime.leases import LeaseLostError
from turnout.runtime.preflight import make_webhook_streams
from turnout.subscriptions import open_store
from turnout.subscriptions.sealing import secret_keys
from turnout.subscriptions.store_url import existing
from turnout.subscriptions.tenants import tenant_of
from turnout.traces.spans import TraceSettings

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_NOT_ASKED: Final = Consent(is_granted=True, kind="none", at=0.0)
_UNAUTHORIZED: Final = 401
_BUSY: Final = (429, 503)
"""Statuses whose Retry-After speaks for the whole endpoint; that of others is about the message."""

_SERVER_SECONDS: Final = 1.0
_LONGEST_SERVER_SECONDS: Final = 30.0
_PARK_SECONDS: Final = (1.0, 60.0)
_QUOTA_PARK_SECONDS: Final = (1.0, 600.0)
"""Messages above a quota may be many: each comes back when its time is near, and not each minute."""

_END_SECONDS: Final = 10.0
"""Seconds that requests under way have at the end; a server waits 20 for its dispatchers, Kubernetes kills after 30."""

_CLAIM_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.02
_REFRESH_SECONDS: Final = 2.0
_MEASURE_SECONDS: Final = 15.0
_BEAT_SECONDS: Final = 10.0
"""A third of `turnout.delivery.streams.ACK_WAIT_SECONDS`: one lost report delays nothing."""


class Dispatcher:
    """Delivers the messages of a queue.

    Args:
        queue: has them.
        lanes: by subject.
        client: sends requests.
        log: of failed attempts.
        consents: consents of endpoints that subscriptions name.

    Attributes:
        counts: counts of messages and requests, which continue to grow.
        backlog: deliveries that waited at the last look, some seconds ago; None before the first.
        report: called with each change of an endpoint's state.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        lanes: Lanes,
        client: Client,
        log: AttemptLog,
        consents: Consents,
    ) -> None:
        self.counts = DeliveryCounts()
        self._queue = queue
        self._lanes = lanes
        self._client = client
        self._log = log
        self._consents = consents
        self._traces = TraceSettings.of_process()
        self.backlog: Backlog | None = None
        self._loop = asyncio.get_running_loop()
        self._held: dict[int, Delivery] = {}
        self._tasks = Tasks("a delivery over HTTP")
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._capacity = Capacity(lanes)
        self.report: Callable[[DeliveryEvent], None] = lambda _: None
        self._failures = Failures(queue, log, self.counts, lambda event: self.report(event))
        self._claimed: Hashable = None
        self._is_ending = False
        self._is_stopped = False
        self._unstored: dict[int, str] = {}
        """Sequence of a delivery → why its outcome could not be stored at the last attempt."""

    @property
    def name(self) -> str:
        """Name of the stream or topic."""
        return self._queue.name

    @property
    def under_way(self) -> int:
        """Number of requests that have no outcome yet."""
        return sum(lane.under_way for lane in self._lanes.all())

    @property
    def held(self) -> int:
        """Number of deliveries in memory."""
        return len(self._held)

    def endpoints(self) -> list[EndpointStatus]:
        """Return the state of all endpoints that have had deliveries; any thread may ask."""
        now = time.monotonic()
        return [EndpointStatus.of(lane, self._log, now) for lane in self._lanes.all()]

    async def run(self) -> None:
        """Deliver until cancelled; then let the requests under way end, and return undelivered messages.

        Raises:
            StreamError: the consumer was deleted, or the server does not answer.
        """
        name = self._queue.name
        keep = partial(keep_running, longest=_BEAT_SECONDS)
        background = [
            asyncio.create_task(keep(f"heartbeat of {name}", self._beat, every=_BEAT_SECONDS)),
            asyncio.create_task(keep(f"endpoints of {name}", self._lanes.refresh, every=_REFRESH_SECONDS)),
            asyncio.create_task(keep(f"disabled endpoints of {name}", self._log.refresh, every=_REFRESH_SECONDS)),
            asyncio.create_task(keep(f"backlog of {name}", self._measure, every=_MEASURE_SECONDS)),
            asyncio.create_task(keep(f"claim to deliver of {name}", self._check_claim, every=_CLAIM_SECONDS)),
        ]
        try:
            await self._pull()
        finally:
            self._is_ending = True
            try:
                await self._finish()
            finally:
                self._is_stopped = True
                self.counts.unfinished += self.under_way
                for task in background:
                    task.cancel()
                await self._tasks.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                for delivery in self._held.values():
                    delivery.message.nak_now()

    async def _finish(self) -> None:
        """Wait for the outcomes of requests under way, and until they are stored; no other request begins."""
        if under_way := self.under_way:
            _log.info("%s: %s under way may end before the dispatcher does", self._queue.name, _requests(under_way))
        deadline = self._loop.time() + _END_SECONDS
        while (self.under_way or self._tasks) and self._loop.time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
        if left := self.under_way:
            text = "%s: %s had no outcome within %g s, and may be repeated by the next dispatcher"
            _log.warning(text, self._queue.name, _requests(left), _END_SECONDS)

    # -- from the queue into lanes

    async def _pull(self) -> None:
        async with self._queue.messages(self._under_way) as messages:
            async for message in messages:
                try:
                    await self._take(message)
                except Exception as failure:  # noqa: BLE001 - one message keeps no other from its endpoint
                    await self._give_back(message, failure)

    def _under_way(self) -> list[QueuedMessage]:
        """Return the messages whose requests have no outcome yet, or one that is not stored."""
        return [delivery.message for delivery in self._held.values() if delivery.is_sent]

    async def _check_claim(self) -> None:
        """Continue after a lease that was over, and drop what others deliver now."""
        claimed = self._queue.claim()
        if claimed == self._claimed:
            return
        self._claimed = claimed
        self._failures.forget()
        self._lanes.forget()
        for lane in self._lanes.all():
            self._pump(lane)

    async def _take(self, message: QueuedMessage) -> None:
        is_repeated, wait = await self._queue.history_of(message)
        found = self._lanes.known(message.subject) or await self._opened(message.subject)
        if isinstance(found, str):
            await self._failures.give_up(Delivery(message, "", message.sequence), [], found, is_attempt=False)
        elif (delivery := self._accept(*found, message, is_repeated, wait)) is not None:
            await self._hold_or_park(found[0], delivery)

    async def _give_back(self, message: QueuedMessage, failure: Exception) -> None:
        """Return a message that cannot be taken to the queue, which has it again after a while."""
        what = f"{self._queue.name}: the message {message.sequence} cannot be taken now"
        is_known = isinstance(failure, TurnoutError | OSError)
        _log.warning("%s: %s", what, message_of(failure), exc_info=None if is_known else failure)
        # Without an answer of the server it comes back by itself.
        with contextlib.suppress(TurnoutError, OSError):
            await message.nak(spread(_PARK_SECONDS[1]))

    async def _opened(self, subject: str) -> tuple[Lane, str] | str:
        """Return the lane of a subject with the failures of its endpoint known, or why it has none."""
        found = await self._open(subject)
        if not isinstance(found, str):
            await self._failures.know(found[0].endpoint.destination, tenant_of(found[1]))
        return found

    async def _open(self, subject: str) -> tuple[Lane, str] | str:
        while True:
            try:
                return await self._lanes.open(subject)
            except StoreUnavailableError as failure:
                # Deliveries wait for the store, as their settings are unknown.
                _log.warning("%s: deliveries wait for the store: %s", self._queue.name, message_of(failure))
                await asyncio.sleep(_SERVER_SECONDS)

    def _accept(
        self, lane: Lane, subscription: str, message: QueuedMessage, is_repeated: bool, wait: float
    ) -> Delivery | None:
        """Put a message into its lane; return its delivery if the lane is full."""
        sequence = message.sequence
        known = self._held.get(sequence)
        if known is not None:
            # Redelivered while it waits: the newer one has the acknowledgement that counts.
            known.message = message
            known.has_failed = True
            return None
        delivery = Delivery(message, subscription, sequence, _key(lane, message), is_repeated)
        if self._is_over(lane, delivery):
            self._tasks.start(self._failures.discard(lane, delivery))
            return None
        if delivery.key is None and wait:
            lane.park(sequence, self._loop.time() + wait)
            self._tasks.start(self._nak(delivery, wait))
            return None
        if delivery.key is None and not self._capacity.has_space(lane):
            return delivery
        self._hold(lane, delivery)
        return None

    def _is_over(self, lane: Lane, delivery: Delivery) -> bool:
        """Return True if more messages wait for the endpoint than may; those that wait for a quota are not limited."""
        now = self._loop.time()
        if delivery.key is None and lane.awaits_quota(now):
            return False
        return lane.waiting(now) - (delivery.sequence in lane.parked) >= lane.settings.max_waiting

    def _hold(self, lane: Lane, delivery: Delivery) -> None:
        self._held[delivery.sequence] = delivery
        lane.add(delivery)
        self._pump(lane)

    async def _hold_or_park(self, lane: Lane, delivery: Delivery) -> None:
        if await self._capacity.wait(lane):
            self._hold(lane, delivery)
        else:
            await self._park(lane, delivery)

    async def _park(self, lane: Lane, delivery: Delivery) -> None:
        rate, now = lane.rate, self._loop.time()
        waiting = lane.waiting(now) / rate if rate else lane.held_back(now)
        least, most = _PARK_SECONDS if lane.quota is None else _QUOTA_PARK_SECONDS
        delay = spread(min(max(waiting, least), most), 0.75, 1.25)
        lane.park(delivery.sequence, now + delay)
        self.counts.parked += 1
        await self._nak(delivery, delay)

    async def _nak(self, delivery: Delivery, seconds: float) -> None:
        """Give a delivery back; without an answer of the server it comes back by itself."""
        with contextlib.suppress(TurnoutError, OSError):
            await delivery.message.nak(seconds)

    # -- from lanes to endpoints

    def _pump(self, lane: Lane) -> None:
        """Send a lane's permitted requests, and check again when its limits allow more."""
        if self._is_ending or self._queue.claim() is None:
            return
        now = self._loop.time()
        while (delivery := lane.take(now)) is not None:
            self._send(lane, delivery)
        wait = lane.wait(now)
        if not wait:
            return
        timer = self._timers.get(id(lane))
        if timer is not None and timer.when() <= now + wait:
            return
        if timer is not None:
            timer.cancel()
        self._timers[id(lane)] = self._loop.call_at(now + wait, self._pump_again, lane)

    def _pump_again(self, lane: Lane) -> None:
        self._timers.pop(id(lane), None)
        self._pump(lane)

    def _send(self, lane: Lane, delivery: Delivery) -> None:
        """Send one request, whose outcome `_answered` gets with a later turn of the loop."""
        delivery.is_sent = True
        self._make(lane, delivery, partial(self._send_request, lane, delivery))

    def _make(self, lane: Lane, delivery: Delivery, send: Callable[[], None]) -> None:
        """Make a request and send it; a record of which none can be made is its own failure."""
        try:
            send()
        except Exception as failure:  # noqa: BLE001 - whatever it is
            _log.warning("%s: no request for the message %s", self._queue.name, delivery.sequence, exc_info=failure)
            problem = f"no request can be made of it: {type(failure).__name__}: {failure}"
            self._loop.call_soon(self._answered, lane, delivery, Response.failure(problem, is_sent=False))

    def _send_request(self, lane: Lane, delivery: Delivery) -> None:
        endpoint = lane.endpoint
        done = partial(self._answered, lane, delivery)
        tenant = tenant_of(delivery.subscription)
        if self._log.disabled and self._log.is_disabled(endpoint.destination, tenant):
            reason = self._log.reason(endpoint.destination, tenant)
            gone = "the endpoint answered 410, and is disabled"
            text = f"not sent: {gone if reason == '410' else f'the endpoint is disabled by {reason}'}"
            self._loop.call_soon(done, Response(None, error=text, is_sent=False, is_disabled=True))
            return
        if endpoint.target is None:
            self._loop.call_soon(done, Response.failure(endpoint.problem, is_sent=False))
            return
        access, target = endpoint.access, endpoint.target
        secret = NO_HEADERS if access is None else access.headers()
        consent = self._consents.known(endpoint.destination, tenant) if endpoint.needs_consent else _NOT_ASKED
        if consent is None or secret is None:
            self._tasks.start(self._send_prepared(lane, delivery, target))
        elif not consent.is_granted:
            self._loop.call_soon(done, Response.failure(consent.problem, is_sent=False))
        else:
            lane.limits.allow(consent.rate)
            self._post(lane, delivery, target, secret)

    async def _send_prepared(self, lane: Lane, delivery: Delivery, target: Target) -> None:
        """Send a request after what has to be awaited: a token, or the consent of the endpoint.

        That there is no token is a failure of the endpoint.
        """
        endpoint, tenant = lane.endpoint, tenant_of(delivery.subscription)
        try:
            secret = NO_HEADERS if endpoint.access is None else await endpoint.access.awaited_headers(tenant)
            if endpoint.needs_consent:
                question = Question(
                    endpoint.destination, target, endpoint.signer, lane.names, secret, lane.settings.rate
                )
                consent = await self._consents.ask(question, tenant)
                lane.limits.allow(consent.rate)
                if not consent.is_granted:
                    self._answered(lane, delivery, Response.failure(consent.problem, is_sent=False))
                    return
        except Exception as failure:  # noqa: BLE001 - without an outcome the delivery would wait for ever
            self._answered(lane, delivery, Response.failure(message_of(failure)))
        else:
            self._make(lane, delivery, partial(self._post, lane, delivery, target, secret))

    def _post(self, lane: Lane, delivery: Delivery, target: Target, secret: Mapping[str, str]) -> None:
        """Send one request.

        Raises:
            Exception: no request can be made of the record.
        """
        if not self._queue.is_ours(delivery.message, begins=True):
            self._loop.call_soon(self._abandon, lane, delivery)
            return
        if self._queue.claim() is None:
            # The lease may have ended while a token or a consent was asked for.
            post = partial(self._post, lane, delivery, target, secret)
            self._loop.call_later(_CLAIM_SECONDS, self._make, lane, delivery, post)
            return
        settings, message, names = lane.settings, delivery.message, lane.names
        identity = self._failures.identity(delivery)
        headers, body = request_of(
            settings, identity, message.headers, message.data, lambda: message.timestamp, delivery.subscription, names
        )
        done: Callable[[Response], None] = partial(self._answered, lane, delivery)
        if self._traces is not None:
            headers, done = traced_post(self._traces, target, headers, done)
        if secret:
            headers = merged_headers(headers, secret)
        self.counts.requests += self._client.send(
            target,
            signed(headers, lane.endpoint.signer, body, int(time.time()), f"{target.url}", names),
            body,
            timeout=settings.timeout,
            max_response=settings.max_response,
            done=done,
            owner=tenant_of(delivery.subscription),
        )

    def _abandon(self, lane: Lane, delivery: Delivery) -> None:
        """Leave a delivery to the dispatcher that has it now."""
        lane.under_way -= 1
        lane.breaker.abandoned(self._loop.time())
        self._settle(lane, delivery)

    def _answered(self, lane: Lane, delivery: Delivery, response: Response) -> None:
        """Take the outcome of a request, and send the next one."""
        if self._is_stopped:
            return
        if (access := lane.endpoint.access) is not None and not response.is_success:
            # An endpoint may repeat what it was sent.
            response = replace(response, error=access.masked(response.error))
            if response.status == _UNAUTHORIZED and access.tokens is not None:
                access.tokens.refused()
        try:
            self._settle_or_conclude(lane, delivery, response)
        except Exception as failure:  # noqa: BLE001 - the calling connection cannot handle it
            self._tasks.start(self._leave(lane, delivery, failure))

    def _settle_or_conclude(self, lane: Lane, delivery: Delivery, response: Response) -> None:
        """Free a request's place in its lane, and end its delivery; a first success needs no task."""
        now = self._loop.time()
        lane.under_way -= 1
        lane.progressed += 1
        lane.is_stalled = False
        lane.last = LastResponse(time.time(), response)
        if not response.is_sent:
            lane.breaker.abandoned(now)
        elif response.is_success or response.status == GONE:
            lane.breaker.succeeded()
        else:
            lane.breaker.failed(now)
        self._note(lane, delivery, response, now)
        if response.is_success and not delivery.has_failed:
            try:
                delivery.message.ack_now()
            except (TurnoutError, OSError):
                # The outcome is known: not the request is repeated, but the acknowledgement.
                delivery.has_failed = True
            else:
                self.counts.delivered += 1
                self._settle(lane, delivery)
                return
        if not response.is_success:
            self.counts.failed += 1
        self.counts.not_sent += not response.is_sent
        self._pump(lane)
        self._tasks.start(self._conclude(lane, delivery, response))

    def _note(self, lane: Lane, delivery: Delivery, response: Response, now: float) -> None:
        """Note what an outcome says about the endpoint: its failures in a row, and the pause that it asks for."""
        failing = self._failures.failing
        if response.is_success:
            if failing:
                key = endpoint_key(lane.endpoint.destination, tenant_of(delivery.subscription))
                if key in failing:
                    self._tasks.start(self._failures.recovered(key))
            return
        if response.is_sent and response.status != GONE:
            self._failures.failed(lane.endpoint.destination, tenant_of(delivery.subscription))
        if response.status in _BUSY and response.retry_after:
            seconds = seconds_of(response.retry_after, datetime.now(UTC))
            if seconds:
                lane.limits.ask(now, seconds)

    async def _conclude(self, lane: Lane, delivery: Delivery, response: Response) -> None:
        try:
            if response.is_success:
                await self._delivered(lane, delivery)
            else:
                await self._failed(lane, delivery, response)
        except Exception as failure:  # noqa: BLE001 - a failure of one delivery, whatever it is
            await self._leave(lane, delivery, failure)

    @property
    def problem(self) -> str:
        """Why outcomes of requests, as dead letters, are not stored now, as a sentence; "" if all are."""
        problem = next(iter(reversed(tuple(self._unstored.values()))), None)
        if problem is None:
            return ""
        count = plural(len(self._unstored), "outcome")
        return f"{count} of deliveries wait to be stored, as dead letters or attempts: {problem}"

    async def _until_stored(self, delivery: Delivery, store: Callable[[], Awaitable[_Result]]) -> _Result:
        """Store the outcome of a request at the queue's server, again and again until it has it.

        The request is not repeated meanwhile: its outcome is known, and the endpoint has had it.
        """
        pause = _SERVER_SECONDS
        while True:
            try:
                if self._queue.claim() is None:
                    raise ConnectionLostError("the lease of this dispatcher is over, and not renewed yet")
                stored = await store()
            except LeaseLostError:
                self._unstored.pop(delivery.sequence, None)
                raise
            except (TurnoutError, OSError) as failure:
                self.counts.unstored += pause == _SERVER_SECONDS
                self._unstored[delivery.sequence] = message_of(failure)
                what = f"{self._queue.name}: the outcome of the message {delivery.sequence} is not stored"
                _log.warning("%s, next attempt in %g s: %s", what, pause, message_of(failure))
            else:
                self.counts.stored_late += pause > _SERVER_SECONDS
                self._unstored.pop(delivery.sequence, None)
                return stored
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_SERVER_SECONDS)

    async def _leave(self, lane: Lane, delivery: Delivery, failure: Exception) -> None:
        """Return a delivery with an unexpected failure to the queue, which has it again after a while."""
        if self._held.get(delivery.sequence) is delivery:
            lane.park(delivery.sequence, self._loop.time() + _PARK_SECONDS[1])
            self._settle(lane, delivery)
        await self._give_back(delivery.message, failure)

    async def _delivered(self, lane: Lane, delivery: Delivery) -> None:
        """Acknowledge a delivery that had failed before."""
        await self._until_stored(delivery, lambda: delivery.message.ack())
        self.counts.delivered += 1
        self._settle(lane, delivery)
        # Attempts that stay behind are forgotten by the bucket.
        with contextlib.suppress(TurnoutError, OSError):
            await self._log.forget(delivery.sequence)

    async def _failed(self, lane: Lane, delivery: Delivery, response: Response) -> None:
        delay = await self._until_stored(delivery, lambda: self._failures.next_attempt(lane, delivery, response))
        if delay is None:
            self._settle(lane, delivery)
        elif delivery.key is not None:
            delivery.is_sent = False
            self._loop.call_later(delay, self._send_again, lane, delivery)
        else:
            lane.park(delivery.sequence, self._loop.time() + delay)
            await self._until_stored(delivery, lambda: delivery.message.nak(delay))
            self._settle(lane, delivery)

    def _send_again(self, lane: Lane, delivery: Delivery) -> None:
        lane.send_again(delivery)
        self._pump(lane)

    def _settle(self, lane: Lane, delivery: Delivery) -> None:
        self._held.pop(delivery.sequence, None)
        lane.settle(delivery)
        self._capacity.freed()
        self._pump(lane)

    # -- in the background

    async def _measure(self) -> None:
        """Ask the queue how many deliveries wait, and since when."""
        self.backlog = await self._queue.backlog()

    async def _beat(self) -> None:
        """Report to the server that deliveries in memory are in progress; without that they are redelivered."""
        for delivery in list(self._held.values()):
            await delivery.message.in_progress()


def _requests(count: int) -> str:
    return plural(count, "request")


def _key(lane: Lane, message: QueuedMessage) -> str | None:
    if lane.settings.ordered:
        return ""
    order_by = lane.settings.order_by
    # Without the key there is nothing to be in order with.
    return (order_by and order_key(order_by, message.headers, message.data)) or None


_POLL_SECONDS = 0.25


def webhooks_of(route: Route) -> WebhooksPart:
    """Return the route's block.

    Raises:
        ConfigError: it has none.
    """
    if route.webhooks is None:
        raise ConfigError([Mistake("webhooks", f"the route {route.name} has none: no destination is a webhook")])
    return route.webhooks


@asynccontextmanager
async def opened_queue(route: Route) -> AsyncIterator[DeliveryQueue]:
    """Connect to the server of a route's deliveries, and make their streams or topics unless they exist.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: it cannot be reached.
        StreamError: it refuses a stream.
    """
    webhooks = webhooks_of(route)
    sink = list(route.sinks.values())[webhooks.sink_index(list(route.sinks))]
    await asyncio.to_thread(make_webhook_streams, route)
    opens = format_of(sink).deliveries
    assert opens is not None, "the reader of routes has checked it"
    opened: AbstractAsyncContextManager[DeliveryQueue] = resolve_name(opens)(sink, webhooks)
    async with opened as queue:
        yield queue


async def deliver(
    route: Route,
    stop: threading.Event,
    *,
    drain: bool = False,
    ready: Callable[[Dispatcher], None] = lambda _: None,
    watch: Callable[[], None] = lambda: None,
) -> DeliveryCounts:
    """Deliver the messages for a route's webhooks.

    Args:
        route: the route.
        stop: ends it.
        drain: end when nothing waits, neither for a first attempt nor for a further one.
        ready: called with the dispatcher, whose counts continue to grow, before the first delivery.
        watch: called several times a second while it delivers.

    Raises:
        ConfigError: the route has no webhooks, or a key for the secrets of subscriptions is none.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream, or the consumer is deleted.
        SubscriptionError: the store cannot be opened.
    """
    webhooks = webhooks_of(route)
    assert route.subscriptions is not None
    secret_keys()
    store = open_store(existing(route.subscriptions.store))
    with contextlib.closing(store):
        async with opened_queue(route) as queue, _client(webhooks) as client:
            log = await queue.attempts()
            consents = Consents(webhooks.consent, webhooks.origin or "", client, log)
            dispatcher = Dispatcher(queue, Lanes(webhooks, store, client), client, log, consents)
            ready(dispatcher)
            running = asyncio.create_task(dispatcher.run())
            try:
                while not stop.is_set() and not running.done():
                    await asyncio.wait([running], timeout=_POLL_SECONDS)
                    watch()
                    if drain and not dispatcher.held and await _is_drained(queue):
                        break
            finally:
                running.cancel()
                await asyncio.wait([running])
            if not running.cancelled():
                running.result()
            return dispatcher.counts


def _client(webhooks: WebhooksPart) -> Client:
    proxies = Proxies(webhooks.proxy, resolves=webhooks.proxy_lookups)
    return Client(webhooks.networks, proxies=proxies)


async def letters_of(route: Route, count: int) -> list[DeadDelivery]:
    """Return the last dead letters of a route's deliveries, the newest first.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream.
    """
    async with opened_queue(route) as queue:
        return await queue.letters(count)


async def redrive(route: Route, positions: Collection[str] | None = None) -> int:
    """Move dead letters back among the deliveries, and return their number.

    Args:
        route: the route.
        positions: positions of the letters, as `letters_of` gives them; None for all.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream.
    """
    async with opened_queue(route) as queue:
        return await queue.redrive(positions)


async def enable(route: Route, destinations: Sequence[str]) -> list[str]:
    """Let disabled endpoints have requests; return those that were disabled.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream.
    """
    async with opened_queue(route) as queue:
        log = await queue.attempts()
        return [destination for destination in destinations if await log.enable(destination)]


async def _is_drained(queue: DeliveryQueue) -> bool:
    """Return True if no delivery waits; False if that is unknown for now."""
    try:
        return await queue.is_drained()
    except (StreamError, ConnectionLostError):
        return False
