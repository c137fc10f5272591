"""``kill -9`` of a run in the middle of earlier records: a destination and a feed get each of them once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.integration.routes import Streams, wait_for, write_route
from tests.integration.switch import Switch

from turnout.conditions import kiwi
from turnout.embedded import NatsServer
from turnout.history.feed import FeedReader
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger, matched_before
from turnout.runtime.matches import MatchFolder, hash_of
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.model import Start

ROUTE = """
name: late
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
subscriptions: {{store: "sqlite:///{folder}/subscriptions.db", metadata: {{city: value.city}}, feeds: true}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
checkpoint: {folder}/checkpoint
"""
COUNT = 300_000
"""Records, more than one part of a backfill."""

KILLS = (0.2, 0.8)
"""Share of the earlier messages that the destination has by then."""


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[Streams]:
    """Streams of one test."""
    made = Streams(nats_server.url)
    made.create()
    yield made
    made.delete()


@pytest.mark.heavy
def test_kills_during_a_backfill(streams: Streams, tmp_path: Path) -> None:
    """A part that a kill has ended is done again: no record is missing, none is there twice, the feed is in order."""
    streams.publish([("all", b'{"n": %d, "city": "%b"}' % (n, city_of(n)), []) for n in range(1, COUNT + 1)])
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink}
    file = write_route(tmp_path, ROUTE.format(**names, folder=tmp_path))
    even = range(2, COUNT + 1, 2)
    with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store, Switch(tmp_path, file) as switch:
        store.create(Subscription(["feed:"], kiwi("city", "Turku"), id="old"))
        for share in KILLS:
            switch.start()
            if share == KILLS[0]:
                wait_for(lambda: matched_before(tmp_path / "checkpoint").get(streams.source) == COUNT + 1)
                for id_, destination in (("late", streams.out("late")), ("fed", "feed:")):
                    start = Start("earliest")
                    store.create(Subscription([destination], kiwi("city", "Oulu"), id=id_, start=start))
            wait_for(lambda share=share: streams.stored(streams.sink) > share * len(even))  # type: ignore[misc]
            assert BackfillLedger(tmp_path / "checkpoint").rows
            switch.kill()
        # The next record shows where the missed range ends.
        streams.publish([("all", b'{"n": %d, "city": "Pori"}' % (COUNT + 1), [])])
        switch.start("--once")
        assert switch.wait(240) == 0, switch.said()

    assert Counter(json.loads(row["value"])["n"] for row in streams.delivered()) == Counter(even)
    assert BackfillLedger(tmp_path / "checkpoint").rows == []
    matches = MatchFolder.beside(tmp_path / "checkpoint")
    # The stream, with its identity.
    (label,) = matches.streams()
    for id_ in ("late", "fed"):
        found = matches.pages(hash_of(id_), {label: (-1, COUNT + 1)}, COUNT)[label]
        assert np.array_equal(found, np.array(even))
    with FeedReader(Route.load(file)) as reader:
        page = reader.page("fed", COUNT - 100, 1_000)
    assert [json.loads(message.value or b"")["n"] for message in page.messages] == list(even[-50:])
    assert page.is_last


def city_of(number: int) -> bytes:
    return b"Pori" if number % 2 else b"Oulu"
