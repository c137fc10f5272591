"""The demo's subscriptions: a dozen that a person would write, and thousands drawn from the data's own values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from turnout.conditions import Condition, all_of, any_of, compare, exists, kiwi, not_, one_of
from turnout.demo.flights import flights
from turnout.subscriptions import Subscription

SEED = 20130101
_DESKS = 500

Flight = dict[str, Any]


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


def _plane_to(flight: Flight, _: Flight) -> Condition:
    return all_of(kiwi("Tail-Number", flight["tailnum"]), kiwi("dest", flight["dest"]))


def _flight_number(flight: Flight, _: Flight) -> Condition:
    return all_of(
        kiwi("flight", str(flight["flight"])),
        kiwi("carrier", flight["carrier"]),
        kiwi("Date", _date(flight)[:8] + "*"),
    )


def _family_of_planes(flight: Flight, _: Flight) -> Condition:
    return all_of(
        kiwi("Tail-Number", flight["tailnum"][:4] + "*"),
        kiwi("dest", flight["dest"]),
        kiwi("Date", _date(flight)[:-1] + "?"),
    )


def _suffix_on_a_day(flight: Flight, _: Flight) -> Condition:
    return all_of(kiwi("Tail-Number", "*" + flight["tailnum"][-4:]), kiwi("Date", _date(flight)))


def _question_marks(flight: Flight, _: Flight) -> Condition:
    tail = flight["tailnum"]
    return all_of(
        kiwi("Tail-Number", tail[:3] + "?" + tail[4:]),
        kiwi("dest", flight["dest"]),
        not_(kiwi("origin", flight["origin"])),
    )


def _either_plane(flight: Flight, other: Flight) -> Condition:
    return any_of(
        all_of(kiwi("Tail-Number", flight["tailnum"]), kiwi("Date", _date(flight))),
        all_of(kiwi("Tail-Number", other["tailnum"]), kiwi("Date", _date(other))),
    )


def _plane_but_not_from(flight: Flight, _: Flight) -> Condition:
    return all_of(
        kiwi("Tail-Number", flight["tailnum"]),
        not_(kiwi("dest", flight["dest"])),
        not_(kiwi("origin", flight["origin"])),
    )


def _route_on_a_day(flight: Flight, _: Flight) -> Condition:
    return all_of(
        kiwi("Date", _date(flight)),
        kiwi("subject", f"ops.{flight['origin'].lower()}*.{flight['dest']}.{flight['carrier']}.*"),
    )


_KINDS: dict[str, Callable[[Flight, Flight], Condition]] = {
    "either-plane": _either_plane,
    "family-of-planes": _family_of_planes,
    "flight-number": _flight_number,
    "plane-but-not-from": _plane_but_not_from,
    "plane-to": _plane_to,
    "question-marks": _question_marks,
    "route-on-a-day": _route_on_a_day,
    "suffix-on-a-day": _suffix_on_a_day,
}
