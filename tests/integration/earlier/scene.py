"""A route that each version can run, its records, and its subscriptions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.integration.routes import Streams

__all__ = ["KINDS", "OLD_STORE", "books", "publish", "route_text", "subscription_lines"]

_ROUTE: Final = """
name: kept
source: {{format: nats, servers: "{url}", stream: {source}, maxRecordsPerTrigger: {batch}}}
value: {{format: json}}
transforms:
  - {{name: origin, type: InsertField$Value, topic.field: origin}}
mappings:
  "in-{name}.k.*":
    - {{destination: "out-{name}.a.{{{{wildcard(1)}}}}", weight: 40%}}
    - {{destination: "out-{name}.b.{{{{wildcard(1)}}}}", weight: 60%}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
errors: {{tolerance: all}}
deadLetter: {{topic: "out-{name}.dead"}}
"""

KINDS: Final = ("plain", "subscribed")
"""Without subscriptions, and with them: the version before the engine ran these as two kinds of query."""

OLD_STORE: Final = """
import sys
from turnout.conditions import kiwi, all_of, not_
from turnout.subscriptions import Subscription, open_store

store, name = sys.argv[1:]
with open_store(store) as opened:
    a, b = kiwi("subject", "out-*.a.*"), kiwi("subject", "out-*.b.*")
    opened.create(Subscription([f"out-{name}.one"], a, {"owner": "Änne"}, "one"))
    opened.create(Subscription([f"out-{name}.two", f"out-{name}.three"], all_of(b, not_(a)), {}, "two"))
    opened.create(Subscription([f"out-{name}.gone"], b, {}, "gone"))
    opened.delete("gone")
"""
"""A script that any version runs: it fills a store."""


def route_text(streams: Streams, *, batch: int, store: Path | None = None, more: str = "") -> str:
    """The route's file.

    Args:
        streams: what it reads and writes.
        batch: records in a micro-batch, at most.
        store: of subscriptions; none for a route without.
        more: further lines.
    """
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    subscriptions = "" if store is None else f'subscriptions: {{store: "sqlite:///{store}"}}\n'
    return _ROUTE.format(**names, batch=batch) + subscriptions + more


def publish(streams: Streams, numbers: Iterable[int]) -> None:
    """A record for each number, of which every tenth is no JSON."""
    streams.publish([(f"k.{n}", _value(n), []) for n in numbers])


def _value(number: int) -> bytes:
    return json.dumps({"n": number}).encode() if number % 10 else b"no JSON: %d" % number


def books(streams: Streams) -> Counter[tuple[str, str, str]]:
    """Return how often each message is in the outgoing stream: the rest of its subject, its id, its value."""
    return Counter((row["rest"], row["key"].decode(), row["value"].decode()) for row in streams.delivered())


def subscription_lines(text: str) -> list[dict[str, Any]]:
    """Return the output of ``turnout subscriptions export``, in the order of ids."""
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda one: str(one["id"]))
