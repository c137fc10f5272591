"""A server with a stream to read, one to deliver to, and one of dead letters, for tests of redrives."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.engine import Program
from turnout.history import dead_letters
from turnout.history.dead_letters import DeadLetter
from turnout.history.redrive import RedriveReport, Sinks, redrive
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, Publisher, PullReader, Range, stream_info
from turnout.nats.wire.records import with_stream
from turnout.routes import Route
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index

__all__ = ["Scene"]

ROUTE = """
name: redriven
source: {{format: nats, servers: "{url}", stream: IN_{name}}}
value: {{format: json}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
  - {{name: number, type: Cast$Value, spec: "n:int32"}}
subscriptions: {{store: "sqlite:///{folder}/subscriptions.db", metadata: {{n: value.n}}}}
sink: {{format: nats, servers: "{url}", allow: ["out-{name}.>"]}}
deadLetter: {{topic: "dead-{name}"}}
errors: {{tolerance: all}}
"""


@dataclass
class Scene:
    """A server with a stream to read, one to deliver to, and one of dead letters."""

    url: str
    name: str
    folder: Path

    @property
    def text(self) -> str:
        return ROUTE.format(url=self.url, name=self.name, folder=self.folder)

    @property
    def route(self) -> Route:
        return Route.parse(self.text, {})

    def publish(self, *values: Any, headers: tuple[tuple[str, str], ...] = ()) -> None:
        with Connection.open(self.url) as connection, Publisher(connection) as publisher:
            for value in values:
                payload = value if isinstance(value, bytes) else json.dumps(value).encode()
                publisher.publish(f"in-{self.name}.a", payload, headers, message_id=f"key-{value}")

    def run(self, route: Route | None = None, *, with_identity: bool = False) -> Counter[str]:
        """Do what a run does with everything in the stream; *with_identity*, of a new checkpoint."""
        route = route or self.route
        assert route.subscriptions is not None
        with Connection.open(self.url) as connection, open_store(route.subscriptions.store) as store:
            program, index = Program.of(route), Index.of(store)
            info = stream_info(connection, f"IN_{self.name}")
            last, identity = info["state"]["last_seq"], StreamIdentity.of(info["created"])
            counts: Counter[str] = Counter()
            for batch in PullReader(connection, Range(f"IN_{self.name}", 1, last + 1)).batches():
                batch = with_stream(batch, f"IN_{self.name}", identity if with_identity else None)
                result = program.run(batch, index)
                Sinks(route).send(result.messages, range(len(result.messages)))
                counts.update(result.counts.as_dict())
        return counts

    def rows(self, stream: str) -> list[dict[str, Any]]:
        with Connection.open(self.url) as connection:
            last = stream_info(connection, f"{stream}_{self.name}")["state"]["last_seq"]
            reader = PullReader(connection, Range(f"{stream}_{self.name}", 1, last + 1))
            rows = [row for batch in reader.batches() for row in batch.to_pylist()]
        for row in rows:
            row["headers"] = {header["key"]: header["value"].decode() for header in row["headers"] or ()}
        return rows

    def letters(self, **options: Any) -> list[DeadLetter]:
        return dead_letters.read(self.route, **options)

    def store(self) -> Any:
        return open_store(f"sqlite:///{self.folder}/subscriptions.db")

    def redrive(self, **options: Any) -> RedriveReport:
        return redrive(self.route, self.letters(), **options)
