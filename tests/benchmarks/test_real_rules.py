"""The benchmark with rules of a folder."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from benchmarks._sigma import copies, events, subscriptions_in
from benchmarks.harness import CannotRunError, Options
from benchmarks.match import cases
from benchmarks.peers import sigma

from turnout.conditions import evaluate
from turnout.errors import TurnoutError

RULE = """
title: {name}
id: {name}-rule
logsource: {{product: linux, category: process_creation}}
detection:
  selection: {{Image|endswith: /{name}, CommandLine|contains: -{name}}}
  condition: selection
"""


@pytest.mark.heavy
def test_rules_are_measured(tmp_path) -> None:
    """One by one and in batches, after the answers were compared with the interpreter's."""
    for name in ("tar", "curl"):
        (tmp_path / f"{name}.yml").write_text(RULE.format(name=name))
    (case,) = (case for case in cases(Options(quick=True, rules=tmp_path)) if case.name == "real rules")

    results = list(case.measure())

    assert [result.case for result in results] == [
        "real rules: one by one", "real rules: batches of 1,000", "real rules: batches of 20",
    ]  # fmt: skip
    assert all(result.size == 2 and result.extra["matches"] > 0 for result in results)


@pytest.mark.soak  # Cargo compiles rsigma for ten minutes of two processors
@pytest.mark.timeout(2_400)
def test_rsigma_finds_the_same(tmp_path: Path) -> None:
    """Both read the rules of the folder, and match the same events."""
    for name in ("tar", "curl"):
        (tmp_path / f"{name}.yml").write_text(RULE.format(name=name))
    (case,) = sigma.cases(Options(quick=True, rules=tmp_path))

    try:
        results = list(case.measure())
    except CannotRunError as missing:
        pytest.skip(str(missing))

    assert [result.case.rpartition(": ")[2] for result in results] == [
        "batches of 1,000",
        "batches of 20",
        "one by one",
    ]
    for result in results:
        assert result.size == 2
        assert result.extra["matches"] > 0
        assert result.extra["different_percent"] == 0


def test_answers_that_differ_are_no_measurement() -> None:
    """A pair that only one side finds is counted; more than a few are an error with the first."""
    ours, theirs = [["a"]] * 1_000, [["a", "unknown"]] * 999 + [[]]
    assert sigma._compared(iter(ours), iter(theirs), {"a"}) == (1_000, 1)
    with pytest.raises(TurnoutError, match=r"1000 of 1000 .* event 0: \['a'\]"):
        sigma._compared(iter(ours), iter([[]] * 1_000), {"a"})


def test_events_meet_rules(tmp_path) -> None:
    """Events have the texts of rules, so that some match, and none comes twice; copies have ids of their own."""
    (tmp_path / "tar.yml").write_text(RULE.format(name="tar"))
    rules = subscriptions_in(tmp_path)
    some = list(islice(events(rules), 50))

    assert all(evaluate(rules[0].condition, event) for event in some)
    assert len({tuple(event.items()) for event in some}) == 50
    assert len({own.id for own in copies(rules, 5)}) == 5


def test_a_folder_without_rules(tmp_path) -> None:
    """It is said that nothing can be measured."""
    with pytest.raises(CannotRunError, match="no rules"):
        subscriptions_in(tmp_path)
