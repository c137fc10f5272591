"""Subscriptions and records of the tests of deliveries."""

from __future__ import annotations

from typing import Any

from tests.engine.batches import sent
from turnout.conditions import exists
from turnout.subscriptions import Subscription

OULU = {"n": 1, "city": "Oulu", "secret": "s"}
RAUMA = {"n": 2, "city": "Rauma", "secret": "s"}
EVERYTHING = exists("subject")
TWO_SINKS = 'sinks: {one: {format: nats, servers: "nats://a"}, two: {format: json, path: /tmp/x}}\n'


def to(*destinations: str, id: str = "s", condition: Any = EVERYTHING) -> Subscription:
    return Subscription(destinations, condition, id=id)


def dead(messages: Any) -> list[dict[str, str]]:
    """The headers of each dead letter."""
    return [
        {name: value.decode() for name, value in headers} for topic, _, _, headers in sent(messages) if topic == "dead"
    ]
