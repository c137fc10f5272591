r"""Checks as Spark columns: the same truth as `turnout.conditions.check` tells, on a column of values.

A check may be a row of data, so that thousands of conditions share one expression, or a literal, which makes a
single condition a column of its own (`to_column`). What no check of an index asks for stays out of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.conditions import Condition, Group, Logic
from turnout.conditions.check import Check, check_of
from turnout.conditions.evaluate import NUMBER
from turnout.conditions.pattern import Wildcard, fold, parse_pattern
from turnout.subscriptions.entries import Tree

__all__ = ["Features", "check_text", "folded", "holds", "lexemes", "to_column"]

_TEXT = ("=", "^", "$", "~", "glob")
_COMPARISONS = ("n<", "n<=", "n=", "n>=", "n>")


@dataclass(frozen=True, slots=True)
class Features:
    """What the checks of an index use.

    Attributes:
        ops: the operations, in a fixed order.
        partial: whether any looks at lexemes.
        fold: whether any ignores case.
        trees: whether any term is more than a conjunction.
    """

    ops: tuple[str, ...] = ()
    partial: bool = False
    fold: bool = False
    trees: bool = False

    @classmethod
    def of(cls, verified: Iterable[tuple[Sequence[Check], Tree | None]]) -> Features:
        """What the checks and trees use that entries are verified by."""
        kinds: set[tuple[str, bool, bool]] = set()
        trees = False
        for checks, tree in verified:
            kinds.update((check.op, check.partial, check.fold) for check in checks)
            if tree is not None:
                trees = True
                kinds.update((check.op, check.partial, check.fold) for check in tree.checks)
        ops = sorted({op for op, _, _ in kinds})
        return cls(tuple(ops), any(partial for _, partial, _ in kinds), any(fold for _, _, fold in kinds), trees)


def check_text(check: Check) -> str:
    """The text that Spark compares with: that of the check, but a regular expression for a glob."""
    if check.op != "glob":
        return check.text
    written = {Wildcard.ANY: ".*", Wildcard.ONE: "."}
    parts = (
        written[piece] if isinstance(piece, Wildcard) else _quoted(fold(piece) if check.fold else piece)
        for piece in parse_pattern(check.text)
    )
    return rf"(?s)\A{''.join(parts)}\z"


def _quoted(text: str) -> str:
    r"""The text as Java reads it literally: ``\Q`` would end at an ``\E`` in it."""
    return "".join(rf"\x{{{ord(character):x}}}" if not character.isalnum() else character for character in text)


def folded(text: Column) -> Column:
    """The text as it is compared where case does not matter."""
    return F.translate(F.lower(text), "ς", "σ")


def lexemes(text: Column) -> Column:
    """The words of a text, as an array."""
    return F.regexp_extract_all(text, F.lit(r"[\p{L}\p{M}\p{Nd}_]+"), F.lit(0))


def holds(check: Column, value: Column, features: Features) -> Column:
    """Whether a check, its negation included, is true of a value; never null, also where the value is."""
    return F.coalesce(_passes(check, value, features), F.lit(False)) != check["negated"]


def _passes(check: Column, value: Column, features: Features) -> Column:
    if features.fold:
        value = F.when(check["fold"], folded(value)).otherwise(value)
    whole = _of_text(check, value, [op for op in features.ops if op in _TEXT])
    if whole is None:
        return _otherwise(check, value, features.ops)
    if features.partial:
        any_lexeme = F.exists(lexemes(value), lambda lexeme: _must(_of_text(check, lexeme, features.ops)))
        whole = F.when(check["partial"], any_lexeme).otherwise(whole)
    if all(op in _TEXT for op in features.ops):
        return whole
    return F.when(check["op"].isin(*_TEXT), whole).otherwise(_otherwise(check, value, features.ops))


def _must(column: Column | None) -> Column:
    assert column is not None
    return column


def _of_text(check: Column, value: Column, ops: Iterable[str]) -> Column | None:
    """The operations on text, those that are in use; None if none is."""
    text = check["text"]
    tests: dict[str, Callable[[], Column]] = {
        "=": lambda: value == text,
        "^": lambda: value.startswith(text),
        "$": lambda: value.endswith(text),
        "~": lambda: F.contains(value, text),
        "glob": lambda: F.rlike(value, text),
    }
    return _case(check["op"], {op: tests[op]() for op in tests if op in ops})


def _otherwise(check: Column, value: Column, ops: Iterable[str]) -> Column:
    """The operations on what a text stands for."""
    tests: dict[str, Column] = {}
    if "has" in ops:
        tests["has"] = value.isNotNull()
    if "cidr" in ops:
        found = address_text(value)
        tests["cidr"] = (found >= check["text"]) & (found <= check["last"])
    if any(op in ops for op in _COMPARISONS):
        found = F.when(F.rlike(value, F.lit(rf"\A(?:{NUMBER})\z")), value.try_cast("double"))
        number = check["number"]
        tests |= {
            op: test
            for op, test in {
                "n<": found < number,
                "n<=": found <= number,
                "n=": found == number,
                "n>=": found >= number,
                "n>": found > number,
            }.items()
            if op in ops
        }
    return _must(_case(check["op"], tests) if tests else F.lit(False))


def _case(op: Column, tests: Mapping[str, Column]) -> Column | None:
    """The test that *op* names; without a question where there is only one."""
    if len(tests) < 2:
        return next(iter(tests.values()), None)
    *others, (_, last) = tests.items()
    found = None
    for name, test in others:
        found = F.when(op == name, test) if found is None else found.when(op == name, test)
    return _must(found).otherwise(last)


_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_V4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_G = "[0-9a-fA-F]{1,4}"
_V6 = rf"\A(?:(?:{_G}:){{7}}{_G}|(?:{_G}(?::{_G})*)?::(?:{_G}(?::{_G})*)?)\z"


def address_text(value: Column) -> Column:
    """An IP address as text that sorts, as `turnout.conditions.evaluate.address_text` writes it, else null."""
    four = F.rlike(value, F.lit(rf"\A{_V4}\z"))
    tail = F.regexp_extract(value, rf":({_V4})\z", 1)
    in_hex = _octets(tail)
    as_groups = F.concat(F.substring(in_hex, 1, 4), F.lit(":"), F.substring(in_hex, 5, 4))
    head = F.left(value, F.length(value) - F.length(tail))
    six = F.when(tail == "", value).otherwise(F.concat(head, as_groups))
    return F.when(four, F.concat(F.lit("4:"), _octets(value))).when(F.rlike(six, F.lit(_V6)), _six(six))


def _octets(value: Column) -> Column:
    return _joined(F.split(value, r"\."), lambda part: F.lpad(F.lower(F.hex(part.try_cast("int"))), 2, "0"))


def _six(value: Column) -> Column:
    """The eight groups of an address that looks like one; null where ``::`` stands for no group."""
    halves = F.split(value, "::")
    groups = [F.filter(F.split(half, ":"), lambda group: group != "") for half in (halves[0], F.get(halves, F.lit(1)))]
    right = F.coalesce(groups[1], F.array().cast("array<string>"))
    count = F.size(groups[0]) + F.size(right)
    written = [_joined(half, lambda group: F.lpad(F.lower(group), 4, "0")) for half in (groups[0], right)]
    text = F.concat(F.lit("6:"), written[0], F.repeat(F.lit("0000"), 8 - count), written[1])
    return F.when((F.size(halves) == 1) | (count <= 7), text)


def _joined(parts: Column, write: Callable[[Column], Column]) -> Column:
    return F.array_join(F.transform(parts, write), "")


def to_column(condition: Condition, metadata: Mapping[str, Column]) -> Column:
    """One condition as a boolean column that is never null; a key without a column is missing everywhere."""
    if isinstance(condition, Group):
        children = [to_column(child, metadata) for child in condition.children]
        match condition.logic:
            case Logic.AND:
                found = reduce(and_, children)
            case Logic.OR:
                found = reduce(or_, children)
            case Logic.XOR:
                found = sum((child.cast("int") for child in children), F.lit(0)) == 1
        return ~found if condition.negated else found
    check = check_of(condition)
    if check.key not in metadata:
        return F.lit(check.negated)
    literal = F.struct(
        *(F.lit(getattr(check, name) if name != "text" else check_text(check)).alias(name) for name in Check._fields)
    )
    return holds(literal, metadata[check.key], Features((check.op,), check.partial, check.fold))
