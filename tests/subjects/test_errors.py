"""Errors of subjects and transforms: reason, text, token and position."""

from __future__ import annotations

import pytest

from turnout.errors import SubjectError
from turnout.subjects import NoMatchError, SubjectTransform
from turnout.subjects.errors import DestinationError, InvalidSubjectError, Reason


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
