"""One element of an array satisfies all that a leaf asks."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pytest

from turnout.conditions import (
    Element,
    all_leaves,
    any_element,
    blame,
    decode,
    encode,
    evaluate,
    format_condition,
    parse,
)
from turnout.errors import ConditionError, SubscriptionInvalidError
from turnout.records import BigInt, Field, Float32, Int8, Moment, Schema
from turnout.records.schema import DECIMAL
from turnout.records.text import text_of
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.validation import check

ITEMS = ('{"sku": "A1", "n": 1, "to": {"city": "Oulu"}, "tags": ["x", "y"]}', '{"sku": "B2", "n": 5}')


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("sku:A* AND n<2", True),
        ("sku:A* AND n>2", False),
        ("sku:B2 AND NOT to exists", True),
        ("to.city:Oulu AND tags[]:y", True),
        ("*:Oulu AND n=1", True),
        ("n:number=1 AND sku:text:A1", True),
        ("n:text:1", False),
        ("tags[]:text:x AND to:text exists", False),
        ("*:Oulu AND n=5", False),
        ("`sku:A1", False),
    ],
)
@pytest.mark.parametrize("seen", [ITEMS, f"[{','.join(ITEMS)}]"])
def test_one_element_satisfies_all(where: str, holds: bool, seen: str | tuple[str, ...]) -> None:
    """Whether each is a value of the key or all are one array, by the interpreter and by the index."""
    condition = any_element("items", where)
    assert evaluate(condition, {"items": seen}) is holds
    values = list(seen) if isinstance(seen, tuple) else seen
    matcher = Matcher([Subscription(["d"], condition, id="one")])
    assert matcher.match({"items": values}).ids == ["one"] * holds
    assert matcher.match_many([{"items": values}] * 40).ids() == [["one"] * holds] * 40


@pytest.mark.parametrize("value", ["", "A1", "[", "7", "null", '"sku"', "[" * 100_000, "9" * 5_000])
def test_what_is_no_object_has_no_fields(value: str) -> None:
    """A text that is not JSON has none either, however deep or long."""
    assert not evaluate(any_element("items", "sku exists"), {"items": value})


def test_scalars_are_any_value() -> None:
    """An element without fields is tested under the key for all values."""
    assert evaluate(any_element("n", "*>2 AND *<5"), {"n": "[1, 3, 9]"})
    assert not evaluate(any_element("n", "*>2 AND *<5"), {"n": "[1, 9]"})


@pytest.mark.parametrize(
    "text", ["any(items, sku:A* AND n>2)", 'NOT any("a,b", x:1)', 'any(*, x:1) OR any("*", y:"a b")']
)
def test_text_and_json(text: str) -> None:
    """Both are read back."""
    condition = parse(text)
    assert format_condition(condition) == text
    assert decode(encode(condition)) == condition
    assert parse(text.replace(", ", " ,  ").replace("any(", "ANY ( ")) == condition


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("any(items)", "expected ',' and a condition about an element, found ')' (at 9)"),
        ("any(items, sku:A", "expected AND, OR, XOR or ')', found the end (at 16)"),
        ("any(items, )", "expected a key, '(' or NOT, found ')' (at 11)"),
        ("any(a, any(b, c))", "expected ':' or '~' and a pattern"),
        ("any(a, " * 31 + "b:1" + ")" * 31, "any(…) nests deeper than 30"),
    ],
)
def test_mistakes(text: str, problem: str) -> None:
    """Each names the position, and what was expected there."""
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert problem in str(caught.value)


ORDERS = (
    '[{"id": 1, "lines": [{"sku": "A1", "n": [1, 9]}, {"sku": "B2", "n": 3}]},'
    ' {"id": 2, "lines": [[{"sku": "A1", "n": 3}]], "note": "[{\\"sku\\": \\"C3\\"}]", "tag": null}]'
)


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("any(lines, sku:A1 AND n[]=9)", True),
        ("any(lines, sku:A1 AND any(n, .>1 AND .<9))", True),
        ("id=1 AND any(lines, sku:A1 AND any(n, .>1 AND .<9))", False),
        ("id=1 AND NOT any(lines, sku:A1 AND n=3)", True),
        ("id=2 AND any(lines, sku:A1 AND n=3)", True),
        ("any(lines[].n, .=9)", True),
        ("any(note, sku:C3)", False),
        ("any(id, .=2)", True),
        ("any(id, .:text:2)", False),
        ("any(*, .:A1)", True),
        ("any(missing, .:scalar exists)", False),
        ("any(tag, .:null exists)", True),
        ("tag:null exists AND tag:scalar exists AND NOT tag exists", True),
        ("any(lines, sku:A1 XOR n=3)", True),
        ("lines:json exists AND NOT lines:scalar exists", True),
    ],
)
def test_elements_of_elements(where: str, holds: bool) -> None:
    """Inner arrays are tested on their values: a text in them is no array, whatever it looks like."""
    condition = any_element("orders", where)
    assert parse(format_condition(condition)) == condition == decode(encode(condition))
    assert evaluate(condition, {"orders": ORDERS}) is holds
    matcher = Matcher([Subscription(["d"], condition, id="one")])
    assert matcher.match({"orders": ORDERS}).ids == ["one"] * holds
    assert matcher.match_many([{"orders": ORDERS}] * 40).ids() == [["one"] * holds] * 40
    seen = blame(condition, {"orders": ORDERS}).leaves
    assert [leaf.leaf for leaf in seen or ()] == [condition] * (not holds)


def test_text_is_brought_into_one_form() -> None:
    """In Python too, at every depth."""
    with pytest.raises(ConditionError, match="needs a condition"):
        decode({"elementCondition": {"key": "a"}})
    assert Element("a", "(b:1  and any( c ,d:1 and (e:1)))") == Element("a", "b:1 AND any(c, d:1 AND e:1)")


def test_the_deepest_condition_is_read_in_no_time_that_doubles() -> None:
    """Each level is read a few times, and not twice as often as the one around it."""
    text = "NOT any(a, " * 30 + "b:1" + ")" * 30
    assert format_condition(parse(text)) == text
    assert [leaf.key for leaf in all_leaves(parse(text))] == ["a"] * 30 + ["b"]


@pytest.mark.parametrize("inner", ["n=~x", "sku:A1"])
def test_limits_count_leaves_of_elements(inner: str) -> None:
    """Regular expressions and leaves inside count like others."""
    where = f"any(lines, {' AND '.join([inner] * 1001)})"
    with pytest.raises(SubscriptionInvalidError, match="at most"):
        check(Subscription(["d"], any_element("orders", where)))


def test_a_long_array_is_read_once_for_many_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of conditions about one record's array do not each read it again."""
    read: list[str] = []
    loads = json.loads

    def counted(text: str, **options: Any) -> object:
        read.append(text)
        return loads(text, **options)

    monkeypatch.setattr(json, "loads", counted)
    value = json.dumps([{"sku": f"s{number}", "n": number} for number in range(300)])

    assert [evaluate(Element("items", f"sku:s{n} AND n={n}"), {"items": value}) for n in (1, 299, 300)] == [
        True,
        True,
        False,
    ]
    assert read == [value]


