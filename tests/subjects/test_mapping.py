"""Account mappings: validation, shares, clusters, order, and where they are read from."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.subjects import strategies
from tests.vectors.mappings import python_outcomes

from turnout.errors import ConfigError
from turnout.subjects import (
    MappingTable,
    MappingTableError,
    mappings_from_claim,
    stream_transforms,
)
from turnout.subjects.errors import Reason
from turnout.subjects.explain import explain
from turnout.subjects.pattern import covers_tokens

VECTORS = Path(__file__).parents[1] / "vectors" / "subjects" / "mappings.json"


def test_every_vector_passes() -> None:
    """But for the empty destination, which the server accepts and then crashes on."""
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
    with pytest.raises(MappingTableError) as failure:
        MappingTable.from_config({"a..b": "x", "c": "y z", "d": "fine", 7: "x"})

    assert [error.source for error in failure.value.errors] == ["a..b", "c", "7"]
    assert str(failure.value).startswith("3 mappings are wrong")


def test_the_first_source_written_wins() -> None:
    """The server's order is that of a Go map, new at each start; ours is the file's."""
    pairs = [("o.*", "star.$1"), ("o.x", "lit"), ("o.>", "gt.>"), (">", "all.>")]

    assert MappingTable.from_config(dict(pairs)).apply("o.x") == "star.x"
    assert MappingTable.from_config(dict(reversed(pairs))).apply("o.x") == "all.o.x"
    assert MappingTable.from_config(dict(pairs)).apply("p") == "all.p"
    assert [m.source for m in MappingTable.from_config(dict(pairs)).matching("o.y")] == ["o.*", "o.>", ">"]


@given(strategies.tables_with_subjects(), strategies.draws)
def test_the_index_finds_what_trying_one_by_one_finds(case: tuple[dict[str, Any], list[str]], draw: float) -> None:
    """Shapes and dictionaries are only a faster way to the first match in order."""
    config, subjects = case
    table = MappingTable.from_config(config)
    again = pickle.loads(pickle.dumps(table))
    for subject in [*subjects, *strategies.ODD_SUBJECTS]:
        tokens = subject.split(".")
        slow = next(
            (m for m in table.mappings if m.source == subject or covers_tokens(tokens, m.source.split("."))), None
        )
        for cluster in (None, "west", "nowhere"):
            share = slow.choose(cluster, draw) if slow else None
            expected = share.transform.apply_tokens(tokens, draw) if share else None if slow else subject

            assert table.apply(subject, cluster, draw) == expected
            assert again.apply(subject, cluster, draw) == expected
        assert table.find(subject) is slow


def test_shares_without_a_draw_follow_the_weights() -> None:
    """Each call draws anew; 10,000 of them stay within five standard deviations."""
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
        "foo.>": "it matches too, but stands later",
        "x": "token 1 is 'foo', not 'x'",
    }
    assert nothing.mapping is None
    assert nothing.others[0] == ("foo.*", "token 1 is 'bar', not 'foo'")


def test_an_account_claim_gives_its_mappings() -> None:
    """Decoded JSON; a weight of 0 or none means 100 there, as in the JWT library."""
    claim = {"nats": {"mappings": {"foo": [{"subject": "bar", "weight": 50}, {"subject": "baz", "cluster": "west"}]}}}
    table = MappingTable.from_config(mappings_from_claim(claim))

    assert table.apply("foo", "west", 0.9) == "baz"
    assert {table.apply("foo", None, d / 10) for d in range(10)} == {"foo", "bar"}
    assert mappings_from_claim({"nats": {}}) == {}
    for wrong in ({"mappings": []}, {"mappings": {"a": "b"}}, {"mappings": {"a": [{"dest": "b"}]}}):
        with pytest.raises(ConfigError):
            mappings_from_claim(wrong)


def test_a_stream_gives_its_transforms() -> None:
    """From the JSON of a stream's configuration, with every wrong part told at once."""
    transforms = stream_transforms(
        {
            "config": {
                "name": "S",
                "subject_transform": {"src": "a.*", "dest": "b.$1"},
                "republish": {"dest": "re.>"},
                "mirror": {"name": "M", "subject_transforms": [{"src": "m", "dest": "n"}]},
                "sources": [
                    {"name": "O", "subject_transforms": [{"src": "o.>", "dest": ""}, {"src": "p", "dest": "q"}]}
                ],
            }
        }
    )

    assert transforms.subject_transform is not None
    assert transforms.subject_transform.apply("a.1") == "b.1"
    assert transforms.republish is not None
    assert transforms.republish.apply("x.y") == "re.x.y"
    assert [t.apply("m") for t in transforms.mirror] == ["n"]
    table = MappingTable.from_transforms(transforms.sources["O"])
    assert [table.apply(s) for s in ("o.1", "p", "r")] == ["o.1", "q", "r"]
    with pytest.raises(MappingTableError) as failure:
        stream_transforms({"subject_transform": {"src": "a b", "dest": "c"}, "republish": {"src": "a", "dest": "b c"}})
    assert [error.reason for error in failure.value.errors] == ["bad_source", "bad_destination"]
    assert [error.position for error in failure.value.errors] == [0, 0]


def test_a_source_stream_may_be_filtered_and_named_twice() -> None:
    """filter_subject is the older spelling of a transform without a destination; filters of one stream add up."""
    transforms = stream_transforms(
        {
            "sources": [
                {"name": "O", "filter_subject": "o.*"},
                {"name": "O", "subject_transforms": [{"src": "p.*", "dest": "q.$1"}]},
                {"name": "P"},
            ]
        }
    )
    table = MappingTable.from_transforms(transforms.sources["O"])

    assert [table.apply(s) for s in ("o.1", "p.1")] == ["o.1", "q.1"]
    assert transforms.sources["P"] == ()


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"subject_transform": "a"}, "subject_transform"),
        ({"republish": {"src": 1}}, "republish.src"),
        ({"mirror": "M"}, "mirror"),
        ({"mirror": {"subject_transforms": {"src": "a"}}}, "mirror.subject_transforms"),
        ({"sources": {"name": "O"}}, "sources"),
        ({"sources": ["O"]}, "sources[0]"),
        ({"sources": [{"name": "O", "subject_transforms": ["a"]}]}, "sources[0].subject_transforms[0]"),
        ({"config": []}, "config"),
    ],
)
def test_a_stream_of_another_form_is_refused_with_its_path(config: dict[str, Any], path: str) -> None:
    """JSON that is no stream configuration is told from one that the server would refuse."""
    with pytest.raises(ConfigError) as failure:
        stream_transforms(config)

    assert [mistake.path for mistake in failure.value.mistakes] == [path]
