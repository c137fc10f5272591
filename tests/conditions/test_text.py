"""The text syntax reads what people write, says where it cannot, and writes back what it read."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given

from tests.conditions.strategies import conditions
from turnout.conditions import (
    Group,
    Kiwi,
    all_of,
    any_of,
    between,
    cidr,
    compare,
    exists,
    format_condition,
    kiwi,
    not_,
    one_of,
    parse,
    regex,
)
from turnout.errors import ConditionError

_word = partial(kiwi, "t", partial=True)
A, B, C = kiwi("a", "1"), kiwi("b", "2"), kiwi("c", "3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "subject:orders* AND NOT location:Helsinki",
            all_of(kiwi("subject", "orders*"), not_(kiwi("location", "Helsinki"))),
        ),
        ("a:1 AND b:2 OR c:3", any_of(all_of(A, B), C)),
        ("a:1 OR b:2 AND c:3", any_of(A, all_of(B, C))),
        ("a:1 XOR b:2 XOR c:3", one_of(A, B, C)),
        ("a:1 and (b:2 and c:3)", all_of(A, all_of(B, C))),
        ("not (a:1 or not b:2)", not_(any_of(A, not_(B)))),
        ("NOT NOT a:1", A),
        ("text~hel*", kiwi("text", "hel*", partial=True)),
        ("city:i:OULU", kiwi("city", "OULU", ignore_case=True)),
        ("text~i~oulu", kiwi("text", "oulu", partial=True, ignore_case=True)),
        ('"a key":"two words"', kiwi("a key", "two words")),
        ('k:"say ""hi"""', kiwi("k", 'say "hi"')),
        ('k:""', kiwi("k", "")),
        (r"k:\*\ x", kiwi("k", r"\*\ x")),
        ("url:http://x?y=1", kiwi("url", "http://x?y=1")),
        ("android:1 AND notes:2", all_of(kiwi("android", "1"), kiwi("notes", "2"))),
        ("price>=10 AND price < 20.5", all_of(compare("price", ">=", 10), compare("price", "<", 20.5))),
        ("price = -1e3", compare("price", "=", -1000)),
        ("price:[1 TO 5]", between("price", 1, 5)),
        ("ip in 10.0.0.0/8", cidr("ip", "10.0.0.0/8")),
        ("cmd=~^a.*[bc]$", regex("cmd", "^a.*[bc]$")),
        ('cmd=~"(a|b) c"', regex("cmd", "(a|b) c")),
        ("trace exists", exists("trace")),
        ("NOT trace exists", not_(exists("trace"))),
        ("trace not exists", not_(exists("trace"))),
        ("ip NOT IN 10.0.0.0/8", not_(cidr("ip", "10.0.0.0/8"))),
        ("NOT price:[1 TO 5]", not_(between("price", 1, 5))),
        ("price!=5", not_(compare("price", "=", 5))),
        ("NOT price != 5", compare("price", "=", 5)),
        ("a!b:1", kiwi("a!b", "1")),
        ('"!a":1', kiwi("!a", "1")),
        ("a:(1 OR 2) AND b:2", all_of(any_of(A, kiwi("a", "2")), B)),
        ("a:(1)", A),
        ('a:i:(x AND NOT "y z")', all_of(kiwi("a", "x", ignore_case=True), not_(kiwi("a", "y z", ignore_case=True)))),
        ("t~(x* OR (y AND z))", any_of(_word("x*"), all_of(_word("y"), _word("z")))),
        ("a IN (1, 2)", any_of(A, kiwi("a", "2"))),
        ("a in(1)", A),
        ("total:number=100", compare("total:number", "=", 100)),
        ("total:Number != 100", not_(compare("total:number", "=", 100))),
        ("total:number:[1 TO 5]", between("total:number", 1, 5)),
        ("total:text:100", kiwi("total:text", "100")),
        ("total:text:i:A*", kiwi("total:text", "A*", ignore_case=True)),
        ("total:text~100", kiwi("total:text", "100", partial=True)),
        ("total:text in (a, b)", any_of(kiwi("total:text", "a"), kiwi("total:text", "b"))),
        ("total:boolean not exists", not_(exists("total:boolean"))),
        ('"a key":text:(x OR y)', any_of(kiwi("a key:text", "x"), kiwi("a key:text", "y"))),
        ('"total:text":100', kiwi("total:text", "100")),
        ("total:text", kiwi("total", "text")),
        ("total:texts:1", kiwi("total", "texts:1")),
        ('total:"text:100"', kiwi("total", "text:100")),
        ('a NOT IN ("1, 2",x*)', not_(any_of(kiwi("a", "1, 2"), kiwi("a", "x*")))),
        ("ip in (10.0.0.0/8, ::1, v1.2/3)", any_of(cidr("ip", "10.0.0.0/8"), cidr("ip", "::1"), kiwi("ip", "v1.2/3"))),
    ],
)
def test_reads(text, expected):
    """Usual texts are parsed with their apparent meaning."""
    assert expected == parse(text)


