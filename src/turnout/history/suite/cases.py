"""Test runs of a route: all records of a kind in one batch, with a result for each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self
from xml.etree import ElementTree as ET

import numpy as np

from turnout.base.untrusted import JsonObject
from turnout.conditions import format_condition
from turnout.engine import Program
from turnout.engine.explain import explain
from turnout.engine.name_counts import NameCount, NameWatch
from turnout.engine.reading import Consumed
from turnout.engine.sample_records import record_batch
from turnout.engine.trace import Watch, chosen_by, predicate_text
from turnout.history.suite.outcomes import ABSENT, CaseOutcome, Difference, differences, ending_of, plain
from turnout.history.suite.suite import Case, load_suites
from turnout.records import Batch
from turnout.routes import Route
from turnout.subjects.arrays import draws_of
from turnout.subjects.mapping import SubjectMapping
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import Index
from turnout.subscriptions.store_url import existing
from turnout.transforms.base import Errors
from turnout.transforms.chain import StageRunner


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of one test.

    Attributes:
        case: the test.
        ending: outcome of its record.
        differences: deviations from the expectation; one for a case without expectation.
    """

    case: Case
    ending: CaseOutcome
    differences: tuple[Difference, ...]

    @property
    def passed(self) -> bool:
        """True if everything was as expected."""
        return not self.differences


@dataclass(frozen=True, slots=True)
class Report:
    """Results of all tests of a route.

    Attributes:
        route: its name.
        results: in the order of the cases.
        coverage: coverage of the tests.
        seconds: how long they took.
    """

    route: str
    results: tuple[CaseResult, ...]
    coverage: Coverage
    seconds: float

    @property
    def failed(self) -> Sequence[CaseResult]:
        """Results of the failed tests."""
        return [result for result in self.results if not result.passed]

    @property
    def idle_masks(self) -> Sequence[NameCount]:
        """Fields to mask that no record has to which their mask was applied: a failure of the tests as a whole."""
        return [count for count in self.coverage.names if count.masks_nothing]

    @property
    def passed(self) -> bool:
        """True if every test passed, and every mask that was applied has masked something."""
        return not self.failed and not self.idle_masks


def run_cases(route: Route, cases: Iterable[Case]) -> Report:
    """Run tests against a route, without Spark and without its servers.

    Cases that share cluster and subscriptions go through the program in one batch.

    Args:
        route: the route.
        cases: of `load_suites`, or made by hand.

    Raises:
        StoreUnavailableError: a case needs the subscriptions of the route's store, which cannot be reached.

    >>> from pathlib import Path
    >>> from turnout.history import Suite
    >>> text = '''
    ... name: orders
    ... source: {format: nats, servers: "nats://127.0.0.1:4222", stream: ORDERS}
    ... value: {format: json}
    ... mappings: {"orders.*": "eu.{{wildcard(1)}}"}
    ... sink: {format: nats, servers: "nats://127.0.0.1:4222"}
    ... tests:
    ... - name: goes to its own shop
    ...   record: {topic: orders.17, value: {n: 1}}
    ...   expect: {topic: eu.18}
    ... '''
    >>> route = Route.parse(text)
    >>> report = run_cases(route, Suite.parse(text, route, Path("orders.yaml"), ("tests",)).cases)
    >>> [(result.case.name, result.passed) for result in report.results]
    [('goes to its own shop', False)]
    >>> [(one.path, one.expected, one.actual) for one in report.failed[0].differences]
    [('topic', 'eu.18', 'eu.17')]
    """
    begun = time.monotonic()
    watch = CoverageWatch(route)
    ordered = list(cases)
    groups = _grouped(ordered, route)
    results = {at: result for group in groups for at, result in group.results(watch)}
    ids = (subscription.id for group in groups for subscription in group.subscriptions)
    delivered = (id_ for result in results.values() for id_, _ in result.ending.deliveries)
    coverage = Coverage.of(watch, ids, delivered)
    in_order = tuple(results[at] for at in range(len(ordered)))
    return Report(route.name, in_order, coverage, time.monotonic() - begun)


@dataclass(frozen=True, slots=True)
class _CaseGroup:
    """Cases that are run in one batch, each with its index among all."""

    route: Route
    subscriptions: Sequence[Subscription]
    cases: list[tuple[int, Case]]

    def results(self, watch: CoverageWatch) -> Iterable[tuple[int, CaseResult]]:
        program = Program.of(self.route)
        index = Index.of(self.subscriptions) if self.route.subscriptions is not None else None
        batch = record_batch([case.record for _, case in self.cases])
        trace = program.trace(batch, index, watch.of_cluster(self.route.cluster))
        for row, (at, case) in enumerate(self.cases):
            ending = ending_of(trace, row, self.route)
            yield at, CaseResult(case, ending, tuple(self._compared(program, index, case, ending)))

    def _compared(self, program: Program, index: Index | None, case: Case, ending: CaseOutcome) -> Iterable[Difference]:
        if case.expect is None:
            yield Difference("expect", ABSENT, ending.outcome, "nothing is expected yet: --update writes what happens")
            return
        for difference in differences(case.expect, ending):
            missing = difference.expected if difference.path == "deliveries" else None
            if isinstance(missing, dict) and difference.actual is ABSENT:
                yield replace(difference, note=self._blame(program, index, case, missing.get("subscription")))
            else:
                yield difference

    def _blame(self, program: Program, index: Index | None, case: Case, subscription: str | None) -> str:
        """Return the reason why a subscription does not match a case's record; "" if it is unknown."""
        by_id = {subscription.id: subscription for subscription in self.subscriptions}
        if subscription is None or index is None:
            return ""
        if subscription not in by_id:
            return f"there is no subscription {subscription!r}"
        answer = explain(program, record_batch([case.record]), index, by_id, asked=subscription).asked
        if answer is None or not answer.blame:
            return ""
        leaves = ", ".join(
            f"{leaf.test} ({'missing' if leaf.value is None else repr(leaf.value)})" for leaf in answer.blame
        )
        return f"{format_condition(by_id[subscription].condition)} fails by {leaves}"


