"""Test coverage of a route: transforms, both results of predicates, shares, subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from turnout.engine.mapping_report import chosen_by
from turnout.engine.name_counts import NameCount, NameWatch
from turnout.engine.reading import Consumed
from turnout.engine.stage_report import predicate_text
from turnout.engine.trace import Watch
from turnout.records import Batch
from turnout.routes import Route
from turnout.subjects.draw_hash import draws_of
from turnout.subjects.mapping_table import SubjectMapping
from turnout.transforms.apply import StageRunner
from turnout.transforms.base import Errors

Kind = Literal["transform", "predicate", "mapping", "subscription"]
KINDS: tuple[Kind, ...] = ("transform", "predicate", "mapping", "subscription")


@dataclass(frozen=True, slots=True)
class Item:
    """Part of a route that a test can reach.

    Attributes:
        kind: transform, predicate, mapping or subscription.
        name: name for reports.
        reached: whether one did.
    """

    kind: Kind
    name: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """All parts of a route that tests can reach.

    Attributes:
        items: the parts.
        names: for each name in the route, how many records of the tests have it.
    """

    items: tuple[Item, ...]
    names: tuple[NameCount, ...] = ()

    @property
    def missed(self) -> Iterator[Item]:
        """Yield the parts that no test has reached."""
        return (item for item in self.items if not item.reached)

    def of_kind(self, kind: Kind) -> Sequence[Item]:
        """Return the items of one kind."""
        return [item for item in self.items if item.kind == kind]

    @classmethod
    def of(cls, watch: CoverageWatch, subscriptions: Iterable[str], delivered: Iterable[str | None]) -> Self:
        """Return the coverage of a route from the batches that *watch* has seen.

        Args:
            watch: its observations.
            subscriptions: ids of the subscriptions that were matched against.
            delivered: ids of the subscriptions that got a message.
        """
        reached = set(delivered)
        matched = (Item("subscription", id_, id_ in reached) for id_ in dict.fromkeys(subscriptions))
        return cls((*watch.items(), *matched), tuple(watch.names.counts()))


class CoverageWatch(Watch):
    """Records the stages, mappings and subscriptions that batches reach.

    Args:
        route: the route.

    Attributes:
        names: counts the records that have what the route names.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._cluster = route.cluster
        self._topics: Sequence[str | None] = ()
        self._applied: set[str] = set()
        self._answers: set[tuple[str, int, bool]] = set()
        self._shares: set[tuple[str, str, str | None]] = set()
        self.names = NameWatch(route)

    def of_cluster(self, cluster: str | None) -> Self:
        """Set the cluster of the next batches, and return the watch."""
        self._cluster = cluster
        return self

    def decoded(self, records: Batch, consumed: Consumed) -> None:  # noqa: ARG002 - as every watch
        """Keep the topics that draws are made from."""
        self._topics = consumed.topics

    def before(self, stage: StageRunner, records: Batch) -> None:
        """Test the stage's predicates, and note their results and whether the stage applies to any record."""
        self.names.before(stage, records)
        alive = records.alive
        if not len(alive):
            return
        holds = np.ones(len(records), np.bool_)
        for at, guard in enumerate(stage.stage.guards):
            errors: Errors = {}
            answer = np.asarray(guard.predicate.test(records, errors))
            decided = np.setdiff1d(alive, list(errors))
            self._answers |= {(stage.stage.name, at, bool(holds)) for holds in np.unique(answer[decided])}
            holds &= ~answer if guard.negate else answer
            holds[list(errors)] = stage.stage.negate
        if (holds[alive] != stage.stage.negate).any():
            self._applied.add(stage.stage.name)

    def transformed(self, records: Batch) -> None:
        """Record the mapping and share of each topic."""
        self.names.transformed(records)
        for row, draw in zip(records.alive.tolist(), self._draws(records), strict=True):
            chosen = chosen_by(self._route.mappings, self._cluster, records.topics[row] or "", draw)
            if chosen is not None:
                destination = None if chosen.share is None else chosen.share.transform.destination
                self._shares.add((chosen.mapping.source, chosen.group, destination))

    def mapped(self, records: Batch) -> None:
        """Count the names that are looked up behind the mappings."""
        self.names.mapped(records)

    def _draws(self, records: Batch) -> list[float]:
        rows = records.alive.tolist()
        offsets = records.offsets
        draws: list[float] = draws_of(
            [self._topics[row] or "" for row in rows],
            [records.partitions[row] for row in rows],
            [None if offsets is None else offsets[row] for row in rows],
        ).tolist()
        return draws

    def items(self) -> Iterator[Item]:
        """Transforms, predicates and shares of the route, and whether they were reached."""
        stages = self._route.chain.stages
        yield from (Item("transform", stage.name, stage.name in self._applied) for stage in stages)
        for stage in stages:
            for at, guard in enumerate(stage.guards):
                for answer in (True, False):
                    name = f"{stage.name}: {predicate_text(guard.predicate)} is {str(answer).lower()}"
                    yield Item("predicate", name, (stage.name, at, answer) in self._answers)
        for mapping in self._route.mappings.mappings:
            yield from self._of_mapping(mapping)

    def _of_mapping(self, mapping: SubjectMapping) -> Iterator[Item]:
        source = mapping.source
        for group, shares in mapping.groups.items():
            if all(share.completed for share in shares):
                # Nothing was written for these clusters: their topics stay as they are, or are lost.
                continue
            where = f", {group}" if group else ""
            lost_percent = 100 - sum(share.weight for share in shares)
            for share in shares:
                destination = share.transform.destination
                name = f"{source} → {destination} ({share.weight} %{where})"
                yield Item("mapping", name, (source, group, destination) in self._shares)
            if lost_percent:
                yield Item(
                    "mapping", f"{source} → lost ({lost_percent} %{where})", (source, group, None) in self._shares
                )
