"""Lane of an endpoint: its waiting deliveries, its circuit breaker, its tenant's quota, and its status."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from turnout.delivery.access import Access
from turnout.delivery.client import Response, Target
from turnout.delivery.queue import AttemptLog, QueuedMessage, endpoint_key
from turnout.delivery.requests import Signer
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions import Store, Subscription
from turnout.subscriptions.credentials import HeaderNames
from turnout.subscriptions.delivery_settings import MONTH, DeliverySettings
from turnout.subscriptions.store import tenant_store
from turnout.subscriptions.tenants import tenant_of


class Breaker:
    """State of one circuit breaker; times are seconds of any one clock.

    Args:
        failures: consecutive failures that open it; 0 for never.
        pause: seconds until the first probe; doubles with each probe that fails.
        probe: seconds after which a probe without an outcome is given up.

    >>> breaker = Breaker(2, 30.0)
    >>> breaker.failed(0.0), breaker.failed(1.0), breaker.wait(1.0)
    (None, None, 30.0)
    >>> breaker.sent(31.0), breaker.wait(31.0) > 0
    (None, True)
    >>> breaker.succeeded(), breaker.wait(31.0)
    (None, 0.0)
    """

    def __init__(self, failures: int, pause: float, probe: float = 90.0) -> None:
        self._limit = failures
        self._pause = pause
        self._failures = 0
        self._next_pause = pause
        self._probe = probe
        self._opens_at = 0.0
        self._is_probing = False
        self.is_open = False

    def wait(self, now: float) -> float:
        """Return the seconds until a request may be sent."""
        return max(0.0, self._opens_at - now) if self.is_open else 0.0

    def sent(self, now: float) -> None:
        """Count a request; of an open breaker it is the probe, and no other follows until its outcome is known."""
        if self.is_open:
            self._opens_at, self._is_probing = now + self._probe, True

    def abandoned(self, now: float) -> None:
        """Allow another probe: the last request was not sent, and has no outcome."""
        if self.is_open and self._is_probing:
            self._opens_at, self._is_probing = now, False

    def succeeded(self) -> None:
        """Close it."""
        self._failures, self._next_pause, self.is_open, self._is_probing = 0, self._pause, False, False

    def failed(self, now: float) -> None:
        """Count a failure, and open it after the last one that is allowed."""
        self._failures += 1
        if not self._limit or self._failures < self._limit:
            return
        if self.is_open and not self._is_probing:
            # A request that was under way when it opened says nothing new.
            return
        self.is_open, self._is_probing = True, False
        self._opens_at = now + self._next_pause
        self._next_pause = min(2 * self._next_pause, MONTH)


BURST_SECONDS: Final = 0.05
"""Unused rate of so long may be caught up with: timers are not exact."""


@dataclass(slots=True)
class TenantRate:
    """Slots of requests in time that the lanes of a tenant take one after the other.

    Each lane reserves one slot at a time, so lanes take turns, and none wakes before it may send.

    Attributes:
        rate: requests of a second.
        revision: revision of the store whose version of a subscription has this rate.

    >>> tenant = TenantRate(2, 1)
    >>> [round(tenant.reserve(100.0) - 100.0, 3) for _ in range(3)]
    [-0.05, 0.45, 0.95]
    """

    rate: float
    revision: int
    _next: float = 0.0

    def reserve(self, now: float) -> float:
        """Return the time of the next free slot, and take it."""
        slot = max(self._next, now - BURST_SECONDS)
        self._next = slot + 1 / self.rate
        return slot


class TenantRates:
    """Rates of the tenants that deliveries belong to, as recorded with their subscriptions.

    The newest subscription with a quota counts. A tenant's subscriptions are read with its first delivery, and
    changes followed from then on.

    Args:
        store: the store of all tenants.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rates: dict[str, TenantRate] = {}
        self._read: set[str] = set()

    def of(self, subscription: str) -> TenantRate | None:
        """Return the rate of a subscription's tenant; None without a tenant or a quota. It may read the store.

        Raises:
            SubscriptionError: the store does not answer.
        """
        tenant = tenant_of(subscription)
        if tenant and tenant not in self._read:
            versions = self._versions(tenant)
            newest = max(versions, key=lambda one: one.revision, default=None)
            if newest is not None:
                self._set(tenant, newest)
            self._read.add(tenant)
        return self._rates.get(tenant)

    def _versions(self, tenant: str) -> list[Subscription]:
        """Return the tenant's subscriptions that have a quota."""
        try:
            return [one for one in tenant_store(self._store, tenant).snapshot() if one.deliveries is not None]
        except SubscriptionInvalidError:
            # A store without tenants: the id only looks like that of one.
            return []

    def follow(self, changed: Iterable[Subscription]) -> bool:
        """Take new versions of subscriptions; return True if a tenant has its first quota."""
        is_first = False
        for one in changed:
            tenant = tenant_of(one.id)
            known = self._rates.get(tenant)
            if tenant not in self._read or one.deliveries is None or (known and one.revision < known.revision):
                continue
            is_first = is_first or known is None
            self._set(tenant, one)
        return is_first

    def reset(self) -> None:
        """Read the subscriptions of each tenant again with its next delivery of an unknown subject."""
        self._read.clear()

    def _set(self, tenant: str, version: Subscription) -> None:
        """Take the quota of a version; lanes have the same object, and see the change."""
        assert version.deliveries is not None
        rate = self._rates.setdefault(tenant, TenantRate(version.deliveries, version.revision))
        rate.rate, rate.revision = version.deliveries, version.revision


