"""Flow of records through a route: input, failures and waiting times of each stage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from turnout.base.histogram import Histogram
from turnout.base.untrusted import JsonObject
from turnout.records.types import Fields

if TYPE_CHECKING:
    from turnout.routes import Route

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

    def decoded(self, records: int, keys: int) -> None:
        """Count the stages of decoding, which are one step; *keys* failed at their key."""
        for stage, left, failures in ((SOURCE, records, 0), (KEY, records, 0), (VALUE, records - keys, keys)):
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

    def flow(self, stages: Sequence[str]) -> Flow:
        """Return the counts of these stages."""
        return Flow({name: self._taken.get(name, 0) for name in stages}, self._failed, seconds=self._seconds)
