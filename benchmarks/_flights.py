"""Flights as records on their way: what benchmarks of the chain put through it."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from turnout.demo.flights import FlightMessage, messages
from turnout.records.headers import ARROW

ROUTE = Path(__file__).parents[1] / "examples" / "flights.yaml"
_FIRST = 1_357_016_400_000


@dataclass(frozen=True)
class Flights:
    """So many flights, the year again and again; each was published a millisecond after the one before."""

    sent: list[FlightMessage]

    @classmethod
    def of(cls, count: int) -> Flights:
        year = list(messages(count))
        return cls(list(itertools.islice(itertools.cycle(year), count)))

    def __len__(self) -> int:
        return len(self.sent)

    def lines(self) -> list[str]:
        """A JSON object for each, for programs that read files."""
        return [
            json.dumps(
                {
                    "topic": message.subject,
                    "timestamp": _FIRST + at,
                    "headers": list(message.headers),
                    "value": message.payload.decode(),
                }
            )
            for at, message in enumerate(self.sent)
        ]

    def batches(self, size: int = 10_000) -> list[pa.RecordBatch]:
        """As a source gives them: Arrow batches."""
        headers = [[{"key": name, "value": text.encode()} for name, text in message.headers] for message in self.sent]
        table = pa.table(
            {
                "topic": [message.subject for message in self.sent],
                "timestamp": pa.array(range(_FIRST, _FIRST + len(self.sent)), pa.int64()),
                "headers": pa.array(headers, ARROW),
                "value": pa.array([message.payload for message in self.sent], pa.binary()),
            }
        )
        return table.combine_chunks().to_batches(max_chunksize=size)


def route() -> dict[str, Any]:
    """The example route's file as it is written."""
    return yaml.safe_load(ROUTE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