_GRACE_SECONDS = 30.0
_OVERDUE_SECONDS = 60.0
"""A message that does not come back so long after its time went to another dispatcher."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Receiver of a lane's requests.

    Attributes:
        destination: as the subscription has it.
        target: target of its requests; None if there is a problem.
        signer: signs requests.
        problem: the reason that no request can be sent; "" for none.
        access: credentials of its requests; None for none.
        needs_consent: whether it is asked before the first message.
    """

    destination: str
    target: Target | None
    signer: Signer
    problem: str = ""
    access: Access | None = None
    needs_consent: bool = False


@dataclass(slots=True, eq=False)
class Delivery:
    """Message for one endpoint, from the stream.

    Attributes:
        message: with its acknowledgements.
        subscription: its id, empty for none.
        sequence: in the queue.
        key: deliveries with the same are sent one after the other; None for no order.
        has_failed: True if there may be failed attempts of it.
        is_sent: True from its request until the outcome is stored.
    """

    message: QueuedMessage
    subscription: str
    sequence: int
    key: str | None = None
    has_failed: bool = False
    is_sent: bool = False


class LastResponse(NamedTuple):
    """Outcome of the last request of a lane, and its time in seconds since 1970."""

    at: float
    response: Response


@dataclass(slots=True, weakref_slot=True)
class EndpointLimits:
    """Limits that an endpoint itself asks for, and its lanes share: a pause by Retry-After, and a rate by its consent.

    Attributes:
        asked_at: time at which it asked for the pause, by the loop's clock.
        until: time until which it wants no requests.
        rate: rate that its consent allows; None for any.
    """

    asked_at: float = 0.0
    until: float = 0.0
    rate: TenantRate | None = None

    def allow(self, rate: float | None) -> None:
        """Take the rate of a consent; of several, the lowest counts."""
        if rate is not None and (self.rate is None or rate < self.rate.rate):
            self.rate = TenantRate(rate, 0)

    def ask(self, now: float, seconds: float) -> None:
        """Take what an endpoint asks for."""
        self.asked_at, self.until = now, max(self.until, now + seconds)

    def wait(self, now: float, longest: float) -> float:
        """Return the seconds until a request may be sent, by the longest pause that settings allow."""
        return max(0.0, min(self.until, self.asked_at + longest) - now) if self.until > now else 0.0


