"""Event patterns have the answers of event-ruler, EventBridge's own matcher."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.harness import CannotRunError
from benchmarks.peers import rules
from benchmarks.peers.programs import Program, java_program

from tests.subscriptions.test_eventbridge import CASES, VECTORS
from turnout.conditions import evaluate, format_condition, leaves, parse
from turnout.engine.metadata import Metadata, texts_of
from turnout.records import Batch
from turnout.records.batch import Record
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.eventbridge import condition_of
from turnout.subscriptions.index import Index

pytestmark = pytest.mark.heavy

_NAMES, _OTHERS = ("a", "b", "c"), ("d", "e")
_TEXTS = ("x", "y", "xy", "", "1", "null", '["x"]', '{"a":"x"}')
_VALUES = (*_TEXTS, 1, 2, 1.5, True, False, None)
_TESTS: tuple[Any, ...] = (
    *_VALUES,
    *({"exists": exists} for exists in (True, False, False, False)),
    *({"anything-but": refused} for refused in ("x", ["x", "y"], 1, [1, 2], {"prefix": "x"})),
    *({"numeric": bounds} for bounds in ([">", 1], [">", 0, "<", 2], ["=", 1])),
    {"prefix": "x"},
    {"suffix": "y"},
    {"wildcard": "x*"},
    {"equals-ignore-case": "X"},
)


@pytest.fixture
def answers(tmp_path: Path):
    """Ask event-ruler which patterns each event matches, and which patterns it refuses."""
    try:
        command = java_program("ruler/Rules.java", rules.PACKAGES, "-Xmx512m")
    except CannotRunError as missing:
        pytest.skip(str(missing))

    def ask(patterns: Sequence[object], events: Sequence[object]) -> tuple[list[set[int]], set[int]]:
        given = [{"id": str(number), "rule": pattern} for number, pattern in enumerate(patterns)]
        (tmp_path / "rules").write_text("".join(f"{json.dumps(rule)}\n" for rule in given))
        (tmp_path / "events").write_text("".join(f"{json.dumps(event)}\n" for event in events))
        with Program([*command, tmp_path / "rules"]) as program:
            program.ask(f"load {tmp_path / 'events'}")
            refused = set(map(int, program.ask("refused")))
            program.ask(f"write {tmp_path / 'matches'}")
        lines = (tmp_path / "matches").read_text().splitlines()
        return [set(map(int, json.loads(line))) for line in lines], refused

    return ask


def test_vectors_are_its_answers(answers) -> None:
    """But for a name with a dot in it, which is one name here."""
    cases = [case for case in CASES if case["id"] != "names-with-dots"]
    events = [event for case in cases for event in (*case["wanted"], *case["unwanted"])]
    wanted = [(case["id"], True) for case in cases for _ in case["wanted"]]
    refusals = json.loads((VECTORS / "refused.json").read_text())
    matches, refused = answers([case["pattern"] for case in cases] + refusals, events)

    assert len(wanted) <= len(events)
    index = 0
    for number, case in enumerate(cases):
        both = [*((event, True) for event in case["wanted"]), *((event, False) for event in case["unwanted"])]
        assert [(event, number in matches[index + at]) for at, (event, _) in enumerate(both)] == both, case["id"]
        index += len(both)
    assert refused == set(range(len(cases), len(cases) + len(refusals)))


@pytest.mark.parametrize("seed", range(3))
def test_random_patterns_and_events(answers, seed: int) -> None:
    """Arrays in arrays, missing fields and choices: by the interpreter, by batches of the index, and by its text."""
    draw = random.Random(seed)
    patterns = [_pattern(draw, draw.choice([1, 2, 3]), top=True) for _ in range(150)]
    events = [_event(draw) for _ in range(120)]
    matches, refused = answers(patterns, events)
    assert not refused

    conditions = [condition_of(pattern) for pattern in patterns]
    keys = sorted({leaf.key for condition in conditions for leaf in leaves(condition)})
    batch = Batch.of_records([Record("t", event) for event in events])
    columns = Metadata({"*": "value.*"}).columns(batch, batch.alive, keys)
    for row, event in enumerate(events):
        texts = texts_of(columns, row)
        for number, condition in enumerate(conditions):
            shown = (patterns[number], event, format_condition(condition))
            assert (evaluate(condition, texts), shown) == (number in matches[row], shown)
    assert [parse(format_condition(condition)) for condition in conditions] == conditions
    subscriptions = [Subscription(["d"], condition, id=str(number)) for number, condition in enumerate(conditions)]
    found = Index.of(subscriptions).match(columns, len(events))
    assert np.bincount(found.rows, minlength=len(events)).tolist() == list(map(len, matches))
    texts_of_events = [texts_of(columns, row) for row in range(len(events))]
    ids = Matcher(subscriptions).match_many(texts_of_events).ids()
    assert [set(map(int, own)) for own in ids] == matches


def _event(draw: random.Random) -> dict[str, Any]:
    event = {name: _content(draw, 4) for name in draw.sample((*_NAMES, *_OTHERS), draw.randint(1, 4))}
    return event | ({"detail": {name: _content(draw, 3) for name in _NAMES}} if draw.random() < 0.4 else {})


def _content(draw: random.Random, depth: int) -> object:
    kind = draw.random()
    if depth == 0 or kind < 0.35:
        return draw.choice(_VALUES)
    if kind < 0.65:
        return {name: _content(draw, depth - 1) for name in draw.sample((*_NAMES, *_OTHERS), draw.randint(0, 4))}
    return [_content(draw, depth - 1) for _ in range(draw.randint(0, 3))]


def _pattern(
    draw: random.Random, depth: int, names: Sequence[str] = _NAMES, *, top: bool = False, chosen: bool = False
) -> dict[str, Any]:
    """Return a pattern without fields that occur in two combinations: there event-ruler finds too little."""
    pattern: dict[str, Any] = {}
    for name in draw.sample(names, draw.randint(1, 2)):
        if depth and draw.random() < 0.6:
            pattern[name] = _pattern(draw, depth - 1, chosen=chosen)
        else:
            pattern[name] = draw.sample(_TESTS, 1 if chosen else draw.choice([1, 1, 1, 2]))
    if top and draw.random() < 0.5:
        pattern["detail"] = _pattern(draw, 2)
    if not chosen and draw.random() < 0.25:
        pattern["$or"] = [_pattern(draw, min(depth, 1), _OTHERS, chosen=True) for _ in range(2)]
    return pattern
