"""Test runs of a route: all records of a kind in one batch, with a result for each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from turnout.conditions import format_condition
from turnout.engine import Program
from turnout.engine.explain import explain
from turnout.engine.name_counts import NameCount
from turnout.engine.sample_records import record_batch
from turnout.history.case_outcome import CaseOutcome, ending_of
from turnout.history.coverage import Coverage, CoverageWatch
from turnout.history.outcome_comparison import ABSENT, Difference, differences
from turnout.history.suite import Case
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import Index
from turnout.subscriptions.store_url import existing


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
        leaves = ", ".join(f"{leaf.test} ({_value_text(leaf.value)})" for leaf in answer.blame)
        return f"{format_condition(by_id[subscription].condition)} fails by {leaves}"


def _value_text(value: str | None) -> str:
    return "missing" if value is None else repr(value)


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
    store = open_store(existing(route.subscriptions.store))
    try:
        return store.snapshot().subscriptions
    finally:
        store.close()
