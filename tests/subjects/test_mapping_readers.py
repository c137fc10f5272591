"""Mappings and transforms of servers, accounts and streams."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.errors import ConfigError
from turnout.subjects import (
    MappingTable,
    MappingTableError,
    SubjectTransform,
    mappings_from_claim,
    mappings_in,
    parse_config,
    stream_transforms,
)
from turnout.subjects.errors import DestinationError
from turnout.subjects.functions import account_hash
from turnout.subjects.mapping_readers import mapping_warnings


def test_an_account_claim_gives_its_mappings() -> None:
    """Decoded JSON; a weight of 0 or none means 100 there, as in the JWT library."""
    claim = {"nats": {"mappings": {"foo": [{"subject": "bar", "weight": 50}, {"subject": "baz", "cluster": "west"}]}}}
    table = MappingTable.from_config(mappings_from_claim(claim))

    assert table.apply("foo", "west", 0.9) == "baz"
    assert {table.apply("foo", None, d / 10) for d in range(10)} == {"foo", "bar"}
    assert mappings_from_claim({"nats": {}}) == {}
    refused: list[dict[str, Any]] = [{"mappings": []}, {"mappings": {"a": "b"}}, {"mappings": {"a": [{"dest": "b"}]}}]
    for wrong in refused:
        with pytest.raises(ConfigError):
            mappings_from_claim(wrong)


def test_a_stream_gives_its_transforms() -> None:
    """Read from the JSON of a stream's configuration, with all errors reported together."""
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
    """JSON that is not a stream configuration has another error than one that the server would refuse."""
    with pytest.raises(ConfigError) as failure:
        stream_transforms(config)

    assert [mistake.path for mistake in failure.value.mistakes] == [path]


def test_mappings_are_found_at_the_top_and_in_accounts() -> None:
    """``maps`` is another spelling; top-level mappings are those of the account $G."""
    config = parse_config("mappings { a: b }\nmaps { c: d }\naccounts { A { Mappings { e: f } }, B {} }")

    assert mappings_in(config) == mappings_in(config, "$G") == {"a": "b", "c": "d"}
    assert mappings_in(config, "A") == {"e": "f"}
    assert mappings_in(config, "B") == {}
    with pytest.raises(ConfigError, match="no account 'C'; there are: A, B"):
        mappings_in(config, "C")
    with pytest.raises(ConfigError, match="expected a block of mappings"):
        mappings_in({"mappings": "x"})


def test_an_accounts_hash_is_resolved() -> None:
    """As nats-server 2.15.3 resolves it in sources and destinations; not where there is no account, or another's."""
    entry = {"destination": "y.{{ Account-Hash( ) }}.$1", "weight": "50%"}
    block = {"foo.*": "x.{{account-hash()}}.$1", "{{account-hash()}}.a": "b", "bar.*": [entry]}
    config = {"accounts": {"SHOP": {"mappings": block}}, "mappings": {"a": "{{account-hash()}}"}}

    table = MappingTable.from_config(mappings_in(config, "SHOP"))
    assert (table.apply("foo.1"), table.apply("UUssF3Ay.a")) == ("x.UUssF3Ay.1", "b")
    assert table.apply("bar.1", draw=0.1) == "y.UUssF3Ay.1"
    assert MappingTable.from_config(mappings_in(config)).apply("a") == account_hash("$G")
    claim = {"sub": "SHOP", "nats": {"mappings": {"foo.*": [{"subject": "x.{{account-hash()}}.$1"}]}}}
    assert MappingTable.from_config(mappings_from_claim(claim)).apply("foo.1") == "x.UUssF3Ay.1"


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        ("x.{{account-hash()}}", "not_available"),
        ("x.{{account-hash(1)}}", "too_many_args"),
        ("x.{{account-hash-import()}}", "not_available"),
        ("x.{{account-hash-leaf-remote()}}", "not_available"),
    ],
)
def test_a_function_of_an_account_needs_one(destination: str, reason: str) -> None:
    """A table of no account, a transform and a stream cannot resolve it; none is taken for a literal."""
    with pytest.raises(MappingTableError) as refused:
        MappingTable.from_config({"foo.*": destination})
    assert [getattr(error.cause, "reason", None) for error in refused.value.errors] == [reason]
    with pytest.raises(DestinationError) as wrong:
        SubjectTransform.parse("foo.*", destination)
    assert wrong.value.reason == reason
    with pytest.raises(MappingTableError):
        stream_transforms({"name": "S", "subject_transform": {"src": "foo.*", "dest": destination}})
    if destination != "x.{{account-hash()}}":
        with pytest.raises(MappingTableError):
            MappingTable.from_config(mappings_in({"accounts": {"A": {"mappings": {"foo.*": destination}}}}, "A"))


def test_sources_that_older_servers_match_otherwise_are_told() -> None:
    """Only a token that has more than its star."""
    assert [warning[:7] for warning in mapping_warnings({"*": "a", "*foo": "b", "a.*b.>": "c.>", "a*": "d"})] == [
        "'*foo' ",
        "'a.*b.>",
    ]


@pytest.mark.parametrize(
    "token", ["new-$1", "$1x", "{{wildcard(1)}}?delay=1h", "x{{partition(3,1)}}", "{wildcard(1)}", "$$1"]
)
def test_a_placeholder_beside_other_text_is_warned_of(token: str) -> None:
    """The server takes such a token as it is written, and so does turnout: both publish it."""
    for value in (f"a.{token}", [{"destination": f"a.{token}", "weight": 50}], {"dest": f"a.{token}"}):
        (warning,) = mapping_warnings({"orders.*": value})
        assert token in warning
    assert MappingTable.from_config({"orders.*": f"a.{token}"}).apply("orders.7") == f"a.{token}"


def test_placeholders_and_literals_are_not_warned_of() -> None:
    """Tokens with a dollar or a brace that none could take for a placeholder are literals."""
    plain = ["$1", "{{wildcard(1)}}", "{{ split(1,-) }}", "$SYS", "$JS.API", "a{b}", "x$y"]
    assert mapping_warnings({f"orders{n}.*": f"a.{token}" for n, token in enumerate(plain)}) == []
