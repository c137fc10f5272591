"""Draws of records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.subjects import strategies

from turnout.errors import SubjectError
from turnout.loops import compile_loops
from turnout.subjects import SubjectTransform, arrays


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from([None, 0, 7]), st.none() | st.integers(0, 2**63 - 1))))
def test_the_loop_hashes_as_xxhash_does(records: list[Any]) -> None:
    """A record has the same draw by the reference and by the loop."""
    topics, partitions, offsets = ([record[part] for record in records] for part in range(3))

    expected = list(map(arrays._digest, topics, partitions, offsets))
    assert arrays._digests(topics, partitions, offsets).tolist() == expected


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    compile_loops()


def _one_by_one(transform: SubjectTransform, subjects: list[str], draws: list[float] | None) -> list[str | None]:
    """The reference."""
    results: list[str | None] = []
    for row, subject in enumerate(subjects):
        try:
            results.append(transform.apply(subject, None if draws is None else draws[row]))
        except SubjectError:
            results.append(None)
    return results


@st.composite
def _batches(draw: st.DrawFn) -> tuple[SubjectTransform, list[str], list[float]]:
    """A transform and more subjects than are mapped one by one, most of which match."""
    source = draw(strategies.sources)
    transform = SubjectTransform.parse(source, draw(strategies.destinations_of(source)))
    usual = st.lists(strategies.subjects_of(source), min_size=8, max_size=20)
    odd = st.lists(strategies.subjects_of("*.b.*") | st.sampled_from(strategies.ODD_SUBJECTS), max_size=3)
    other = st.lists(strategies.subjects_of(draw(strategies.sources)), max_size=10)
    subjects = draw(st.permutations(draw(usual) + draw(odd) + draw(other)))
    return transform, subjects, draw(st.lists(strategies.draws, min_size=len(subjects), max_size=len(subjects)))


@given(_batches())
def test_each_subject_is_mapped_as_by_itself(batch: tuple[SubjectTransform, list[str], list[float]]) -> None:
    """Whatever the other subjects are."""
    transform, subjects, draws = batch

    assert transform.apply_many(subjects, draws) == _one_by_one(transform, subjects, draws)


@pytest.mark.parametrize(
    "odd",
    [
        "a.\n",
        "a\n.b",
        "a.b\n",
        "",
        ".",
        "a",
        "a.b.c",
        "a.*",
        "a.>",
        "a.b>c",
        "a..b",
        ".a",
        "a.",
        "a.\udfff",
        "\n",
        "\n.\n",
    ],
)
@pytest.mark.parametrize("row", [0, 7, 2000])
@pytest.mark.parametrize("destination", ["eu.$1", "{{partition(7)}}.{{split(1,-)}}", "x.{{partition(7,1)}}", "y"])
def test_an_odd_subject_leaves_the_others_alone(odd: str, row: int, destination: str) -> None:
    """At the start, in the middle or at the end of a batch of several portions."""
    transform = SubjectTransform.parse("a.*", destination) if destination != "y" else SubjectTransform.parse("a.b", "y")
    subjects = [f"a.{number}-é" if number % 5 == 0 else f"a.{number}" for number in range(2000)]
    subjects.insert(row, odd)

    assert transform.apply_many(subjects) == _one_by_one(transform, subjects, None)


@pytest.mark.parametrize("destination", ["", ">"])
def test_an_unchanging_transform_accepts_every_subject(destination: str) -> None:
    """As `apply` does."""
    assert SubjectTransform.parse(">", destination).apply_many(["a.b", "*", ""]) == ["a.b", "*", ""]


def test_no_subjects() -> None:
    """Nothing to map gives nothing."""
    assert SubjectTransform.parse("a.*", "b.$1").apply_many([]) == []


def test_draws_are_checked() -> None:
    """Each has its range, and each subject has one."""
    transform = SubjectTransform.parse("a.*", "b.{{random(5)}}")
    subjects = [f"a.{number}" for number in range(20)]

    with pytest.raises(ValueError, match=r"found 1\.5"):
        transform.apply_many(subjects, [0.5] * 19 + [1.5])
    with pytest.raises(ValueError, match="3 draws for 20 subjects"):
        transform.apply_many(subjects, [0.5] * 3)
    assert set(transform.apply_many(subjects * 50)) == {f"b.{number}" for number in range(5)}
