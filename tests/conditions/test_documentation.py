"""The examples of docs/conditions.md do what the page says."""

from __future__ import annotations

import json

import pytest

from tests.documentation import blocks
from turnout.conditions import decode, format_condition, parse

PAGE = "conditions.md"


@pytest.mark.parametrize("example", blocks(PAGE, "python"), ids=str)
def test_example(example):
    """The comment after each print is its output."""
    assert example.run({}) == example.told


def test_text():
    """Every line of the text example is a condition, in the words in which it is written again."""
    (example,) = blocks(PAGE, "")
    lines = example.text.splitlines()

    assert [format_condition(parse(line)) for line in lines] == lines


def test_json():
    """The JSON example is the first line of the text example."""
    (written,) = blocks(PAGE, "json")
    (text,) = blocks(PAGE, "")

    assert decode(json.loads(written.text)) == parse(text.text.splitlines()[0])


def test_every_leaf_of_the_table():
    """Each text in the table of leaves is a leaf."""
    from tests.documentation import DOCS

    table = (DOCS / PAGE).read_text(encoding="utf-8").partition("| leaf |")[2].partition("\n\n")[0]
    texts = [text for row in table.splitlines()[2:] for text in row.split("|")[3].split("`")[1::2]]

    assert len(texts) >= 8
    for text in texts:
        assert parse(text)
