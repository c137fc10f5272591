"""Nothing is kept silently of what occurs twice, and ids and wildcards that no request or subject has are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from turnout.base.yaml_values import load, repeated_key
from turnout.conditions import Condition, format_condition, kiwi, parse
from turnout.errors import ConditionError, SubscriptionInvalidError
from turnout.subscriptions import Subscription
from turnout.subscriptions.lines import read_lines, read_plain
from turnout.subscriptions.sigma import SkippedRule, read_text
from turnout.subscriptions.validation import check

LINE = (
    '{"id":"a","metadata":{"n":"v"},'
    '"route":{"destinations":["d"],"condition":{"kiwiCondition":{"key":"a","pattern":"1"}}}}'
)


@pytest.mark.parametrize(
    ("part", "twice", "key"),
    [
        ('"id":"a"', '"id":"a","id":"b"', "id"),
        ('"id":"a",', '"revision":1,"revision":2,', "revision"),
        ('"n":"v"', '"n":"v","n":"w"', "n"),
        ('"pattern":"1"', '"pattern":"1","pattern":"2"', "pattern"),
        ('"pattern":"1"', '"pattern":"1","not":true,"not":false', "not"),
        ('"n":"v"', '"\\u0022\\u0022":"v","x":"1","x":"2"', "x"),
        ('"destinations":["d"]', '"destinations":["d"],"destinations":["e"]', "destinations"),
    ],
)
@pytest.mark.parametrize("plain", [True, False])
def test_a_line_of_an_import_has_each_key_once(part: str, twice: str, key: str, plain: bool) -> None:
    """In the quick way, too, and with the number of the line."""
    assert part in LINE
    line = LINE.replace(part, twice)
    with pytest.raises(SubscriptionInvalidError, match=f"line 2: the key '{key}' occurs twice"):
        list(read_lines([LINE, line], plain=plain))
    assert read_plain(line.encode()) is None


@pytest.mark.parametrize(
    "line", [LINE, LINE.replace('{"n":"v"}', "{}"), LINE.replace('"id":"a",', ""), json.dumps(json.loads(LINE))]
)
def test_usual_lines_are_read_quickly(line: str) -> None:
    """As export and people write them."""
    assert read_plain(line) is not None


@pytest.mark.parametrize(
    ("rule", "path", "line"),
    [
        (
            "title: x\ndetection:\n  s:\n    C|contains: a\n    C|contains: b\n  condition: s\n",
            "detection.s.C|contains",
            5,
        ),
        ("title: x\ndetection:\n  s: {a: 1}\n  s: {b: 2}\n  condition: s\n", "detection.s", 4),
        ("---\ntitle: x\n---\ntitle: y\ntitle: z\n", "title", 5),
    ],
)
def test_a_rule_of_sigma_has_each_key_once(rule: str, path: str, line: int) -> None:
    """Else it is left, with the line of the second one."""
    left = [found for found in read_text(rule, Path("rule.yml")) if isinstance(found, SkippedRule)][-1]
    assert (left.path, left.reason, left.line) == (path, "occurs twice: only one of them would count", line)


def test_yaml_has_each_key_once() -> None:
    """Of a server's configuration, of tokens and of options; merge keys and aliases may repeat."""
    with pytest.raises(yaml.YAMLError, match=r"b\.c occurs twice in its mapping"):
        load("a: 1\nb: {c: 1, c: 2}\n")
    assert load("a: &x {c: 1}\nb: {<<: *x, c: 2}\nd: [*x, *x]") == {"a": {"c": 1}, "b": {"c": 2}, "d": [{"c": 1}] * 2}
    assert repeated_key(None) is None


@pytest.mark.parametrize(
    "id_", ["a\nb", "a\x00b", "\x7f", "a\u2028", "conditions/validate", "x/history", "history", ".", "a/../b"]
)
def test_ids_that_no_request_names(id_: str) -> None:
    """They would be stored, and could not be read or deleted over REST."""
    for condition in ("a:b", "a exists"):
        with pytest.raises(SubscriptionInvalidError, match="id: "):
            check(Subscription(["d"], condition, id=id_))


@pytest.mark.parametrize("id_", ["a b", "a/b", "histories", "history/x", "shop:paid", "ä", "a..b", "...", "validate"])
def test_other_ids_are_taken(id_: str) -> None:
    """Slashes and blanks are escaped in an address."""
    check(Subscription(["d"], "a:b", id=id_))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("-city:Oulu", "a negation is written NOT: '-' begins no key"),
        ("a:b AND +city:Oulu", "a conjunction is written by AND"),
        ("price:>10", 'write price>10 without the colon, or as a text price:">10"'),
        ("price:(5 OR <=10)", "write price<=10 without the colon"),
        ("_exists_:note", "write note exists"),
        ("_missing_:note", "write NOT note exists"),
        ("city:'Oulu'", 'write city:"Oulu": single quotes belong to the text'),
    ],
)
def test_what_other_query_languages_write(text: str, advice: str) -> None:
    """It would be stored, and never match; the mistake has the right spelling."""
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    "leaf",
    [kiwi("-city", "x"), kiwi("+a", "x"), kiwi("a", ">10"), kiwi("a", "'x'"), kiwi("a", "<"), kiwi("_exists_", "a")],
)
def test_quoted_they_are_texts_and_names(leaf: Condition) -> None:
    """Quotes say that a text is meant, and a condition of JSON is written with them."""
    assert parse(format_condition(leaf)) == leaf


@pytest.mark.parametrize(
    ("condition", "advice"),
    [
        ("subject:orders.>", "subject matches orders.>"),
        ("topic:a/+/b AND x:y", "topic matches a.*.b"),
        ("topic:a/#", "topic matches a.>"),
        ("x:y AND (a:b OR NOT subject:orders.*.>)", "subject matches orders.*.>"),
    ],
)
def test_wildcards_of_subjects_in_patterns(condition: str, advice: str) -> None:
    """No subject has them: the leaf for wildcards is named. In other keys, and in a word, they are characters."""
    with pytest.raises(SubscriptionInvalidError, match="write ") as caught:
        check(Subscription(["d"], condition))
    assert advice in str(caught.value)
    check(Subscription(["d"], condition.replace("subject", "note").replace("topic", "note")))
