"""Paths of fields and of elements of arrays, and their steps."""

from __future__ import annotations

import pytest

from turnout.records.field_paths import EACH, PathError, has_elements, parse_elements, parse_path


@pytest.mark.parametrize(
    ("text", "steps"),
    [("a", ("a",)), ("a.b", ("a", "b")), ("a.`b.c`.d", ("a", "b.c", "d")), ("", ()), ("a.", ("a", "")),
     ("`a\\`.b`", ("a`.b",)), ("a`b", ("a`b",))],
)  # fmt: skip
def test_a_path_is_cut_at_its_dots(text: str, steps: tuple[str, ...]) -> None:
    """Dots between backticks do not separate steps."""
    assert steps == parse_path(text)


def test_brackets_in_backticks_are_a_name() -> None:
    """Without backticks they select each element, also twice."""
    assert parse_elements("a[][].`b[]`.`[]`.c[]") == ("a", EACH, EACH, "b[]", "[]", "c", EACH)
    assert [has_elements(parse_elements(path)) for path in ("a.b", "`a[]`.`[]`", "a[].b")] == [False, False, True]


def test_a_backtick_has_to_be_closed() -> None:
    """The message says where it was opened."""
    with pytest.raises(PathError, match="position 2"):
        parse_path("a.`b")
