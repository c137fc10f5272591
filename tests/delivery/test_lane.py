"""Lanes by a clock that the test moves: rate, breaker and order, without waiting."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.delivery.lane import Delivery, Endpoint, Lane, TenantRate, TenantRates
from turnout.delivery.requests import Signer
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.delivery_settings import DeliverySettings

BURST = 0.05


def lane_of(**settings: Any) -> Lane:
    return Lane(Endpoint("webhook:e", None, Signer(())), DeliverySettings.from_mapping(settings))


def fill(lane: Lane, count: int, key: str | None = None) -> None:
    for number in range(count):
        lane.add(Delivery(None, "", number, key))  # type: ignore[arg-type]  # its message is not looked at


def sent_at(lane: Lane, pauses: list[float]) -> list[float]:
    """Return the times of all deliveries for a sender that waits as the lane requires, plus *pauses*."""
    now, times, more = 100.0, [], iter(pauses)
    while (wait := lane.wait(now)) is not None:
        now += wait
        if wait == 0.0 and (delivery := lane.take(now)) is not None:
            times.append(now)
            lane.under_way -= 1
            lane.settle(delivery)
            now += next(more, 0.0)
    return times


@pytest.mark.parametrize("rate", [0.5, 3, 200, 5_000])
def test_rate(rate: float) -> None:
    """Requests leave one by one, a constant time after each other, at the rate and no slower."""
    lane = lane_of(rate=rate)
    fill(lane, 100)
    times = sent_at(lane, [])
    burst = int(BURST * rate)

    assert len(times) == 100
    assert times[0] == 100.0
    assert times[-1] - times[0] == pytest.approx(max(0, 99 - burst) / rate, abs=1.5 / rate)


@given(
    rate=st.floats(0.5, 2_000),
    pauses=st.lists(st.floats(0, 5), max_size=60),
    window=st.floats(0.01, 10),
)
def test_rate_holds_in_every_window(rate: float, pauses: list[float], window: float) -> None:
    """However late its timers come, no span of time has more requests than the rate and a short burst allow."""
    lane = lane_of(rate=rate)
    fill(lane, 120)
    times = sent_at(lane, pauses)

    assert len(times) == 120
    for index, begin in enumerate(times):
        within = sum(1 for time in times[index:] if time < begin + window)
        assert within <= (window + BURST) * rate + 2


def test_rate_is_of_each_lane() -> None:
    """Lanes do not share a rate; without one nothing is waited for."""
    slow, free = lane_of(rate=1), lane_of()
    fill(slow, 3)
    fill(free, 3)

    assert slow.take(100.0) is not None
    assert slow.take(100.0) is None
    assert [free.take(100.0) is not None for _ in range(4)] == [True, True, True, False]
    assert slow.wait(100.0) == pytest.approx(0.95)


def test_rate_and_order() -> None:
    """Of one key the lowest sequence goes first, one at a time, at the rate."""
    lane = lane_of(ordered=True, rate=10)
    fill(lane, 5, "")
    now, taken = 100.0, []
    while (wait := lane.wait(now)) is not None:
        now += wait
        delivery = lane.take(now)
        if delivery is None:
            continue
        assert lane.take(now) is None
        taken.append(delivery.sequence)
        lane.under_way -= 1
        lane.settle(delivery)

    assert taken == [0, 1, 2, 3, 4]
    assert now == pytest.approx(100.35)


def test_concurrency_comes_before_rate() -> None:
    """A full lane waits for an outcome, and not for the clock."""
    lane = lane_of(concurrency=1, rate=1_000)
    fill(lane, 2)

    assert lane.take(0.0) is not None
    assert (lane.wait(50.0), lane.take(50.0)) == (None, None)
    lane.under_way -= 1
    assert lane.take(50.0) is not None


def test_lanes_of_a_tenant_share_its_quota() -> None:
    """All lanes together send at the rate, in turns; a lane that waits for nothing else says so."""
    quota = TenantRate(10, 1)
    lanes = [
        Lane(Endpoint(f"webhook:{name}", None, Signer(())), DeliverySettings(), tenant="acme", quota=quota)
        for name in "abc"
    ]
    for lane in lanes:
        fill(lane, 10)
    due = [(0.0, number) for number in range(3)]
    sent: list[tuple[float, int]] = []
    while due:
        now, number = heapq.heappop(due)
        lane = lanes[number]
        if (delivery := lane.take(100.0 + now)) is not None:
            sent.append((now, number))
            lane.under_way -= 1
            lane.settle(delivery)
        wait = lane.wait(100.0 + now)
        if wait is not None:
            assert lane.awaits_quota(100.0 + now) == (wait > 0)
            heapq.heappush(due, (now + wait, number))

    assert [lane.held for lane in lanes] == [0, 0, 0]
    assert [number for _, number in sent[1:10]] == [0, 1, 2] * 3
    assert sent[-1][0] == pytest.approx(29 / 10, abs=0.1)
    assert all(later - earlier == pytest.approx(0.1) for (earlier, _), (later, _) in pairwise(sent[1:]))


def test_a_lane_has_the_lower_of_two_rates() -> None:
    """That of its settings and that of its tenant."""
    quota = TenantRate(2, 1)
    lane = Lane(Endpoint("webhook:e", None, Signer(())), DeliverySettings(rate=5), quota=quota)
    fill(lane, 5)

    assert lane.rate == 2
    assert sent_at(lane, [])[-1] - 100.0 == pytest.approx(4 / 2, abs=0.1)
    assert (lane_of(rate=5).rate, lane_of().rate) == (5, None)


def test_a_busy_endpoint_takes_no_slot() -> None:
    """A lane reserves a slot under the quota only when it may send; others are not held up by a slow endpoint."""
    quota = TenantRate(1, 1)
    slow = Lane(Endpoint("webhook:s", None, Signer(())), DeliverySettings(concurrency=1), quota=quota)
    fill(slow, 3)
    assert slow.take(100.0) is not None
    assert slow.wait(100.0) is None

    fast = Lane(Endpoint("webhook:f", None, Signer(())), DeliverySettings(), quota=quota)
    fill(fast, 1)
    assert not slow.awaits_quota(100.0)
    assert fast.wait(100.0) == pytest.approx(0.95)


def test_an_abandoned_probe() -> None:
    """A probe that was not sent, or has no outcome, does not keep the breaker open."""
    lane = lane_of(breakerFailures=1, breakerPause=30, timeout=10)
    lane.breaker.failed(0.0)
    lane.breaker.sent(30.0)
    waiting = lane.breaker.wait(31.0)
    lane.breaker.abandoned(31.0)

    assert 0 < waiting <= 60
    assert lane.breaker.wait(31.0) == 0.0
    lane.breaker.sent(31.0)
    assert lane.breaker.wait(31.0 + 60.0) == 0.0
    lane.breaker.failed(40.0)
    assert lane.breaker.wait(40.0) == 60.0
    lane.breaker.succeeded()
    lane.breaker.abandoned(41.0)
    assert not lane.breaker.is_open


def test_late_failures_of_an_open_breaker() -> None:
    """Requests that were under way when it opened do not move its first probe."""
    lane = lane_of(breakerFailures=1, breakerPause=30)
    lane.breaker.failed(0.0)
    lane.breaker.failed(5.0)

    assert lane.breaker.wait(5.0) == 25.0


def one(id_: str, deliveries: int | None) -> Subscription:
    return Subscription(["d"], "a:1", id=id_, deliveries=deliveries)


def test_the_newest_subscription_with_a_quota_counts():
    """Of each tenant alone; one that is stored without a quota changes nothing."""
    store = open_store("memory://")
    for id_, deliveries in (("@acme/z", 5), ("@acme/a", 7), ("@acme/b", None), ("@bolt/a", 3), ("@corp/a", None)):
        store.create(one(id_, deliveries))
    rates = TenantRates(store)
    acme, bolt = rates.of("@acme/z"), rates.of("@bolt/unknown")

    assert acme is not None
    assert bolt is not None
    assert (acme.rate, bolt.rate, rates.of("@corp/a"), rates.of("plain"), rates.of("")) == (7, 3, None, None, None)
    assert rates.of("@acme/a") is acme


def test_changes_are_followed():
    """Lanes that have a rate see its new value; a first quota of a known tenant is reported."""
    store = open_store("memory://")
    store.create(one("@acme/a", 7))
    store.create(one("@corp/a", None))
    rates = TenantRates(store)
    acme, corp = rates.of("@acme/a"), rates.of("@corp/a")
    before = store.revision()
    store.update("@acme/a", one("@acme/a", 9))

    assert acme is not None
    assert corp is None
    assert not rates.follow(store.changes(before).created)
    assert acme.rate == 9
    assert not rates.follow([replace(one("@acme/b", 1), revision=1), one("@new/a", 4)])
    assert acme.rate == 9
    store.update("@corp/a", one("@corp/a", 2))
    assert rates.follow(store.changes(before).created)
    first = rates.of("@corp/a")
    assert first is not None
    assert first.rate == 2


def test_a_reset_reads_the_store_again():
    """Also versions whose change was missed, into the rate that lanes already have."""
    store = open_store("memory://")
    store.create(one("@acme/a", 7))
    rates = TenantRates(store)
    acme = rates.of("@acme/a")
    store.update("@acme/a", one("@acme/a", 9))
    rates.reset()

    assert acme is not None
    assert rates.of("@acme/a") is acme
    assert acme.rate == 9
