"""Segments as one index: numbers, ids, destinations and expiries of subscriptions, few or many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions import parse
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import layers as module
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.layers import Layer, Layers, Matches
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.model import Expiry

_DESTINATIONS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True)
_SUBSCRIPTIONS = st.tuples(_DESTINATIONS, st.none() | st.integers(1, 5))


def _time(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _layers(segments: Sequence[Sequence[tuple[list[str], int | None]]]) -> tuple[list[Subscription], Layers]:
    subscriptions: list[Subscription] = []
    layers: list[Layer] = []
    for segment in segments:
        own = [
            Subscription(
                destinations,
                parse("city:Oulu"),
                id=f"{len(layers)}-{number}",
                expires=None if milliseconds is None else Expiry(_time(milliseconds)),
            )
            for number, (destinations, milliseconds) in enumerate(segment)
        ]
        subscriptions += own
        layers.append(Layer(build(own, Costs(()))))
    return subscriptions, Layers(layers)


@pytest.mark.parametrize("few", [0, 32], ids=["many", "few"])
@given(
    segments=st.lists(st.lists(_SUBSCRIPTIONS, min_size=1, max_size=4), min_size=1, max_size=3),
    draws=st.lists(st.integers(0, 100), max_size=8),
)
def test_numbers_lead_to_the_subscriptions_of_their_segment(
    few: int, segments: list[list[tuple[list[str], int | None]]], draws: list[int]
) -> None:
    subscriptions, layers = _layers(segments)
    numbers = np.array([draw % len(subscriptions) for draw in draws], np.int64)
    matches = Matches(np.arange(len(numbers)), numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_NUMBERS", few)
        deliveries = layers.deliveries(matches)
        ids = layers.subscription_ids(numbers).to_pylist()
        destinations = layers.destinations(deliveries.destinations).to_pylist()
    assert ids == [subscriptions[number].id for number in numbers]
    expected = [
        (row, number, destination)
        for row, number in enumerate(numbers.tolist())
        for destination in subscriptions[number].destinations
    ]
    assert [*zip(deliveries.rows.tolist(), deliveries.subscriptions.tolist(), destinations, strict=True)] == expected


@given(st.lists(st.lists(_SUBSCRIPTIONS, min_size=1, max_size=4), min_size=1, max_size=3), st.integers(0, 6))
def test_expired_subscriptions_match_no_record_of_a_later_time(
    segments: list[list[tuple[list[str], int | None]]], time: int
) -> None:
    subscriptions, layers = _layers(segments)
    numbers = np.arange(len(subscriptions))
    current = layers.unexpired(Matches(np.zeros(len(numbers), np.int64), numbers), [time], now=100)
    alive = [
        number
        for number, subscription in enumerate(subscriptions)
        if subscription.expires is None or time < subscription.expires.milliseconds
    ]
    assert current.subscriptions.tolist() == alive