def _grouped(cases: Sequence[Case], route: Route) -> list[_CaseGroup]:
    groups: dict[tuple[str | None, tuple[Subscription, ...] | None], _CaseGroup] = {}
    for at, case in enumerate(cases):
        key = (case.cluster, case.subscriptions)
        if key not in groups:
            groups[key] = _CaseGroup(replace(route, cluster=case.cluster), _matched_with(route, case), [])
        groups[key].cases.append((at, case))
    return list(groups.values())


def _matched_with(route: Route, case: Case) -> Sequence[Subscription]:
    if case.subscriptions is not None or route.subscriptions is None:
        return case.subscriptions or ()
    with closing(open_store(existing(route.subscriptions.store))) as store:
        return store.snapshot().subscriptions


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


def test(route_file: str | Path) -> Report:
    """Run the tests of a route file, as ``turnout test`` does, without Spark and servers.

    Args:
        route_file: the route, with ``tests`` in it or ``NAME.test.yaml`` beside it.

    Raises:
        RouteError: the route has mistakes.
        ConfigError: its tests have, or there are none.
    """
    file = Path(route_file)
    route = Route.load(file)
    return run_cases(route, [case for suite in load_suites(file, route) for case in suite.cases])


test.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for one of its own where it is imported


def difference_lines(difference: Difference) -> list[str]:
    """Return the path with the expected and the actual value, one below the other."""
    expected, actual = _as_json(difference.expected), _as_json(difference.actual)
    lines = [f"{difference.path}: expected {expected}", f"{' ' * len(difference.path)}  found    {actual}"]
    return [*lines, f"    {difference.note}"] if difference.note else lines


def _as_json(value: object) -> str:
    if value is ABSENT:
        return "nothing"
    return json.dumps(plain(value), ensure_ascii=False, default=str)


def coverage_lines(report: Report) -> Iterator[str]:
    """Yield the coverage of each kind, the parts not reached, and the records that have what the route names."""
    counts = []
    for kind in KINDS:
        items = report.coverage.of_kind(kind)
        if items:
            counts.append(f"{sum(item.reached for item in items)} of {len(items)} {kind}s")
    if counts:
        yield f"reached {', '.join(counts)}"
    missed = list(report.coverage.missed)
    yield from (f"    no test reaches {item.kind} {item.name}" for item in missed[:_SHOWN_IDS])
    if len(missed) > _SHOWN_IDS:
        yield f"    and {len(missed) - _SHOWN_IDS:,} more; --json has them all"
    yield from (f"FAILED mask {count}" for count in report.idle_masks)
    yield from (f"    name {count}" for count in report.coverage.names if not count.masks_nothing)


_SHOWN_IDS = 30


def report_json(report: Report) -> JsonObject:
    """Return the report as ``--json`` prints it."""
    items = report.coverage.items
    return {
        "route": report.route,
        "tests": len(report.results),
        "failed": len(report.failed),
        "seconds": round(report.seconds, 3),
        "cases": [_result_json(result) for result in report.results],
        "names": [
            {
                "path": count.path,
                "name": count.name,
                "found": count.found,
                "records": count.records,
                "mask": count.is_mask,
                "hint": count.hint.removeprefix("; ") or None,
            }
            for count in report.coverage.names
        ],
        "coverage": [{"kind": item.kind, "name": item.name, "reached": item.reached} for item in items],
    }


def _result_json(result: CaseResult) -> JsonObject:
    return {
        "name": result.case.name,
        "file": None if result.case.file is None else str(result.case.file),
        "line": result.case.line,
        "passed": result.passed,
        "outcome": result.ending.outcome,
        "differences": [
            {
                "path": difference.path,
                "expected": plain(difference.expected),
                "found": plain(difference.actual),
                "note": difference.note or None,
            }
            for difference in result.differences
        ],
    }


def junit_xml(reports: Iterable[Report]) -> str:
    """Return the reports as XML: one ``testsuite`` for each route, a ``testcase`` for each test and each idle mask."""
    root = ET.Element("testsuites")
    for report in reports:
        failed = len(report.failed) + len(report.idle_masks)
        numbers = {"tests": str(len(report.results) + len(report.idle_masks)), "failures": str(failed), "errors": "0"}
        suite = ET.SubElement(root, "testsuite", {"name": report.route, "time": f"{report.seconds:.3f}", **numbers})
        for result in report.results:
            _add(suite, report, result)
        for count in report.idle_masks:
            mask = ET.SubElement(
                suite, "testcase", {"classname": report.route, "name": _xml_text(f"mask {count.name}")}
            )
            ET.SubElement(mask, "failure", message=_xml_text(str(count)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ET.Element, report: Report, result: CaseResult) -> None:
    case = result.case
    location = {} if case.file is None else {"file": str(case.file), "line": str(case.line or 1)}
    names = {"classname": report.route, "name": _xml_text(case.name)}
    element = ET.SubElement(suite, "testcase", {**names, **location})
    if not result.passed:
        lines = [_xml_text(line) for difference in result.differences for line in difference_lines(difference)]
        failure = ET.SubElement(element, "failure", message=lines[0])
        failure.text = "\n".join(lines)


def _xml_text(text: str) -> str:
    """Return the text without the characters that XML 1.0 has no way to write."""
    return "".join(char if char in "\t\n" or " " <= char <= "\ud7ff" or char >= "\ue000" else "\ufffd" for char in text)
