"""Rule files of Sigma: what is taken, and what is left with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnout.conditions import Condition, evaluate, format_condition, leaves, parse
from turnout.engine.metadata import Metadata, texts_of
from turnout.errors import SubscriptionInvalidError
from turnout.records import Batch
from turnout.records.batch import Record
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.subscriptions.sigma import Found, SigmaRule, SkippedRule, read_file, read_text, rule_files

RULE = """\
title: Archive Of The Vault
id: 0b4c5a2e-0000-4000-8000-000000000001
level: high
logsource: {product: linux, category: process_creation}
detection:
  selection:
    Image|endswith: /tar
    CommandLine|contains:
      - /vault
      - /keys
  filter_backup:
    - User: backup
    - ParentImage|endswith: /cron
  condition: selection and not 1 of filter_*
"""

FILE = Path("vault.yml")


def rules(text: str) -> list[Found]:
    return list(read_text(text, FILE))


def test_a_rule() -> None:
    """Maps are conjunctions, lists alternatives; case does not matter."""
    (rule,) = rules(RULE)

    assert isinstance(rule, SigmaRule)
    assert (rule.id[-1], rule.title, rule.level) == ("1", "Archive Of The Vault", "high")
    assert format_condition(rule.condition) == (
        "(Image:i:*/tar AND (CommandLine:i:*/vault* OR CommandLine:i:*/keys*)) "
        "AND NOT (User:i:backup OR ParentImage:i:*/cron)"
    )
    assert evaluate(rule.condition, {"Image": "/BIN/TAR", "CommandLine": "tar cf - /Vault"})
    assert not evaluate(rule.condition, {"Image": "/bin/tar", "CommandLine": "tar /vault", "User": "backup"})


def test_a_subscription() -> None:
    """The rule's level chooses the destination; its log source is optional."""
    (rule,) = rules(RULE)
    assert isinstance(rule, SigmaRule)

    (plain,) = rule.subscriptions(["alerts.{level}"])
    (routed,) = rule.subscriptions(["alerts"], with_logsource=True)

    assert (plain.id, plain.destinations) == (rule.id, ("alerts.high",))
    assert plain.metadata == {
        "title": rule.title, "level": "high", "product": "linux", "category": "process_creation",
    }  # fmt: skip
    assert format_condition(routed.condition).startswith("product:i:linux AND category:i:process_creation AND (")


def test_several_documents_each_stand_for_themselves() -> None:
    """A broken one, one that is no rule and one that correlates leave the others alone; lines are those of the file."""
    broken = RULE.replace("Image|endswith", "Image|week")

    found = rules("\n---\n".join([RULE, "a: [", broken, "correlation: {type: event_count}", "- 1", "", RULE]))

    assert [type(one) for one in found] == [
        SigmaRule,
        SkippedRule,
        SkippedRule,
        SkippedRule,
        SkippedRule,
        SigmaRule,
    ]
    yaml_, field, correlation, list_ = map(str, found[1:5])
    assert yaml_.startswith("vault.yml: is no YAML: ")
    assert field == ("vault.yml: detection.selection.Image|week: the modifier 'week' cannot be expressed (line 25)")
    assert correlation == "vault.yml: correlation: correlates several events: a condition sees one (line 35)"
    assert list_ == "vault.yml: expected a rule, which is a mapping (line 37)"


@pytest.mark.parametrize(
    ("detection", "left"),
    [
        ("{}", "detection: expected a detection with a condition"),
        ("{condition: 5}", "detection.condition: expected a text, found 5"),
        ("{s: [], condition: s}", "detection.s: has no alternatives"),
        ("{s: {}, condition: s}", "detection.s: has no fields"),
        ("{s: [{a: 1}, {b: {c: 2}}], condition: s}",
         "detection.s[1].b: expected a text, a number, true, false or null, found {'c': 2}"),
        ("{s: {a: 1}, condition: s | count() > 3}",
         "detection.condition: aggregates several events: a condition sees one"),
        ("{s: {a: 1}, timeframe: 5m, condition: s}",
         "detection.timeframe: is for several events: a condition sees one"),
    ],
)  # fmt: skip
def test_what_is_left(detection: str, left: str) -> None:
    """The path is the author's, and the line is found by it."""
    (found,) = rules(f"title: t\ndetection: {detection}")

    assert isinstance(found, SkippedRule)
    assert (f"{found.path}: {found.reason}", found.line) == (left, 2)


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ("level: High", "level: expected one of informational, low, medium, high, critical, found 'High'"),
        ("logsource: linux", "logsource: expected product, category or service, found 'linux'"),
    ],
)
def test_what_would_be_ignored_is_left(part: str, left: str) -> None:
    """A rule has its own level and log source, or is not taken."""
    (found,) = rules(f"title: t\n{part}\ndetection: {{s: {{a: 1}}, condition: s}}")

    assert isinstance(found, SkippedRule)
    assert (f"{found.path}: {found.reason}", found.line) == (left, 2)


