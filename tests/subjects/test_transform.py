"""Subject transforms in pure Python."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.subjects import strategies
from tests.vectors.outcome import OLDER_SERVERS
from tests.vectors.subject_transform import python_outcomes

from turnout.subjects import SubjectTransform
from turnout.subjects.pattern import decode, encode

VECTORS = Path(__file__).parents[1] / "vectors" / "subjects" / "subject-transform.json"


def test_every_vector_passes() -> None:
    """The library does what the server does with each of them, quirks included."""
    outcomes = list(python_outcomes(json.loads(VECTORS.read_text(encoding="utf-8"))))

    assert len(outcomes) > 400
    assert [outcome for outcome in outcomes if outcome.status == "failed"] == []
    older = [outcome for outcome in outcomes if outcome.status == "unsupported"]
    assert {outcome.reason for outcome in older} == {OLDER_SERVERS}
    assert 0 < len(older) < 5


@pytest.mark.parametrize(
    ("source", "destination", "subject", "mapped"),
    [
        ("foo.>", "$0.>", "foo.a", "foo.a"),
        ("foo.>", "x.$0.>", "foo.a.b", "x.foo.a.b"),
        ("foo.>", "$-1.b.>", "foo.a", "foo.b.a"),
        ("foo.>", "{{wildcard(0)}}.b.>", "foo.a", "foo.b.a"),
        ("foo.>", "{{left(0,1)}}.b.>", "foo.a", "f.b.a"),
        ("foo.>", "{{split(0,o)}}.b.>", "foo.a", "f.b.a"),
        ("foo.>", "{{partition(10,0)}}.b.>", "foo.a", "3.b.a"),
        (">", "b.$0.>", "a", "b.a.a"),
    ],
)
def test_an_index_of_0_or_less_reads_the_first_token_also_without_a_star(
    source: str, destination: str, subject: str, mapped: str
) -> None:
    """nats-server 2.15.1 has been seen to map so where the source has a > alone; 1 and more are out of range there."""
    assert SubjectTransform.parse(source, destination).apply(subject) == mapped


@given(strategies.cases(), strategies.draws)
def test_generated_transforms_do_not_fail_on_subjects_that_match(case: strategies.Case, draw: float) -> None:
    """Every accepted transform works, deterministically for a draw, and keeps its number of literal dots."""
    transform = SubjectTransform.parse(case.source, case.destination)
    outcome = transform.apply(case.subject, draw)

    assert transform.apply(case.subject, draw) == outcome
    assert transform.apply_tokens(case.subject.split("."), draw) == outcome
    assert decode(encode(outcome)) == outcome
    assert outcome.count(".") >= transform.destination.count(".") - case.subject.count(".")


@given(st.permutations([1, 2, 3, 4]), st.lists(st.text("abü-", min_size=1), min_size=4, max_size=4))
def test_the_inverse_of_any_reordering_gives_the_subject_back(order: list[int], tokens: list[str]) -> None:
    """inverse() is right where the server's reverse() is not; both agree on swaps."""
    transform = SubjectTransform.parse("x.*.*.y.*.*", "z." + ".".join(f"${n}" for n in order))
    subject = f"x.{tokens[0]}.{tokens[1]}.y.{tokens[2]}.{tokens[3]}"
    back = transform.inverse()
    server = transform.reverse()
    own_inverse = all(order[n - 1] == place + 1 for place, n in enumerate(order))

    assert back is not None
    assert back.apply(transform.apply(subject)) == subject
    assert server is not None
    if own_inverse:
        assert server.apply(transform.apply(subject)) == subject


@pytest.mark.parametrize("destination", ["x", "$1.$1", "{{partition(3,1)}}", "$0.$1"])
def test_what_loses_a_wildcard_has_no_inverse(destination: str) -> None:
    """None, not a wrong transform."""
    transform = SubjectTransform.parse("a.*", destination)

    assert transform.inverse() is None


def test_a_transform_is_a_value() -> None:
    """It compares by what it says, and survives pickling, which is how Spark ships it."""
    transform = SubjectTransform.parse("a.*", "b.{{split(1,-)}}")
    again = pickle.loads(pickle.dumps(transform))

    assert again == transform == copy.deepcopy(transform)
    assert hash(again) == hash(transform)
    assert again.apply("a.x-y") == "b.x.y"
    assert str(transform) == "a.* -> b.{{split(1,-)}}"
