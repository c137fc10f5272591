"""YAML within bounds."""

from __future__ import annotations

import pytest
import yaml

from turnout.base.yaml_values import load, position_of


def test_values_are_plain() -> None:
    """Merge keys and anchors are resolved; a date stays text or a date as YAML has it, and nothing is called."""
    text = "base: &b {a: 1, c: [x, null, true, 2.5]}\nmore: {<<: *b, a: 2}\n"

    assert load(text) == {
        "base": {"a": 1, "c": ["x", None, True, 2.5]},
        "more": {"a": 2, "c": ["x", None, True, 2.5]},
    }


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "a: !!python/object/apply:os.system [true]",
        "a: &a [" + "1," * 200 + "]\nb: [" + "*a," * 200 + "]",
        "a: " + "1:" * 500 + "1",
        "a: [",
        "--- 1\n--- 2",
    ],
    ids=["deep", "a tag", "aliases", "a number", "unfinished", "two documents"],
)
def test_texts_beyond_the_bounds_are_errors_of_yaml(text: str) -> None:
    """No other exception, and none that ends the process."""
    with pytest.raises(yaml.YAMLError):
        load(text)


def test_an_error_has_its_line() -> None:
    """Counted from 1."""
    with pytest.raises(yaml.YAMLError) as refused:
        load("a: 1\nb: [\n")

    assert position_of(refused.value)[1] in (2, 3)
