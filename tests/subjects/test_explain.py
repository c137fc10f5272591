"""Explanations of a mapping."""

from __future__ import annotations

from turnout.subjects import (
    MappingTable,
)
from turnout.subjects.explain import explain


def test_explain_shows_the_mapping_taken_its_shares_and_what_kept_the_others_out() -> None:
    """For people: turnout map --config and turnout explain."""
    table = MappingTable.from_config(
        {
            "foo.*": [{"dest": "a.$1", "weight": 60}, {"dest": "w", "weight": 100, "cluster": "west"}],
            "foo.>": "b.>",
            "x": "y",
        }
    )
    explanation = explain(table, "foo.1")
    west = explain(table, "foo.1", "west")
    nothing = explain(table, "bar")

    assert [(o.subject, o.share, o.completed) for o in explanation.outcomes] == [
        ("foo.1", 40, True),
        ("a.1", 60, False),
    ]
    assert explanation.group == ""
    assert (west.group, [o.subject for o in west.outcomes]) == ("west", ["w"])
    assert dict(explanation.others) == {
        "foo.>": "it matches too, but is later in the list",
        "x": "token 1 is 'foo', not 'x'",
    }
    assert nothing.mapping is None
    assert nothing.others[0] == ("foo.*", "token 1 is 'bar', not 'foo'")