@dataclass(slots=True)
class Lane:
    """Deliveries of one endpoint under the same settings.

    Of an order key one delivery is under way at a time, the one with the lowest sequence first.

    Attributes:
        endpoint: endpoint of the requests.
        settings: settings of the requests.
        parked: sequence → time until which the queue holds a message back.
        under_way: number of requests.
        held: number of deliveries in memory, those under way and in chains included.
        progressed: number of requests that have ended.
        is_stalled: True if none has ended for some time, and the lane is full.
        last: outcome of the last request; None before the first.
        subscription: the one whose own settings these are; "" for those that endpoints share.
        tenant: tenant of all deliveries, if it has a quota of them; "" for others.
        quota: rate that all lanes of this tenant share; None for none.
        names: names of the headers of its requests.
        limits: what the endpoint has asked for.
    """

    endpoint: Endpoint
    settings: DeliverySettings
    parked: dict[int, float] = field(default_factory=dict)
    under_way: int = 0
    held: int = 0
    progressed: int = 0
    is_stalled: bool = False
    last: LastResponse | None = None
    subscription: str = ""
    tenant: str = ""
    quota: TenantRate | None = None
    limits: EndpointLimits = field(default_factory=EndpointLimits)
    breaker: Breaker = field(init=False)
    names: HeaderNames = field(init=False)
    _is_timed: bool = field(init=False)
    _ready: deque[Delivery | str] = field(default_factory=deque)
    _chains: dict[str, list[tuple[int, Delivery]]] = field(default_factory=dict)
    _next: float = 0.0
    _slot: float | None = None
    _overdue: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.settings
        self.names = HeaderNames.of(settings.header_names)
        self.breaker = Breaker(settings.breaker_failures, settings.breaker_pause, 2 * settings.timeout + _GRACE_SECONDS)
        self._is_timed = bool(self.settings.rate) or self.quota is not None

    @property
    def rate(self) -> float | None:
        """Requests of a second that settings and quota allow; None for no limit."""
        return min(filter(None, [self.settings.rate, *(one.rate for one in self._shared_rates())]), default=None)

    def _shared_rates(self) -> list[TenantRate]:
        """Return the rates that this lane shares with others: the tenant's, and that of the endpoint's consent."""
        return [one for one in (self.quota, self.limits.rate) if one is not None]

    def held_back(self, now: float) -> float:
        """Return the seconds for which the breaker, or the endpoint by Retry-After, lets nothing pass."""
        return max(self.breaker.wait(now), self.limits.wait(now, self.settings.retry_after))

    def awaits_quota(self, now: float) -> bool:
        """Return True if nothing but the quota of its tenant holds its next request back."""
        return self.quota is not None and self._slot is not None and self._slot > now and not self.breaker.is_open

    def waiting(self, now: float) -> int:
        """Return the number of messages that wait for the endpoint, failed ones included."""
        while self._overdue and self._overdue[0][0] + _OVERDUE_SECONDS < now:
            until, sequence = heapq.heappop(self._overdue)
            if self.parked.get(sequence) == until:
                del self.parked[sequence]
        return self.held + len(self.parked)

    def park(self, sequence: int, until: float) -> None:
        """Count a message that the queue holds back until a time."""
        self.parked[sequence] = until
        heapq.heappush(self._overdue, (until, sequence))

    def add(self, delivery: Delivery) -> None:
        """Append a delivery."""
        self.held += 1
        self.parked.pop(delivery.sequence, None)
        if delivery.key is None:
            self._ready.append(delivery)
            return
        chain = self._chains.get(delivery.key)
        if chain is None:
            self._chains[delivery.key] = chain = []
            self._ready.append(delivery.key)
        heapq.heappush(chain, (delivery.sequence, delivery))

    def wait(self, now: float) -> float | None:
        """Return the seconds until something may be sent; None if another event has to happen first.

        If nothing else holds the next request back, the lane takes the next free slot under the rates that it shares.
        """
        if not self._ready or self.under_way >= self.settings.concurrency:
            return None
        own = max(0.0, self._next - now if self.settings.rate else 0.0, self.held_back(now))
        if own or (self.quota is None and self.limits.rate is None):
            return own
        if self._slot is None:
            self._slot = max(one.reserve(now) for one in self._shared_rates())
        return max(0.0, self._slot - now)

    def take(self, now: float) -> Delivery | None:
        """Remove and return the next delivery to send; None if nothing may be sent now."""
        if not self._ready or self.under_way >= self.settings.concurrency:
            return None
        is_limited = self._is_timed or self.breaker.is_open or self.limits.until > now or self.limits.rate is not None
        if is_limited and self.wait(now) != 0.0:
            return None
        first = self._ready.popleft()
        delivery = heapq.heappop(self._chains[first])[1] if isinstance(first, str) else first
        if self.settings.rate:
            self._next = max(self._next, now - BURST_SECONDS) + 1 / self.settings.rate
        self._slot = None
        self.breaker.sent(now)
        self.under_way += 1
        return delivery

    def settle(self, delivery: Delivery) -> None:
        """Forget a delivery that is done, or that the queue holds; the next of its key may be sent."""
        self.held -= 1
        if delivery.key is None:
            return
        if self._chains[delivery.key]:
            self._ready.append(delivery.key)
        else:
            del self._chains[delivery.key]

    def send_again(self, delivery: Delivery) -> None:
        """Let a delivery that was taken be taken again, the first of its key; until then its key is blocked."""
        if delivery.key is None:
            self._ready.append(delivery)
        else:
            heapq.heappush(self._chains[delivery.key], (delivery.sequence, delivery))
            self._ready.append(delivery.key)


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """Endpoint under the same settings, at one moment.

    Attributes:
        destination: as subscriptions have it.
        subscription: the one with settings of its own; "" for all others.
        state: closed and open are those of the circuit breaker; a disabled endpoint gets no requests.
        probe_seconds: seconds until the next probe of an open breaker; 0 otherwise.
        in_flight: number of requests now.
        concurrency: most requests at one time.
        waiting: number of messages that wait, failed ones included.
        last_status: status of the last response; None without one.
        last_error: failure of the last request, or the beginning of its response; "" after a success.
        last_at: time of that, in seconds since 1970; None before the first request.
        retry: seconds before each further attempt.
        tenant: tenant whose quota of deliveries applies; "" for none.
        reason: what has disabled the endpoint: ``410``, or its failures since a time; "" for others.
        pause_seconds: seconds for which the endpoint wants no requests, by Retry-After.
        consent: whether it has agreed to messages: granted, refused or unknown; "" for one that is not asked.
    """

    destination: str
    subscription: str
    state: Literal["closed", "open", "disabled"]
    probe_seconds: float
    in_flight: int
    concurrency: int
    waiting: int
    last_status: int | None
    last_error: str
    last_at: float | None
    retry: tuple[float, ...]
    tenant: str = ""
    reason: str = ""
    pause_seconds: float = 0.0
    consent: Literal["", "granted", "refused", "unknown"] = ""

    @classmethod
    def of(cls, lane: Lane, log: AttemptLog, now: float) -> EndpointStatus:
        """Return the state of a lane.

        Args:
            lane: may be in use by the dispatcher's thread; it is only read.
            log: knows which endpoints are disabled.
            now: by the clock of the dispatcher.
        """
        destination, is_open = lane.endpoint.destination, lane.breaker.is_open
        tenant = lane.tenant or tenant_of(lane.subscription)
        is_disabled = log.is_disabled(destination, tenant)
        last = lane.last
        return cls(
            destination,
            lane.subscription,
            "disabled" if is_disabled else "open" if is_open else "closed",
            # While a probe is under way there is no time of the next one.
            lane.breaker.wait(now) if is_open and not lane.under_way else 0.0,
            lane.under_way,
            lane.settings.concurrency,
            max(0, lane.held - lane.under_way) + len(lane.parked),
            last.response.status if last else None,
            last.response.error if last else "",
            last.at if last else None,
            lane.settings.retry,
            lane.tenant,
            log.reason(destination, tenant) if is_disabled else "",
            lane.limits.wait(now, lane.settings.retry_after),
            _consent(lane, log, tenant),
        )


def _consent(lane: Lane, log: AttemptLog, tenant: str) -> Literal["", "granted", "refused", "unknown"]:
    if not lane.endpoint.needs_consent:
        return ""
    consent = log.consents.get(endpoint_key(lane.endpoint.destination, tenant))
    return "unknown" if consent is None else "granted" if consent.is_granted else "refused"