def test_reads_the_tree_dialect():
    """The flag t keeps a pattern to the kiwi-tree dialect."""
    of_tree, of_bird = parse("k:t:ab*"), parse("k:ab*")

    assert isinstance(of_tree, Kiwi)
    assert isinstance(of_bird, Kiwi)
    assert of_tree.tree
    assert not of_bird.tree


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("", 0, "a key"),
        ("a:1 AND", 7, "a key"),
        ("a:1 b:2", 4, "AND, OR, XOR or the end"),
        ("(a:1", 4, "')'"),
        ("a:1)", 3, "the end"),
        ("a", 1, "after the key"),
        ("a:", 2, "a pattern"),
        ("price>ten", 6, "a number"),
        ("city != Oulu", 8, "NOT city:Oulu"),
        ("!city:Oulu", 0, "a negation is written NOT"),
        ("a:1 AND !b:2", 8, "a negation is written NOT"),
        ("a:(1 2)", 5, "AND, OR, XOR or ')'"),
        ("a:(OR)", 3, "a pattern"),
        ("a:()", 3, "a pattern"),
        ("a:t:(1 OR *x)", 10, "kiwi tree"),
        ("a in (1", 7, "',' or ')'"),
        ("a in (1,)", 8, "a pattern or a network"),
        ("ip in (10.0.0.0/8, 10.1.1.1/8)", 19, "host bits"),
        ("price:[1 5]", 6, "a range"),
        ("price:[5 TO 1]", 6, "the range is empty"),
        ("ip in 10.0.0.0.0/8", 5, "not a network"),
        ("k:t:a*b", 2, "kiwi bird"),
        ("AND a:1", 0, "a key"),
        ("*:number>5", 2, "any value has no kind"),
        ("(" * 101 + "a:1" + ")" * 101, 100, "at most 100"),
    ],
)
def test_says_where(text, position, says):
    """An error names the position and what was expected there."""
    with pytest.raises(ConditionError, match=r"\^") as caught:
        parse(text)

    assert says in str(caught.value)
    if says != "kiwi bird":
        assert position == caught.value.position


@pytest.mark.parametrize(
    "text", ["a:1 )", "a:1 AND " * 500 + ")", "a:1\nAND )\nOR b:2", "b:2 AND\n" * 50 + ")" + " x" * 500]
)
def test_shows_where(text):
    """The mark is under the position, also in a long text and in one of several lines."""
    with pytest.raises(ConditionError) as caught:
        parse(text)
    _, shown, mark = str(caught.value).split("\n")

    assert shown[mark.index("^")] == ")"
    assert len(shown) < 130


def multiple(condition) -> bool:
    return not isinstance(condition, Group) or (len(condition.children) > 1 and all(map(multiple, condition.children)))


@given(conditions.filter(multiple))
def test_round_trip(condition):
    """A formatted condition is parsed as an equal condition."""
    assert condition == parse(format_condition(condition))
