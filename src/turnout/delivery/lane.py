"""Lane: the deliveries that wait for one endpoint under the same settings, and when the next may be sent."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from turnout.delivery.breaker import Breaker
from turnout.delivery.queue import QueuedMessage
from turnout.delivery.response import Response
from turnout.delivery.signatures import Signer
from turnout.delivery.target import Target
from turnout.delivery.tenant_rate import BURST_SECONDS, TenantRate
from turnout.subscriptions.delivery_settings import DeliverySettings

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
    """

    destination: str
    target: Target | None
    signer: Signer
    problem: str = ""


@dataclass(slots=True, eq=False)
class Delivery:
    """Message for one endpoint, from the stream.

    Attributes:
        message: with its acknowledgements.
        subscription: its id, empty for none.
        sequence: in the queue.
        key: deliveries with the same are sent one after the other; None for no order.
        has_failed: True if there may be failed attempts of it.
    """

    message: QueuedMessage
    subscription: str
    sequence: int
    key: str | None = None
    has_failed: bool = False


class LastResponse(NamedTuple):
    """Outcome of the last request of a lane, and its time in seconds since 1970."""

    at: float
    response: Response


@dataclass(slots=True)
class Lane:
    """Deliveries of one endpoint under the same settings.

    Of an order key one delivery is under way at a time, the one with the lowest sequence first.

    Attributes:
        endpoint: endpoint of the requests.
        settings: settings of the requests.
        not_before: time until which nothing with an order is sent, as earlier messages may still be redelivered.
        parked: sequence → time until which the queue holds a message back.
        under_way: number of requests.
        held: number of deliveries in memory, those under way and in chains included.
        progressed: number of requests that have ended.
        is_stalled: True if none has ended for some time, and the lane is full.
        last: outcome of the last request; None before the first.
        subscription: the one whose own settings these are; "" for those that endpoints share.
        tenant: tenant of all deliveries, if it has a quota of them; "" for others.
        quota: rate that all lanes of this tenant share; None for none.
    """

    endpoint: Endpoint
    settings: DeliverySettings
    not_before: float = 0.0
    parked: dict[int, float] = field(default_factory=dict)
    under_way: int = 0
    held: int = 0
    progressed: int = 0
    is_stalled: bool = False
    last: LastResponse | None = None
    subscription: str = ""
    tenant: str = ""
    quota: TenantRate | None = None
    breaker: Breaker = field(init=False)
    _is_timed: bool = field(init=False)
    _ready: deque[Delivery | str] = field(default_factory=deque)
    _chains: dict[str, list[tuple[int, Delivery]]] = field(default_factory=dict)
    _next: float = 0.0
    _slot: float | None = None
    _overdue: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.settings
        self.breaker = Breaker(settings.breaker_failures, settings.breaker_pause, 2 * settings.timeout + _GRACE_SECONDS)
        self._is_timed = bool(self.settings.rate) or self.is_ordered or self.quota is not None

    @property
    def is_ordered(self) -> bool:
        """True if a failed delivery blocks others."""
        return self.settings.ordered or self.settings.order_by is not None

    @property
    def rate(self) -> float | None:
        """Requests of a second that settings and quota allow; None for no limit."""
        rates = [self.settings.rate, None if self.quota is None else self.quota.rate]
        return min(filter(None, rates), default=None)

    def awaits_quota(self, now: float) -> bool:
        """Return True if nothing but the quota of its tenant holds its next request back."""
        return self._slot is not None and self._slot > now and not self.breaker.is_open

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

        If nothing else holds the next request back, the lane takes the next free slot under the quota of its tenant.
        """
        if not self._ready or self.under_way >= self.settings.concurrency:
            return None
        start = self.not_before if self.is_ordered else 0.0
        own = max(0.0, self._next - now if self.settings.rate else 0.0, self.breaker.wait(now), start - now)
        if own or self.quota is None:
            return own
        if self._slot is None:
            self._slot = self.quota.reserve(now)
        return max(0.0, self._slot - now)

    def take(self, now: float) -> Delivery | None:
        """Remove and return the next delivery to send; None if nothing may be sent now."""
        if not self._ready or self.under_way >= self.settings.concurrency:
            return None
        if (self._is_timed or self.breaker.is_open) and self.wait(now) != 0.0:
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