def test_a_search_with_the_name_rules() -> None:
    """Only a filter has rules in this place."""
    (found,) = rules("title: t\ndetection: {rules: {a: 1}, s: {b: 2}, condition: all of them}")

    assert isinstance(found, SigmaRule)
    assert format_condition(found.condition) == "a:i:1 AND b:i:2"


def test_several_conditions_are_alternatives() -> None:
    """Older rules use this form."""
    (rule,) = rules("detection: {a: {x: 1}, b: {y: 2}, condition: [a, b]}")

    assert isinstance(rule, SigmaRule)
    assert format_condition(rule.condition) == "x:i:1 OR y:i:2"


def test_a_store_refuses_a_rule_of_negations() -> None:
    """The store's refusal is the reason for leaving out the rule; its log source adds a leaf that is not negated."""
    (rule,) = rules("logsource: {product: linux}\ndetection: {a: {x: 1}, condition: not a}")
    assert isinstance(rule, SigmaRule)

    with pytest.raises(SubscriptionInvalidError, match="root cannot be negated"):
        rule.subscriptions(["d"])
    assert rule.subscriptions(["d"], with_logsource=True)[0].destinations == ("d",)


def test_files_and_folders(tmp_path) -> None:
    """Rules below folders are found by their names; what cannot be read is left."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.yaml").write_text(RULE)
    (tmp_path / "b.yml").write_bytes(b"title: \xff")
    (tmp_path / "readme.md").write_text("no rule")

    files = list(rule_files([tmp_path]))
    found = [one for file in [*files, tmp_path / "none.yml"] for one in read_file(file)]

    assert [file.name for file in files] == ["b.yml", "a.yaml"]
    assert [getattr(one, "reason", "") for one in found] == [
        "is not UTF-8: the byte at 7",
        "",
        "No such file or directory",
    ]


def _of_arrays(rule: str) -> Condition:
    (found,) = read_text(f"{{detection: {{s: {rule}, condition: s}}}}", Path("rule.yml"), arrays=True)
    assert isinstance(found, SigmaRule)
    assert parse(format_condition(found.condition)) == found.condition
    return found.condition


@pytest.mark.parametrize(
    ("rule", "event", "holds"),
    [
        ("{staff.name: Anna, staff.age: 9}", {"staff": [{"name": "Anna", "age": 3}, {"name": "Bob", "age": 9}]}, False),
        ("{staff.name: anna, staff.age: 9}", {"staff": [{"name": "Bob"}, {"name": "Anna", "age": 9}]}, True),
        ("{staff.name: Anna, staff.age: 9}", {"staff": {"name": "Anna", "age": 9}}, True),
        ("{staff.name: Anna, staff.age|neq: 9}", {"staff": [{"name": "Anna", "age": 9}, {"age": 3}]}, False),
        ("{staff.name: Anna, staff.boss: null}", {"staff": [{"name": "Anna"}, {"boss": "x"}]}, True),
        ("{a.b.c: 1, a.b.d: 2, a.e: 3}", {"a": [{"b": [{"c": 1, "d": 2}], "e": 3}]}, True),
        ("{a.b.c: 1, a.b.d: 2, a.e: 3}", {"a": [{"b": [{"c": 1}, {"d": 2}], "e": 3}]}, False),
        ("{a.b|contains: [x, y], d: z}", {"a": [[{"b": "1x"}]], "d": "z"}, True),
        ("{tags|contains|all: [x, y]}", {"tags": ["ax", "by"]}, True),
        ("[{a.b: 1}, {a.c: 2}]", {"a": [{"c": 2}]}, True),
    ],
)
def test_fields_through_arrays(rule: str, event: dict[str, Any], holds: bool) -> None:
    """Fields of one search below one array are in one element of it."""
    condition = _of_arrays(rule)
    batch = Batch.of_records([Record("t", event)])
    columns = Metadata({"*": "value.*"}).columns(batch, batch.alive, sorted({leaf.key for leaf in leaves(condition)}))
    assert evaluate(condition, texts_of(columns, 0)) is holds
    assert Index.of([Subscription(["d"], condition, id="one")]).match(columns, 1).rows.tolist() == [0] * holds
