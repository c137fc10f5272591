"""State of the endpoints that a dispatcher has deliveries for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnout.delivery.lane import Lane


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """Endpoint under the same settings, at one moment.

    Attributes:
        destination: as subscriptions have it.
        subscription: the one with settings of its own; "" for all others.
        state: closed and open are those of the circuit breaker; a disabled endpoint has answered 410.
        probe_seconds: seconds until the next probe of an open breaker; 0 otherwise.
        in_flight: number of requests now.
        concurrency: most requests at one time.
        waiting: number of messages that wait, failed ones included.
        last_status: status of the last response; None without one.
        last_error: failure of the last request, or the beginning of its response; "" after a success.
        last_at: time of that, in seconds since 1970; None before the first request.
        retry: seconds before each further attempt.
        tenant: tenant whose quota of deliveries applies; "" for none.
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

    @classmethod
    def of(cls, lane: Lane, disabled: frozenset[str], now: float) -> EndpointStatus:
        """Return the state of a lane.

        Args:
            lane: may be in use by the dispatcher's thread; it is only read.
            disabled: destinations that are disabled.
            now: by the clock of the dispatcher.
        """
        destination, is_open = lane.endpoint.destination, lane.breaker.is_open
        last = lane.last
        return cls(
            destination,
            lane.subscription,
            "disabled" if destination in disabled else "open" if is_open else "closed",
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
        )
