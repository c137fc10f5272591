"""Values of two versions, field by field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.history.diff.diff import ENCODING, value_changes
from turnout.history.suite.outcomes import ABSENT

scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, "a", "ä", ""]))
nested = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b'{"a": 1, "b": 2}', b'{"a": 1, "c": 2}', [("b", 2, ABSENT), ("c", ABSENT, 2)]),
        (b'{"a": {"b": [1, {"c": 2}]}}', b'{"a": {"b": [1, {"c": 3}]}}', [("a.b[].c", 2, 3)]),
        (b'{"a": [1, 2, 3]}', b'{"a": [2, 3, 3]}', [("a[]", 1, 2)]),
        (b'{"a": [1]}', b'{"a": [1, 2]}', [("a", [1], [1, 2])]),
        (b'{"a": null}', b"{}", [("a", None, ABSENT)]),
        (b'{"a": 1}', b'{"a": true}', [("a", 1, True)]),
        (b'{"a": 1}', b'{"a": 1.0}', [(ENCODING, '{"a": 1}', '{"a": 1.0}')]),
        (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}', [(ENCODING, '{"a": 1, "b": 2}', '{"b": 2, "a": 1}')]),
        (b"[1]", b"[2]", [("[]", 1, 2)]),
        (b"text", b'{"a": 1}', [("", "text", {"a": 1})]),
        (b"\xff", b"\xfe", [("", b"\xff", b"\xfe")]),
        (b'{"a": 1}', None, [("", {"a": 1}, ABSENT)]),
        (None, b"x", [("", ABSENT, "x")]),
    ],
)
def test_fields_that_changed(old: bytes | None, new: bytes | None, expected: list[Any]) -> None:
    """By their paths, each once for a value; what is no JSON is compared as a whole."""
    assert value_changes(old, new) == expected


@given(st.dictionaries(st.sampled_from("abc"), nested, max_size=3), st.dictionaries(st.sampled_from("abc"), nested))
def test_no_field_is_missed(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Only the encoding has changed where both mean the same, which true and 1 do not; else each such field has."""
    changes = value_changes(json.dumps(old).encode(), json.dumps(new, indent=1).encode())

    other = {name for name in {*old, *new} if not same(old.get(name, ABSENT), new.get(name, ABSENT))}
    if other:
        assert {path.partition(".")[0].partition("[")[0] for path, _, _ in changes} == other
    else:
        assert [path for path, _, _ in changes] == [ENCODING]


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, without what Python takes for equal beyond it."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
