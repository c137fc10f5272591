"""The demo's job with tables: from a Delta table past the subscriptions to JetStream, and matches into a table."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Final

import pyarrow as pa

from turnout.base.files import bundled
from turnout.base.untrusted import JsonObject
from turnout.demo.flights import NUMBERS, TEXTS, FlightMessage, check_stop, messages
from turnout.demo.year import Demo, DemoResult, Ledger, read_ledger
from turnout.nats.wire import Connection
from turnout.records.types import Fields
from turnout.routes import Route
from turnout.runtime.lake.delta import add_rows, answer
from turnout.runtime.offsets import RunResult

_COMMIT_ROWS: Final = 50_000
_COLUMNS: Final = pa.schema(
    [
        *((name, pa.int32()) for name in NUMBERS),
        *((name, pa.string()) for name in (*TEXTS, "date", "cancelled")),
        ("scheduled", pa.timestamp("us", "UTC")),
    ]
)

_TABLES: Final = ("flights", "matches")

QUESTION: Final = (
    "SELECT carrier, count(*) AS matches, count(DISTINCT position) AS flights, max(delay) AS longest_delay "
    "FROM matches GROUP BY carrier ORDER BY matches DESC, carrier LIMIT 3"
)
"""Query of the table of matches whose answer the demo prints."""


class LakeDemo(Demo):
    """The demo with tables in the work folder, and a nats-server of its own."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the values of the route file's variables."""
        return {**super().variables, "LAKE": str(self.work.absolute())}

    def publish(self, on_progress: Callable[[int], None], stop: threading.Event) -> None:
        """Fill the table of flights, a commit for each 50,000 of them.

        Raises:
            TurnoutError: *stop* was set before the end.
        """
        begun, rows = time.monotonic(), _rows(messages(self.limit))
        while commit := list(islice(rows, _COMMIT_ROWS)):
            add_rows(self._path("flights"), pa.Table.from_pylist(commit, _COLUMNS))
            self.published += len(commit)
            on_progress(self.published)
            check_stop(stop)
        self.publish_seconds = time.monotonic() - begun

    def route(self) -> Route:
        """Return the route, with this demo's server, tables and store."""
        return Route.load(bundled("examples") / "flights-lake.yaml", self.variables)

    def ledger(self) -> Ledger:
        """Count the table's rows and the server's messages."""
        rows = [self.ask(f"SELECT count(*) AS rows FROM {name}")[0]["rows"] for name in _TABLES]  # noqa: S608 - constants
        with Connection.open(self.server.url) as connection:
            return replace(read_ledger(connection), source=rows[0], matches=rows[1])

    def checked(self, result: RunResult) -> DemoResult:
        """Compare the result of a run with the server's content, and this with the table of matches."""
        found = super().checked(result)
        (known,) = self.ask("SELECT count(*) AS matches, count(DISTINCT position) AS records FROM matches")
        rows = self.ask("SELECT destination, count(*) AS matches FROM matches GROUP BY destination")
        by_sql = {row["destination"]: row["matches"] for row in rows}
        ledger = found.ledger
        pairs = [
            ("messages in DELIVERIES", ledger.messages, "rows in matches", known["matches"]),
            ("records seen in DELIVERIES", ledger.delivered, "records in matches", known["records"]),
            *(
                (f"messages to {name}", count, "rows in matches", by_sql.get(name))
                for name, count in ledger.destinations
            ),
        ]
        wrong = [f"{one}: {count}, but {other}: {rows}" for one, count, other, rows in pairs if count != rows]
        return replace(found, disagreements=(*found.disagreements, *wrong))

    def ask(self, question: str) -> list[JsonObject]:
        """Return the rows of an answer to SQL; the tables are named flights and matches."""
        return answer(question, {name: self._path(name) for name in _TABLES})

    def _path(self, table: str) -> str:
        return str(self.work.absolute() / table)


def _rows(published: Iterable[FlightMessage]) -> Iterator[Fields]:
    """Yield the rows of flights; for truncated JSON the last one again, with a truncated time."""
    row: JsonObject = {}
    for message in published:
        try:
            flight = json.loads(message.payload)
        except ValueError:
            yield {**row, "time_hour": row["time_hour"][:7]}
            continue
        more = dict(message.headers)
        scheduled = datetime.strptime(flight["time_hour"], "%Y-%m-%dT%H:%M:%S%z")
        row = {**flight, "date": more["Date"], "cancelled": more.get("Cancelled"), "scheduled": scheduled}
        yield row
