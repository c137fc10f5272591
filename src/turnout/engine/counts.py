"""Outcomes of records, and their counts in a batch, a micro-batch or a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from turnout.base.histogram import Histogram
from turnout.base.untrusted import JsonObject
from turnout.records import FAILED, FILTERED, Batch
from turnout.records.types import Fields, RowIds

if TYPE_CHECKING:
    from turnout.engine.messages import ListedMessages, Messages
    from turnout.engine.reading import Consumed
    from turnout.records import Failure
    from turnout.routes import Route
    from turnout.traces.spans import Span


class Outcome(IntEnum):
    """Outcome of a record. `label` is its name in files and on the command line."""

    DELIVERED = 0
    FILTERED = 1
    LOST_BY_WEIGHT = 2
    UNMATCHED = 3
    DEAD_LETTERED = 4
    DISCARDED = 5
    STOPPED = 6
    """It failed, and the route tolerates no failure: a run ends here."""

    @property
    def label(self) -> str:
        """The name in lower case, as `Counts` spells it."""
        return self.name.lower()


class StageResult(StrEnum):
    """Result of one stage for one record. The values are the words of ``turnout tap``.

    ``turnout explain`` knows whether the stage applied to the record, and ``turnout tap`` whether it changed it.
    """

    APPLIED = "applied"
    NOT_MATCHED = "not matched"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FILTERED = "filtered"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It failed or was filtered in an earlier stage."""

    @property
    def explained(self) -> str:
        """The word of ``turnout explain``."""
        return "dropped" if self is StageResult.FILTERED else self.value

    @classmethod
    def of_ended(cls, records: Batch, row: int) -> StageResult | None:
        """Return `FAILED` or `FILTERED` for a record that is no longer alive; None for others."""
        return {FAILED: cls.FAILED, FILTERED: cls.FILTERED}.get(int(records.outcomes[row]))


_DELIVERED: Final = int(Outcome.DELIVERED)

Outcomes: TypeAlias = NDArray[np.int8]
"""An `Outcome` for each row."""


def outcome_of_rejected(route: Route) -> Outcome:
    """Return the outcome of a route's rejected records, where it tolerates failures."""
    return Outcome.DISCARDED if route.dead_letter is None else Outcome.DEAD_LETTERED


def outcomes_of(
    route: Route, records: Batch, lost_rows: RowIds, unmatched: RowIds, rejected: RowIds, delivered: RowIds
) -> Outcomes:
    """Return the outcomes of a batch. A record in none of the groups has none, -1, and its run's counts do not add up.

    Args:
        route: the route.
        records: records of the batch, after all stages.
        lost_rows: rows that the weights of mappings drop.
        unmatched: rows that no subscription matches.
        rejected: rows without messages because of failures; takes precedence over *unmatched*.
        delivered: rows with at least one message.
    """
    if len(delivered) == len(records):
        return np.full(len(records), _DELIVERED, np.int8)
    outcomes = np.full(len(records), -1, np.int8)
    outcomes[records.outcomes == FILTERED] = Outcome.FILTERED
    outcomes[lost_rows] = Outcome.LOST_BY_WEIGHT
    outcomes[unmatched] = Outcome.UNMATCHED
    outcomes[rejected] = outcome_of_rejected(route)
    outcomes[delivered] = Outcome.DELIVERED
    return outcomes


N = TypeVar("N", int, float)

SOURCE: Final = "source"
KEY: Final = "key"
VALUE: Final = "value"
MAPPING: Final = "mapping"
MATCH: Final = "match"
SINK: Final = "sink"
DEAD_LETTER: Final = "deadLetter"

_OWN: Final = (SOURCE, KEY, VALUE, MAPPING, MATCH, SINK, DEAD_LETTER)


