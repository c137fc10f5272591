"""Expectations rewritten to what happens now."""

from __future__ import annotations

import json
import tempfile
import textwrap
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.history.routes import SUBSCRIPTIONS, route
from turnout.errors import TurnoutError
from turnout.history import Suite, run_cases
from turnout.history.suite.accept import accept

HEAD = f"# What this route is to do.\n{SUBSCRIPTIONS}cases:\n"
RECORD = "record: {topic: in.a, value: {city: Oulu, n: 7, secret: s}, headers: {Kind: even}}  # from the north"

DELIVERIES = (
    "{subscription: many, destination: out.many}",
    "{subscription: many, destination: out.more}",
    "{subscription: oulu, destination: out.oulu}",
)


def rewritten(tmp_path: Path, cases: str) -> str:
    """The file's cases after what happens was accepted; all of its tests pass then."""
    file = tmp_path / "small.test.yaml"
    file.write_text(HEAD + cases, encoding="utf-8")
    small = route()
    suite = Suite.parse(file.read_text(encoding="utf-8"), small, file)
    assert suite is not None
    accept(suite, small, run_cases(small, suite.cases).results)
    text = file.read_text(encoding="utf-8")
    again = Suite.parse(text, small, file)
    assert again is not None
    assert not run_cases(small, again.cases).failed
    assert text.startswith(HEAD)
    return text.removeprefix(HEAD)


@pytest.mark.parametrize(
    ("expect", "expected"),
    [
        # A value that is another one now is put in its place, and comments stay.
        (
            """
    expect:
      topic: wrong  # as mapped
      # what they see
      value: {town: Turku, n: 7}
      headers: {Kind: "odd"}
""",
            """
    expect:
      topic: mapped.a  # as mapped
      # what they see
      value: {town: Oulu, n: 7}
      headers: {Kind: even}
""",
        ),
        # Fields that are not there any more go, and no more come than were asked for.
        ("    expect: {value: {city: Oulu, n: 7}}\n", "    expect: {value: {n: 7}}\n"),
        # Braces stand further right than dashes have to.
        (
            "    expect:\n      value:\n      - 1\n",
            "    expect:\n      value:\n        {town: Oulu, n: 7, secret: ''}\n",
        ),
        (
            "    expect:\n      value:\n        town: Oulu\n        gone: 1\n      topic: mapped.a\n",
            "    expect:\n      value:\n        {town: Oulu}\n      topic: mapped.a\n",
        ),
    ],
)
def test_only_what_differs_is_rewritten(tmp_path: Path, expect: str, expected: str) -> None:
    """In the place and the style that it has."""
    case = f"  - name: one\n    {RECORD}\n"
    changed = rewritten(tmp_path, case + expect.removeprefix("\n"))

    assert changed == case + expected.removeprefix("\n")


def test_another_outcome_makes_another_expectation(tmp_path: Path) -> None:
    """A line for each part, where there was a line for each."""
    case = f"  - name: one\n    {RECORD}\n"
    text = rewritten(tmp_path, f"{case}    expect:\n      outcome: filtered\n\n  # the end\n")

    assert (
        text
        == f"""{case}    expect:
      outcome: delivered
      topic: mapped.a
      headers: {{Kind: even}}
      deliveries: [{", ".join(DELIVERIES)}]
      value: {{town: Oulu, n: 7, secret: ''}}

  # the end
"""
    )


def test_deliveries_are_rewritten_as_a_whole(tmp_path: Path) -> None:
    """Each with its subscription."""
    text = rewritten(tmp_path, f"  - name: one\n    {RECORD}\n    expect: {{deliveries: [out.other], exact: true}}\n")
    (case,) = yaml.safe_load(text)

    assert case["expect"]["deliveries"] == [yaml.safe_load(delivery) for delivery in DELIVERIES]


