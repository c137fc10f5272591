"""Counts of record outcomes in a batch, a micro-batch or a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import add, attrgetter, sub
from typing import Final

import numpy as np

from turnout.base.untrusted import JsonObject
from turnout.engine.flow import Flow
from turnout.engine.outcome import Outcome, Outcomes
from turnout.records.types import Fields

_FLOW: Final = "flow"


@dataclass(frozen=True, slots=True)
class CountInfo:
    """Declaration of one count, for displays, metrics and docs.

    Attributes:
        label: in tables of ``turnout run``.
        meaning: a phrase.
        unit: unit of the number.
        metric: name of its counter in Prometheus; "" without one, and for an outcome, which is a series of
            ``turnout_route_records_total``.
        shown_at_zero: False if tables omit it while it is zero.
    """

    label: str
    meaning: str
    unit: str = "records"
    metric: str = ""
    shown_at_zero: bool = True


def _count(label: str, meaning: str, *, unit: str = "records", metric: str = "", shown_at_zero: bool = True) -> int:
    """Declare a count, 0 by default."""
    info = CountInfo(label, meaning, unit, metric, shown_at_zero)
    declared: int = field(default=0, metadata={"info": info})
    return declared


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records, and of some messages and headers; each is declared here, once (see `COUNTS`).

    All but `not_read` are of records that were read. Two counts are equal if their numbers are, whatever their flow.

    >>> counts = Counts(read=10, filtered=2, delivered=7, dead_lettered=1) + Counts(read=5, delivered=5)
    >>> counts.read, counts.delivered, counts.conserved
    (15, 12, True)
    >>> COUNTS["dead_lettered"].meaning
    'sent to the dead letter topic, and nowhere else'
    """

    read: int = _count(
        "read", "read from the source: the sum of the outcomes", metric="turnout_route_records_read_total"
    )
    not_read: int = _count(
        "not read",
        "filtered at the server, or not decoded, as no subscription can match them; not among those read",
        metric="turnout_route_records_not_read_total",
        shown_at_zero=False,
    )
    filtered: int = _count("filtered", "dropped by a `Filter`")
    unmatched: int = _count("unmatched", "matched by no subscription, with `unmatched: drop`")
    delivered: int = _count("delivered", "sent to a sink in at least one message")
    dead_lettered: int = _count("dead-lettered", "sent to the dead letter topic, and nowhere else")
    lost_by_weight: int = _count("lost by weight", "dropped by mappings whose weights mean loss")
    discarded: int = _count(
        "failed, nowhere to go", "failed, with `tolerance: all` and no `deadLetter`", shown_at_zero=False
    )
    messages: int = _count(
        "messages sent",
        "accepted by the sinks for delivered records: one for each record, subscription and destination",
        unit="messages",
        metric="turnout_route_messages_total",
    )
    undeliverable: int = _count(
        "undeliverable messages",
        "accepted by no sink: each is a dead letter of its own, or discarded",
        unit="deliveries",
        metric="turnout_route_undeliverable_total",
        shown_at_zero=False,
    )
    dropped_headers: int = _count(
        "headers left out", "left out of messages, with `badHeaders: drop`", unit="headers", shown_at_zero=False
    )
    reserved_headers: int = _count(
        "reserved headers dropped",
        "reserved for turnout (`Turnout-*`, `__turnout.*`), and dropped as their records were read",
        unit="headers",
        metric="turnout_route_reserved_headers_total",
        shown_at_zero=False,
    )
    duplicates: int = _count(
        "stored before",
        "among the messages sent, but not stored again: a stream of the sink had one with the same id, from an earlier"
        " attempt, or from another run within its duplicate window",
        unit="messages",
        metric="turnout_route_duplicates_total",
        shown_at_zero=False,
    )
    losses: int = _count(
        "losses",
        "stepped over with `failOnDataLoss: false`: ranges of records that were removed before they were read, and"
        " streams and topics that were made anew or have older data; each is a warning of the run",
        unit="losses",
        metric="turnout_route_losses_total",
        shown_at_zero=False,
    )
    flow: Flow = field(default_factory=Flow, compare=False, kw_only=True)

    @property
    def accounted(self) -> int:
        """Number of records with a known outcome."""
        return sum(getattr(self, name) for name in OUTCOMES)

    @property
    def conserved(self) -> bool:
        """True if every record read is accounted for."""
        return self.read == self.accounted

    def __add__(self, other: Counts) -> Counts:
        numbers = map(add, _numbers_of(self), _numbers_of(other))
        return Counts(*numbers, flow=self.flow + other.flow)

    def __sub__(self, other: Counts) -> Counts:
        numbers = map(sub, _numbers_of(self), _numbers_of(other))
        return Counts(*numbers, flow=self.flow - other.flow)

    def as_dict(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    @classmethod
    def of(cls, numbers: Fields, flow: Flow | None = None) -> Counts:
        """Return counts from numbers by name; a missing or null number is 0."""
        return cls(*(int(numbers.get(name) or 0) for name in NUMBERS), flow=flow or Flow())

    def to_json(self) -> JsonObject:
        """Return the numbers by name, and the flow, as one JSON object."""
        return {**self.as_dict(), _FLOW: self.flow.as_dict()}

    @classmethod
    def of_json(cls, document: Fields) -> Counts:
        """Inverse of `to_json`; zeros for an object without counts."""
        flow = document.get(_FLOW)
        return cls.of(document, None if flow is None else Flow.from_dict(flow))


COUNTS: Final[Mapping[str, CountInfo]] = {
    declared.name: declared.metadata["info"] for declared in fields(Counts) if "info" in declared.metadata
}
"""The declarations by name, in the order of reports."""

NUMBERS: Final = tuple(COUNTS)
"""The names of the numbers."""

_numbers_of: Callable[[Counts], tuple[int, ...]] = attrgetter(*NUMBERS)

_MAX_LISTED_RECORDS: Final = 64
"""Number of records up to which outcomes are counted in a list: a call of NumPy takes longer."""

_ALL_OUTCOMES: Final = tuple(outcome.label for outcome in Outcome)

OUTCOMES: Final = tuple(outcome.label for outcome in Outcome if outcome is not Outcome.STOPPED)
"""The names of the numbers that add up to `Counts.read`."""


def numbers_of_outcomes(outcomes: Outcomes) -> dict[str, int]:
    """Return the numbers of the records of a batch: of those read, and by outcome."""
    if len(outcomes) <= _MAX_LISTED_RECORDS:
        listed = outcomes.tolist()
        totals = [listed.count(outcome) for outcome in range(len(_ALL_OUTCOMES))]
    else:
        totals = np.bincount(outcomes + 1, minlength=len(_ALL_OUTCOMES) + 1)[1:].tolist()
    return {"read": len(outcomes), **dict(zip(_ALL_OUTCOMES, totals, strict=True))}
