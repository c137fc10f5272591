r"""Checks as Spark columns: the same truth as `turnout.conditions.check` tells, on columns of values.

What a check compares is a *fact* of the record: a text, a number, a list of words. A condition can be a column of its
own (`to_column`); thousands of them are rows of data that one expression verifies (`turnout.spark.matching`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.conditions import Condition, Group, Logic
from turnout.conditions.check import COMPARISONS, Check, check_of
from turnout.conditions.evaluate import NUMBER
from turnout.conditions.pattern import Wildcard, fold, parse_pattern

__all__ = ["TEXT_TESTS", "address_text", "check_text", "folded", "lexemes", "number_of", "passes", "to_column"]

TEXT_TESTS: Mapping[str, Callable[[Column, Column], Column]] = {
    "=": lambda value, text: value == text,
    "^": lambda value, text: value.startswith(text),
    "$": lambda value, text: value.endswith(text),
    "~": lambda value, text: F.contains(value, text),
    "glob": lambda value, text: F.rlike(value, text),
}
"""Operation → whether a text passes, given what `check_text` says of the check."""


def passes(op: str, value: Column, check: Column | Mapping[str, Column]) -> Column:
    """Whether a fact of the record passes a check, its negation left aside; null where there is no such fact.

    Args:
        op: the operation.
        value: for comparisons what `number_of` gives, for ``cidr`` what `address_text` gives, else the text.
        check: has ``text``, ``last`` and ``number``.
    """
    if op in TEXT_TESTS:
        return TEXT_TESTS[op](value, check["text"])
    if op == "has":
        return value.isNotNull()
    if op == "cidr":
        return (value >= check["text"]) & (value <= check["last"])
    compared: Any = COMPARISONS[op]
    return compared(value, check["number"])  # type: ignore[no-any-return]


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


def number_of(text: Column) -> Column:
    """The number that a text is, null if it is none."""
    return F.when(F.rlike(text, F.lit(rf"\A(?:{NUMBER})\z")), text.try_cast("double"))


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
    true = F.coalesce(_passes(check, metadata[check.key]), F.lit(False))
    return ~true if check.negated else true


def _passes(check: Check, value: Column) -> Column:
    asked = {"text": F.lit(check_text(check)), "last": F.lit(check.last), "number": F.lit(check.number)}
    if check.fold:
        value = folded(value)
    if check.partial:
        return F.exists(lexemes(value), lambda lexeme: passes(check.op, lexeme, asked))
    if check.op == "cidr":
        value = address_text(value)
    elif check.op in COMPARISONS:
        value = number_of(value)
    return passes(check.op, value, asked)
