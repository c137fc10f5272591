"""Account mappings: validation, shares, clusters, order, and where they are read from."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.vectors.mappings import python_outcomes

from turnout.subjects import MappingTable, MappingTableError
from turnout.subjects.errors import Reason
from turnout.subjects.mapping import explain

VECTORS = Path(__file__).parents[1] / "vectors" / "subjects" / "mappings.json"


def test_every_vector_passes() -> None:
    """The empty destination is left out: the server accepts it and then crashes."""
    outcomes = list(python_outcomes(json.loads(VECTORS.read_text(encoding="utf-8"))))

    assert len(outcomes) > 150
    assert [outcome for outcome in outcomes if outcome.status == "failed"] == []
    assert Counter(outcome.status for outcome in outcomes)["unsupported"] == 2


@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [
        (5, Reason.NOT_AN_ENTRY, '"foo"'),
        ([{"dest": "a", "weight": 1}, "b"], Reason.NOT_AN_ENTRY, '"foo"[1]'),
        ({"dest": "a", "weight": 1, "colour": "red"}, Reason.UNKNOWN_FIELD, '"foo"'),
        ({"weight": 100}, Reason.MISSING_DESTINATION, '"foo"[0]'),
        ("", Reason.MISSING_DESTINATION, '"foo"[0]'),
        ({"dest": "a"}, Reason.MISSING_WEIGHT, '"foo"'),
        ({"dest": "a", "weight": 1.5}, Reason.WEIGHT_TYPE, '"foo"'),
        ({"dest": "a", "weight": True}, Reason.WEIGHT_TYPE, '"foo"'),
        ({"dest": "a", "weight": "12%%"}, Reason.INVALID_WEIGHT, '"foo"'),
        ([{"dest": "a", "weight": 1}, {"dest": "a", "weight": 1}], Reason.DUPLICATE_DESTINATION, '"foo"[1]'),
        ([{"dest": "a", "weight": 60}, {"dest": "b", "weight": 60}], Reason.TOTAL_OVER_100, '"foo"[1]'),
        ("a.$1", Reason.BAD_DESTINATION, '"foo"[0]'),
        ({"dest": 5, "weight": 1}, Reason.NOT_AN_ENTRY, '"foo"'),
        ({"dest": "a", "weight": 1, "cluster": 5}, Reason.NOT_AN_ENTRY, '"foo"'),
    ],
)
def test_a_wrong_mapping_says_what_and_where(value: Any, reason: Reason, path: str) -> None:
    """The error has the reason, and the path in the block."""
    with pytest.raises(MappingTableError) as failure:
        MappingTable.from_config({"foo": value, "fine": "x"})

    assert [error.reason for error in failure.value.errors] == [reason]
    assert failure.value.mistakes[0].path == path


def test_all_wrong_sources_are_told_at_once() -> None:
    """One message for the whole table."""
    table: dict[Any, Any] = {"a..b": "x", "c": "y z", "d": "fine", 7: "x"}
    with pytest.raises(MappingTableError) as failure:
        MappingTable.from_config(table)

    assert [error.source for error in failure.value.errors] == ["a..b", "c", "7"]
    assert str(failure.value).startswith("3 mappings are wrong")


def test_the_first_source_written_wins() -> None:
    """The server's order is that of a Go map, new at each start; ours is the file's."""
    pairs = [("o.*", "star.$1"), ("o.x", "lit"), ("o.>", "gt.>"), (">", "all.>")]

    assert MappingTable.from_config(dict(pairs)).apply("o.x") == "star.x"
    assert MappingTable.from_config(dict(reversed(pairs))).apply("o.x") == "all.o.x"
    assert MappingTable.from_config(dict(pairs)).apply("p") == "all.p"
    assert [m.source for m in MappingTable.from_config(dict(pairs)).matching("o.y")] == ["o.*", "o.>", ">"]


def test_shares_without_a_draw_follow_the_weights() -> None:
    """Each call makes a new draw; 10,000 of them stay within five standard deviations."""
    table = MappingTable.from_config({"foo": {"dest": "foo", "weight": 30}})
    counts = Counter(table.apply("foo") for _ in range(10_000))

    assert set(counts) == {"foo", None}
    assert abs(counts["foo"] - 3_000) < 5 * (10_000 * 0.3 * 0.7) ** 0.5


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
