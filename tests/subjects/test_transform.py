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
from tests.vectors.subject_transform import python_outcomes

from turnout.errors import SubjectError
from turnout.subjects import NoMatchError, SubjectTransform
from turnout.subjects.errors import DestinationError, InvalidSubjectError, Reason
from turnout.subjects.tokens import decode, encode

VECTORS = Path(__file__).parents[1] / "vectors" / "subjects" / "subject-transform.json"


def test_every_vector_passes() -> None:
    """The library does what the server does with each of them, quirks included."""
    outcomes = list(python_outcomes(json.loads(VECTORS.read_text(encoding="utf-8"))))

    assert len(outcomes) > 400
    assert [outcome for outcome in outcomes if outcome.status != "passed"] == []


@pytest.mark.parametrize(
    ("source", "destination", "strict", "reason", "token", "position"),
    [
        ("a..b", "x", False, Reason.BAD_SUBJECT, "", 2),
        ("a.>.b", "x", False, Reason.BAD_SUBJECT, ">", 2),
        ("a.*", "x.y.*", False, Reason.BAD_SUBJECT, "*", 4),
        ("a.>", "x", False, Reason.BAD_SUBJECT, ">", 2),
        ("a.b", "x.yz.>", False, Reason.BAD_SUBJECT, ">", 5),
        ("a.*", "x.{{nope(1)}}", False, Reason.UNKNOWN_FUNCTION, "{{nope(1)}}", 2),
        ("a.*", "x.y.{{wildcard()}}", False, Reason.NOT_ENOUGH_ARGUMENTS, "{{wildcard()}}", 4),
        ("a.*", "{{wildcard(1,2)}}", False, Reason.TOO_MANY_ARGUMENTS, "{{wildcard(1,2)}}", 0),
        ("a.*", "ü.{{left(1,x)}}", False, Reason.INVALID_ARGUMENT, "{{left(1,x)}}", 2),
        ("a.*", "x.$2", False, Reason.INDEX_OUT_OF_RANGE, "$2", 2),
        ("a", "x.$1", False, Reason.INDEX_OUT_OF_RANGE, "$1", 2),
        ("a.*", "x", True, Reason.NOT_USING_ALL_WILDCARDS, "x", 0),
        ("a.*", "$1.{{random(2)}}", True, Reason.NOT_SUPPORTED_FOR_IMPORT, "{{random(2)}}", 3),
    ],
)
def test_an_error_names_reason_text_token_and_position(
    source: str, destination: str, strict: bool, reason: Reason, token: str, position: int
) -> None:
    """Whoever wrote the transform sees what is wrong and where."""
    with pytest.raises(SubjectError) as failure:
        SubjectTransform.parse(source, destination, strict)

    assert getattr(failure.value, "reason", None) is reason
    assert failure.value.text in (source, destination)
    assert failure.value.position == position
    assert getattr(failure.value, "token", None) == token
    assert f"at position {position}" in str(failure.value)
    assert repr(failure.value.text) in str(failure.value)


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


@pytest.mark.parametrize("destination", ["$1.>", "{{wildcard(1)}}.>", "{{left(1,1)}}.>", "{{partition(10,1)}}.>"])
def test_an_index_of_1_is_out_of_range_without_a_star(destination: str) -> None:
    """There is no first wildcard for it to name."""
    with pytest.raises(DestinationError, match="out of range"):
        SubjectTransform.parse("foo.>", destination)


def test_a_source_without_any_wildcard_has_no_first_token_to_read() -> None:
    """The quirk is that of a source with > or *; a literal one takes no index at all."""
    with pytest.raises(DestinationError, match="out of range"):
        SubjectTransform.parse("foo.a", "$0.b")


def test_a_subject_that_does_not_match_is_told_from_one_that_is_not_valid() -> None:
    """A route passes the first on and dead-letters the second."""
    transform = SubjectTransform.parse("a.*", "b.$1")

    with pytest.raises(NoMatchError) as failure:
        transform.apply("c.d")
    with pytest.raises(LookupError):
        transform.apply("c.d")
    for subject, token, position in (("a..", "", 2), ("a.*", "*", 2), ("a.b.>", ">", 4)):
        with pytest.raises(InvalidSubjectError) as invalid:
            transform.apply(subject)
        assert (invalid.value.text, invalid.value.token, invalid.value.position) == (subject, token, position)
    assert (failure.value.text, failure.value.source) == ("c.d", "a.*")


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