@pytest.mark.parametrize(
    "value",
    [
        1.5, 0.1, 1e7, 1e-5, 123456789.25, -0.0, 1e300, Float32(0.25), Float32(1e11), Decimal("1.50"), Decimal("1E+3"),
        Decimal("10000000.0"), Decimal("0.0000001"), Decimal(5), 7, BigInt(2**70), Int8(3), True, Moment(5),
        "1.50", "a",
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_has_one_text(value: Any) -> None:
    """The text that a leaf sees of it is the same in an element of an array, inside one, and by itself."""
    text = text_of(value)
    for where, item in ((f'f:"{text}"', {"f": value}), (f'in.f:"{text}"', {"in": {"f": value}})):
        items = text_of([item])
        assert items is not None
        assert evaluate(Element("items", where), {"items": items})
        assert json.loads(items)


def test_a_number_of_a_schema_is_equal_in_both_forms() -> None:
    """A float of single precision, and a decimal with zeros behind it."""
    decimal = Schema("bytes", name=DECIMAL, parameters=(("scale", "2"),))
    item = Schema("struct", fields=(Field("price", decimal), Field("f", Schema("float32"))))
    schema = Schema("array", values=item)
    single = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    items = text_of([{"price": Decimal("1.50"), "f": single}], schema) or ""

    for condition in ("f=0.1", "price:1.50", "price=1.5", "f:0.1", "price=1.50 AND f<0.2"):
        assert evaluate(parse(f"any(items, {condition})"), {"items": items})
    assert not evaluate(parse("any(items, f>0.1)"), {"items": items})
