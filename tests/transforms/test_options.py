"""Texts of options as Kafka 4.3's ConfigDef reads them; `test_differential` asks Kafka's class for the same values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.errors import ConfigError
from turnout.records import Record
from turnout.transforms import Chain
from turnout.transforms.kafka.whole_values import ValueToKey
from turnout.transforms.options import (
    KINDS,
    LIST,
    Option,
    OptionError,
    java_regex,
    names,
    non_empty,
    non_empty_list,
    one_of,
)

VALUES = json.loads(Path(__file__).with_name("option_values.json").read_text(encoding="utf-8"))


def applied(chain: Chain, value: Any) -> Any:
    """The record's value behind a chain."""
    record = chain.apply(Record("t", value))
    assert record is not None
    return record.value


def test_packages_of_the_first_release_name_kinds() -> None:
    """A word stands for the kind of that name."""
    assert Option("o", "LIST", "An option.").kind is LIST  # type: ignore[arg-type]


@pytest.mark.parametrize("case", VALUES, ids=lambda case: f"{case['kind']}-{case['text']!a}")
def test_a_text_is_the_value_that_it_is_in_kafka(case: dict[str, Any]) -> None:
    """Trimmed as Java trims, split at commas, and refused where ConfigDef refuses it."""
    option = Option("o", KINDS[case["kind"]], "An option.")

    if case.get("refused"):
        with pytest.raises(OptionError):
            option.parse(case["text"])
        return
    value = option.parse(case["text"])
    assert case["value"] == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize("text", ["a,,b", ",", "a,"])
@pytest.mark.parametrize(
    "stage",
    [
        {"type": "DropHeaders", "headers": None},
        {"type": "MaskField$Value", "fields": None},
        {"type": "ValueToKey", "fields": None},
        {"type": "ReplaceField$Value", "include": None},
        {"type": "ReplaceField$Value", "exclude": None},
    ],
    ids=lambda stage: "-".join(stage.values() if None not in stage.values() else [stage["type"], *list(stage)[1:]]),
)
def test_a_list_of_names_has_no_empty_entry(stage: dict[str, str | None], text: str) -> None:
    """The chain is refused, and the message has the option, the problem and the text."""
    (name,) = (option for option, value in stage.items() if value is None)
    with pytest.raises(ConfigError) as raised:
        Chain.from_route([{**stage, name: text}])

    (mistake,) = raised.value.mistakes
    problem = f"expected no empty element, found {text!r}"
    assert (mistake.path, mistake.problem) == (f"transforms[0].{name}", problem)


def test_a_name_that_is_listed_again_is_left_out() -> None:
    """Kafka 4.3 takes such a list; a key with the field twice could not be made."""
    (stage,) = Chain.from_route([{"type": "ValueToKey", "fields": "b,a,b"}]).stages

    assert stage.transform == ValueToKey(fields=(("b",), ("a",)))


def test_lists_of_aliases_and_topics_have_no_empty_entry() -> None:
    """An alias that was not written is reported as an empty entry."""
    with pytest.raises(ConfigError) as raised:
        Chain.from_config({"transforms": "f,,", "transforms.f.type": "Filter", "topics": "a,,b"}, sink=True)

    assert [str(mistake) for mistake in raised.value.mistakes] == [
        "transforms: expected no empty alias, found 'f,,'",
        "topics: expected no empty element, found 'a,,b'",
    ]


def test_numbers_are_written_as_java_writes_the_smallest() -> None:
    """Java has two digits where one would name the number: 4.9E-324, not 5.0E-324."""
    chain = Chain.from_config({"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "string"})
    single = Chain.from_config(
        {
            "transforms": "a,b",
            "transforms.a.type": "Cast$Value",
            "transforms.a.spec": "float32",
            "transforms.b.type": "Cast$Value",
            "transforms.b.spec": "string",
        }
    )
    numbers = (5e-324, -1e-323, 1e-45, 2e-45, 1e-40, 2e-37)

    assert [applied(chain, number) for number in numbers] == [
        "4.9E-324", "-9.9E-324", "1.0E-45", "2.0E-45", "1.0E-40", "2.0E-37",
    ]  # fmt: skip
    assert [applied(single, number) for number in numbers[2:]] == [
        "1.4E-45", "1.4E-45", "1.0E-40", "2.0E-37",
    ]  # fmt: skip


def test_checks_return_the_problem_or_none() -> None:
    """A valid value has no problem."""
    assert [non_empty("a"), non_empty_list(["a"]), names(["a"]), java_regex("a+"), one_of("x", "y")("x")] == [None] * 5
    assert all([non_empty(""), non_empty_list([]), names([""]), java_regex("(")])


def test_one_of_compares_with_case_unless_told() -> None:
    """The problem names the words."""
    problem = one_of("first", "all")("ALL")

    assert problem is not None
    assert "first" in problem
    assert one_of("first", "all", any_case=True)("ALL") is None


@pytest.mark.parametrize("value", [None])
def test_none_is_checked_too(value: None) -> None:
    """An option without a default may be missing."""
    assert non_empty_list(value)


@pytest.mark.parametrize(
    ("kind", "option", "written", "problem"),
    [
        ("ReplaceField$Value", "renames", {"old": "new"}, "expected entries NAME:VALUE"),
        ("ReplaceField$Value", "renames", [{"old": "new"}], "found an entry that is null, a list or a block"),
        ("Cast$Value", "spec", {"n": "int32"}, "expected entries NAME:VALUE"),
        ("MaskField$Value", "fields", {"card": None}, "found a block of names and values, expected text"),
        ("MaskField$Value", "fields", ["card", None], "found an entry that is null"),
        ("MaskField$Value", "fields", ["card", ["cvv"]], "found an entry that is null"),
        ("MaskField$Value", "fields", ["card", 17, True], ""),
        ("ReplaceField$Value", "renames", ["old:new", "a:b"], ""),
    ],
)
def test_what_is_no_text(kind: str, option: str, written: object, problem: str) -> None:
    """A file of YAML easily has a block where a text with a colon is meant."""
    for build in (
        lambda: Chain.from_route([{"type": kind, option: written}]),
        lambda: Chain.from_config({"transforms": "t", "transforms.t.type": kind, f"transforms.t.{option}": written}),
    ):
        if not problem:
            assert len(build().stages) == 1
            continue
        with pytest.raises(ConfigError) as refused:
            build()
        assert problem in str(refused.value)


@pytest.mark.parametrize(("written", "expected"), [([1, 2], [1, 2]), ({"a": 1}, {"a": 1}), ("[1, 2]", [1, 2])])
def test_an_option_whose_text_is_json(written: object, expected: object) -> None:
    """It may be written as what its JSON is."""
    chain = Chain.from_route([{"type": "InsertHeader", "header": "h", "value.literal": written}])
    record = chain.apply(Record(topic="t"))

    assert isinstance(record, Record)
    assert record.headers[0].value == expected