@pytest.mark.parametrize("expect", ["", "    expect:\n", "    expect: ~  # later\n"])
def test_a_case_without_an_expectation_gets_one(tmp_path: Path, expect: str) -> None:
    """Behind its record, with everything that can be said of it."""
    text = rewritten(tmp_path, f"  - name: one\n    {RECORD}\n{expect}  - name: two\n    record: {{topic: x}}\n")
    one, two = yaml.safe_load(text)

    assert one["expect"]["outcome"] == "delivered"
    assert one["expect"]["value"] == {"town": "Oulu", "n": 7, "secret": ""}
    assert two["expect"] == {"outcome": "unmatched", "topic": "x"}
    assert "# from the north\n" in text


def test_flow_style_and_failures(tmp_path: Path) -> None:
    """Braces stay braces; a failure is accepted with stage and reason."""
    text = rewritten(tmp_path, '  - {name: one, record: {topic: in.a, value: "{"}, expect: {outcome: filtered}}\n')
    (case,) = yaml.safe_load(text)

    assert (case["expect"]["outcome"], case["expect"]["stage"]) == ("dead_lettered", "VALUE_CONVERTER")
    assert text.startswith('  - {name: one, record: {topic: in.a, value: "{"}, expect: {outcome: dead_lettered')


def test_tests_that_pass_are_left_alone(tmp_path: Path) -> None:
    """Not a character changes."""
    case = f"  - name: one\n    {RECORD}\n    expect: {{topic:   mapped.a}}\n"

    assert rewritten(tmp_path, case) == case


def test_what_two_tests_share_is_not_rewritten(tmp_path: Path) -> None:
    """One of them would change with the other."""
    cases = (
        f"  - {{name: one, {RECORD.partition('  #')[0]}, expect: &same {{topic: wrong}}}}\n"
        "  - {name: two, record: {topic: x}, expect: *same}\n"
    )

    with pytest.raises(TurnoutError, match="by hand"):
        rewritten(tmp_path, cases)
    assert (tmp_path / "small.test.yaml").read_text(encoding="utf-8") == HEAD + cases


texts = st.sampled_from(["", "Oulu", "a b", "x: y", "#", "- z", "'", '"', "a\nb", "yes", "1", "ä{}", "{{x}}", "~"])
plain = st.recursive(
    st.one_of(texts, st.integers(-3, 9), st.booleans(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["town", "n", "a.b", "list", "x y"]), inner)
    ),
    max_leaves=6,
)
expectations = st.fixed_dictionaries(
    {},
    optional={
        "outcome": st.sampled_from(["delivered", "filtered", "dead_lettered", "unmatched"]),
        "topic": texts,
        "value": plain,
        "key": plain,
        "headers": st.dictionaries(st.sampled_from(["Kind", "Other", "a.b"]), st.one_of(texts, st.lists(texts))),
        "deliveries": st.lists(st.sampled_from(["out.oulu", "out.many", "nowhere"])),
        "exact": st.booleans(),
    },
)
record_values = st.one_of(
    plain,
    st.fixed_dictionaries(
        {"city": texts, "n": st.integers(0, 9)}, optional={"list": plain, "a.b": plain, "x y": plain}
    ),
)


@pytest.mark.heavy
@given(record_values, expectations, st.sampled_from([None, True, False]), st.integers(10, 200))
def test_whatever_was_expected_can_be_rewritten(
    value: object, expect: dict[str, object], style: bool | None, width: int
) -> None:
    """In any style that YAML is written in: the tests pass, and their neighbours stay."""
    record = {"topic": "in.a", "key": "k", "value": value, "headers": {"Kind": "x", "a.b": ["1", "2"]}}
    case = {"name": "one", "record": record, "expect": expect}
    neighbour = {"name": "two", "record": {"topic": "x"}, "expect": {"outcome": "unmatched"}}
    cases = json.loads(json.dumps([neighbour, case, neighbour]))
    dumped = yaml.safe_dump(cases, default_flow_style=style, width=width, sort_keys=False, allow_unicode=True)
    with tempfile.TemporaryDirectory() as folder:
        text = rewritten(Path(folder), textwrap.indent(dumped, "  "))

    assert yaml.safe_load(text)[0] == yaml.safe_load(text)[2] == neighbour
    assert yaml.safe_load(text)[1]["record"] == record