@dataclass(frozen=True, slots=True)
class Stages:
    """The names that the stages of a route are counted under.

    Attributes:
        transforms: names of the chain's stages, in order, with the prefix ``transforms.`` if another part of the route
            has the name.
        others: names of the route's parts behind the chain, in order.
    """

    transforms: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, route: Route) -> Stages:
        """Return the stages of a route."""
        names = set(_OWN)
        transforms = []
        for stage in route.chain.stages:
            name = stage.name
            while name in names:
                name = f"transforms.{name}"
            names.add(name)
            transforms.append(name)
        parts = (
            (MAPPING, len(route.mappings) > 0),
            (MATCH, route.subscriptions is not None),
            (SINK, True),
            (DEAD_LETTER, route.dead_letter is not None),
        )
        return cls(tuple(transforms), tuple(name for name, is_present in parts if is_present))

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order in which a record passes the stages."""
        return (SOURCE, KEY, VALUE, *self.transforms, *self.others)


@dataclass(frozen=True, slots=True)
class Flow:
    """Numbers of records by stage; sums of what tasks have counted.

    A stage passes its records to the next one, except failed and dropped ones: a filter, the weights of a mapping, no
    matching subscription. Failed records are in the dead letters, or discarded.

    Attributes:
        taken: records that reached a stage, whether or not its predicates apply to them.
        failed: number of those that failed in it.
        delivery: how long messages took from their publishing to their acknowledgement, dead letters included; known
            where the stage itself publishes, which is where all sinks are NATS.
        seconds: time that each stage took, summed over the tasks; no part of equality.
    """

    taken: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    delivery: Histogram = field(default_factory=Histogram)
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    def __add__(self, other: Flow) -> Flow:
        return self._with(other, 1, self.delivery + other.delivery)

    def __sub__(self, other: Flow) -> Flow:
        return self._with(other, -1, self.delivery - other.delivery)

    def _with(self, other: Flow, sign: int, delivery: Histogram) -> Flow:
        taken, failed = _sum(self.taken, other.taken, sign), _sum(self.failed, other.failed, sign)
        return Flow(taken, failed, delivery, _sum(self.seconds, other.seconds, sign))

    def as_dict(self) -> JsonObject:
        """Return the flow as JSON values."""
        return {
            "stages": dict(self.taken),
            "failed": dict(self.failed),
            "delivery": self.delivery.as_dict(),
            "seconds": {name: round(seconds, 6) for name, seconds in self.seconds.items()},
        }

    @classmethod
    def from_dict(cls, written: Fields) -> Flow:
        """Inverse of `as_dict`."""
        delivery = Histogram.from_dict(written["delivery"])
        # A server that was upgraded has counts without times.
        return cls(written["stages"], written["failed"], delivery, written.get("seconds", {}))


def _sum(one: Mapping[str, N], other: Mapping[str, N], sign: int) -> dict[str, N]:
    """Return *one* plus *sign* times *other* by name, names of *one* first; stages without failures have no entry."""
    return {**one, **{name: one.get(name, type(count)(0)) + sign * count for name, count in other.items()}}


class StageCounter:
    """Counts one batch by stage: each stage reports how many records are left at its start.

    Args:
        begun: time at which decoding began, by `time.perf_counter`, in seconds.
    """

    def __init__(self, begun: float) -> None:
        self._seconds: dict[str, float] = {}
        self._since = begun
        self._taken: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._stage = ""
        self._failures = 0

    def enter(self, stage: str, records: int, failures: int) -> None:
        """Begin to count for a stage.

        Args:
            stage: its name.
            records: number of records that reach it.
            failures: number of failures before it; new ones are from the previous stage.
        """
        self._count_failures(failures)
        self._time()
        self._stage = stage
        self._taken[stage] = records

    def decoded(self, records: Batch, consumed: Consumed, keys: int) -> None:  # noqa: ARG002 - for spans
        """Count the stages of decoding, which are one step; *keys* failed at their key."""
        count = len(records)
        for stage, left, failures in ((SOURCE, count, 0), (KEY, count, 0), (VALUE, count - keys, keys)):
            self._count_failures(failures)
            self._stage = stage
            self._taken[stage] = left
        self._time()

    def _time(self) -> None:
        now = time.perf_counter()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._since = now

    def _count_failures(self, failures: int) -> None:
        if failures != self._failures:
            failed = self._failed.get(self._stage, 0)
            self._failed[self._stage] = failed + failures - self._failures
            self._failures = failures

    def marked(
        self,
        messages: Messages | ListedMessages,
        rows: RowIds,  # noqa: ARG002 - for spans
    ) -> Messages | ListedMessages:
        """Return the messages, which carry the contexts of their spans where spans are made."""
        return messages

    def spans(self, outcomes: Outcomes, failures: Mapping[int, Failure]) -> Sequence[Span]:  # noqa: ARG002
        """Return the spans of the batch's traced records; none, unless spans are made."""
        return ()

    def flow(self, stages: Sequence[str]) -> Flow:
        """Return the counts of these stages."""
        return Flow({name: self._taken.get(name, 0) for name in stages}, self._failed, seconds=self._seconds)


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
    discarded: int = _count("discarded", "failed, with `tolerance: all` and no `deadLetter`", shown_at_zero=False)
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
