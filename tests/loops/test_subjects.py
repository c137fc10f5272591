"""Tests of turnout.loops.subjects: interpreted, compiled and the reference give the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.subjects import strategies
from tests.vectors.subject_transform import parsed
from turnout.errors import SubjectError
from turnout.loops import compile_loops
from turnout.loops import subjects as loops
from turnout.subjects import MappingTable, SubjectTransform
from turnout.subjects import arrays as arrays_module
from turnout.subjects.arrays import Mapper, SubjectArrays, transform_many

VECTORS = Path(__file__).parents[1] / "vectors" / "subjects"
EACH_FORM = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["interpreted", "compiled"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both forms of the loops."""
    compile_loops()
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "interpreted":
            for loop in (loops.find, loops.render, loops.hash_longs):
                patch.setattr(loops, loop.function.__name__, loop.interpreted)
        yield request.param


def _reference(transform: SubjectTransform, subject: str, draw: float | None) -> str | None:
    try:
        return transform.apply(subject, draw)
    except SubjectError:
        return None


@st.composite
def _batches(draw: st.DrawFn) -> tuple[SubjectTransform, list[str], list[float]]:
    """A transform and subjects, most of which match."""
    source = draw(strategies.sources)
    transform = SubjectTransform.parse(source, draw(strategies.destinations_of(source)))
    usual = st.lists(strategies.subjects_of(source), min_size=1, max_size=12)
    odd = st.lists(strategies.subjects_of("*.b.*") | st.sampled_from(strategies.ODD_SUBJECTS), max_size=5)
    subjects = draw(st.permutations(draw(usual) + draw(odd)))
    return transform, subjects, draw(st.lists(strategies.draws, min_size=len(subjects), max_size=len(subjects)))


@EACH_FORM
@given(batch=_batches(), size=st.sampled_from([1, 2, 20]))
def test_transforms(form: str, batch: tuple[SubjectTransform, list[str], list[float]], size: int) -> None:
    """Each subject is mapped as by the reference, however the subjects are divided into calls."""
    transform, subjects, draws = batch
    expected = list(map(_reference, [transform] * len(subjects), subjects, draws))

    assert transform_many(transform, subjects, draws) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays_module, "ROWS_AT_ONCE", size)
        assert transform_many(transform, subjects, draws) == expected


@EACH_FORM
@given(case=strategies.tables_with_subjects(), cluster=st.sampled_from([None, "west"]), seed=strategies.seeds)
def test_tables(form: str, case: tuple[dict[str, Any], list[str]], cluster: str | None, seed: int) -> None:
    """Overlapping sources, weights, clusters, losses and random(): as by the reference, for the same draws."""
    config, subjects = case
    subjects = [*subjects, *strategies.ODD_SUBJECTS, "a\nb"]
    table, draws = MappingTable.from_config(config), np.random.default_rng(seed).random(len(subjects))

    mapped = Mapper(table, cluster).apply(subjects, lambda rows: draws[np.array(rows, np.intp)])

    assert mapped == [
        table.apply(subject, cluster, draw) for subject, draw in zip(subjects, draws.tolist(), strict=True)
    ]


def test_vectors(form: str) -> None:
    """The server's vectors: each transform on the subjects of all."""
    vectors = json.loads((VECTORS / "subject-transform.json").read_text(encoding="utf-8"))["vectors"]
    refused = [v for v in vectors if isinstance(v["expect"], dict) and v["expect"].get("stage") == "create"]
    transforms = {parsed(vector) for vector in vectors if vector not in refused}
    subjects = [vector["subject"] for vector in vectors]
    draws = [number / len(subjects) for number in range(len(subjects))]

    assert len(transforms) > 40
    for transform in transforms:
        expected = list(map(_reference, [transform] * len(subjects), subjects, draws))
        if not transform._is_unchanging:
            assert transform_many(transform, subjects, draws) == expected


def test_texts_that_are_no_lines_are_left_to_the_reference(form: str) -> None:
    """Sources and destinations with line feeds, or with bytes that are not UTF-8."""
    config = {"a.*": "x.\udcff.{{split(1,\udcc3)}}", "b.\udcc3\udca9": "y", "c.*": [{"dest": "z.$1", "weight": 100}]}
    subjects = ["a.é", "a.b", "b.é", "b.\udcc3\udca9", "c.d", *["d"] * 8]
    table = MappingTable.from_config(config)

    assert Mapper(table).apply(subjects, lambda rows: np.zeros(len(rows))) == [table.apply(one) for one in subjects]
    transform = SubjectTransform.parse("a.*", "x\n.{{left(1,1)}}")
    assert transform_many(transform, ["a.bc", "a"], None) == ["x\n.b", None]


def test_results_that_are_longer_than_the_buffer(form: str) -> None:
    """It grows, and no row is written twice."""
    transform = SubjectTransform.parse("*", ".".join(["{{split(1,)}}"] * 40 + ["end"]))
    subjects = [str(number) * (number % 7 + 1) for number in range(60)]

    assert transform_many(transform, subjects, None) == [transform.apply(subject) for subject in subjects]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_hashes_of_numbers(values: list[int]) -> None:
    """Interpreted and compiled arithmetic wrap in the same way."""
    numbers = np.array(values, np.int64)
    interpreted, compiled = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)

    loops.hash_longs.interpreted(numbers, numbers[::-1].copy(), interpreted)
    loops.hash_longs.dispatcher()(numbers, numbers[::-1].copy(), compiled)

    assert interpreted.tolist() == compiled.tolist()


def fuzz(count: int) -> None:
    """Run any bytes through sources and destinations of every kind."""
    random = np.random.default_rng(7)
    calls = ["wildcard(1)", "partition(7,2,1)", "partition(5)", "split(2,-)", "split(2,--)", "split(1,)", "random(9)"]
    calls += [f"{name}({index},{number})" for name in strategies.CUTS for index in (1, 2) for number in (1, 3)]
    sources = ["*.*", "*.*.>", "a.*.*", "*.a.*.>", "a.*.b.*", "*.*.a"]
    destinations = [
        f"x.{{{{{call}}}}}.y.{{{{{other}}}}}" for call, other in zip(calls, calls[1:] + calls, strict=False)
    ]
    steps = [
        (SubjectTransform.parse(source, to + (".>" if source.endswith(">") else "")))
        for source in sources
        for to in destinations
    ]
    for only_literal in (False, True):
        arrays = SubjectArrays(sources, [(one.steps, one.tail) for one in steps], only_literal=only_literal)
        for _ in range(count):
            bytes_ = random.choice(np.frombuffer(b"a.b*>-\n\xc3\xa9\xe6\x97\xf0\x90\xff", np.uint8), 400)
            lines = bytes_.tobytes() + b"\n"
            rows = lines.count(b"\n")
            assert rows == 0 or not arrays.find_lines(lines, rows - 1)[2]
            found, starts, is_whole = arrays.find_lines(lines, rows)
            assert is_whole
            targets = np.where(
                found < 0, random.integers(-2, 0, rows), found * len(destinations) + random.integers(len(destinations))
            )
            assert arrays.render(lines, starts, targets, random.random(rows)).count(b"\n") == rows


@pytest.mark.heavy
def test_any_bytes_stay_within_the_buffers(tmp_path: Path) -> None:
    """Compiled with checks of bounds, no index is outside of its array."""
    program = "from tests.loops import test_subjects as t; from turnout.loops import compile_loops; "
    program += "assert compile_loops(); t.fuzz(300)"
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "TURNOUT_LOOPS_CACHE": str(tmp_path), "PYTHONPATH": path}

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stderr[-2_000:]
