"""Lanes by a clock that the test moves: rate, breaker and order, without waiting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.delivery.lane import Delivery, Endpoint, Lane
from turnout.delivery.signatures import Signer
from turnout.subscriptions.delivery import DeliverySettings

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
