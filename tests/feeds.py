"""A route with feeds that has run without Spark: its stream, its store, its matches and its checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.integration.routes import Streams
from tests.runtime.test_offsets import checkpoint as written_checkpoint
from turnout.engine import Program
from turnout.nats.wire import Connection, PullReader, Range, stream_info
from turnout.nats.wire.records import with_stream
from turnout.routes import Route
from turnout.runtime.task_index import IndexLocation, MatchRecorder
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import Index

ROUTE = """
name: orders
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
subscriptions: {{store: "sqlite:///{store}", metadata: {{city: value.city}}, feeds: true}}
sink: {{format: nats, servers: "{url}"}}
checkpoint: "{checkpoint}"
"""


@dataclass
class FedRoute:
    """Route over a stream of orders of two cities in turn, with a subscription for each: ``oulu``, ``turku``."""

    streams: Streams
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "subscriptions").mkdir()
        self.store_url = f"sqlite:///{self.folder}/subscriptions.db"
        with open_store(self.store_url) as store:
            for city in ("Oulu", "Turku"):
                store.create(Subscription(["feed:"], f"city:{city}", id=city.lower()))
        self.text = ROUTE.format(
            url=self.streams.url,
            source=self.streams.source,
            store=f"{self.folder}/subscriptions.db",
            checkpoint=self.folder,
        )
        self.file = self.folder / "orders.yaml"
        self.file.write_text(self.text, encoding="utf-8")
        self.route = Route.load(self.file)

    def run(self, count: int) -> None:
        """Publish records, match them, and commit."""
        end = self.match(self.streams, count)
        if not (self.folder / "commits").exists():
            written_checkpoint(self.folder, json.dumps({self.streams.source: end}))

    def match(self, streams: Streams, count: int) -> int:
        """Publish records to a stream and store their matches; return the sequence behind them."""
        orders = [{"n": n, "city": ("Oulu", "Turku")[n % 2]} for n in range(count)]
        streams.publish([("order", json.dumps(order).encode(), []) for order in orders])
        recorder = MatchRecorder(IndexLocation.at(self.folder / "subscriptions"))
        with Connection.open(streams.url) as connection, open_store(self.store_url) as store:
            end = int(stream_info(connection, streams.source)["state"]["last_seq"]) + 1
            for batch in PullReader(connection, Range(streams.source, end - count, end)).batches():
                records = with_stream(batch, streams.source)
                recorder.add(Program.of(self.route).run(records, Index.of(store)))
        recorder.store(streams.source, end - count, end)
        return end
