"""What an index asks of a record, each thing once: its texts, numbers and words, and what to look up by.

They are worked out before the record meets the index. What verifies a candidate then only has to look at them: a value
is not folded, split into words or read as a number once for each candidate, and Spark's code for it is short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.conditions.anchor import GRAM, Kind
from turnout.conditions.check import COMPARISONS, Check
from turnout.spark.conditions import address_text, folded, lexemes, number_of
from turnout.spark.matching.access import Part, Placed

__all__ = ["FACTS", "Facts", "place_of"]

Text: TypeAlias = tuple[str, str]
"""A key, and in which form its value is: as it is, folded (``i``) or as an address (``ip``)."""

FACTS: Final = ("texts", "numbers", "words", "parts", "many")
"""The columns that `Facts.columns` gives."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Facts:
    """Which facts there are; entries of an index name them by their places.

    Attributes:
        keys: the metadata that is looked at.
        texts: values, in the forms that checks compare.
        numbers: keys whose values are compared as numbers.
        words: keys, and whether folded, whose words are compared.
        parts: what makes one text to look up by.
        many: what makes several of them.
    """

    keys: tuple[str, ...] = ()
    texts: tuple[Text, ...] = ()
    numbers: tuple[str, ...] = ()
    words: tuple[tuple[str, bool], ...] = ()
    parts: tuple[Part, ...] = ()
    many: tuple[Part, ...] = ()

    def extended(self, entries: Iterable[Placed]) -> Facts:
        """These, and after them whatever else the entries ask for: places stay what they are."""
        texts, numbers, words = set[Text](), set[str](), set[tuple[str, bool]]()
        parts, many = set[Part](), set[Part]()
        for entry in entries:
            (many if _gives_many(entry.slot) else parts).update(entry.slot)
            for check in entry.every_check:
                if check.partial:
                    words.add((check.key, check.fold))
                elif check.op in COMPARISONS:
                    numbers.add(check.key)
                else:
                    texts.add((check.key, _form(check)))
        keys = {key for key, _ in (*texts, *words, *parts, *many)} | numbers
        return Facts(
            _with(self.keys, keys),
            _with(self.texts, texts),
            _with(self.numbers, numbers),
            _with(self.words, words),
            _with(self.parts, parts),
            _with(self.many, many),
        )

    def columns(self, metadata: Column) -> dict[str, Column]:
        """A column for each of `FACTS`, from the texts of `keys` in their order."""

        def value(key: str) -> Column:
            return F.get(metadata, F.lit(self.keys.index(key)))

        def folded_value(key: str, fold: bool) -> Column:
            return folded(value(key)) if fold else value(key)

        forms = {"": lambda text: text, "i": folded, "ip": address_text}
        return {
            "texts": _array([forms[form](value(key)) for key, form in self.texts], "string"),
            "numbers": _array([number_of(value(key)) for key in self.numbers], "double"),
            "words": _array([lexemes(folded_value(key, fold)) for key, fold in self.words], "array<string>"),
            "parts": _array([_one(kind, folded_value(key, kind.fold)) for key, kind in self.parts], "string"),
            "many": _array([_several(kind, folded_value(key, kind.fold)) for key, kind in self.many], "array<string>"),
        }


def place_of(facts: Facts, check: Check) -> int:
    """The place of what a check compares: in the words, the numbers or the texts."""
    if check.partial:
        return facts.words.index((check.key, check.fold))
    if check.op in COMPARISONS:
        return facts.numbers.index(check.key)
    return facts.texts.index((check.key, _form(check)))


def _form(check: Check) -> str:
    return "ip" if check.op == "cidr" else "i" if check.fold else ""


def _gives_many(slot: Sequence[Part]) -> bool:
    return len(slot) == 1 and (slot[0][1].lexeme or slot[0][1].op == "~")


def _with(before: tuple[_T, ...], found: set[_T]) -> tuple[_T, ...]:
    return (*before, *sorted(found.difference(before)))  # type: ignore[type-var]


def _array(columns: Sequence[Column], type_: str) -> Column:
    return F.array(*columns).cast(f"array<{type_}>")


def _one(kind: Kind, text: Column) -> Column:
    """The text to look up by; null where the record has none."""
    match kind.op:
        case "=":
            return text
        case "^":
            return F.substring(text, 1, kind.length)
        case "$":
            return F.right(text, F.lit(kind.length))
    return F.when(text.isNotNull(), F.lit(""))


def _several(kind: Kind, text: Column) -> Column:
    """The texts to look up by, each once."""
    return F.array_distinct(F.transform(lexemes(text), partial(_one, kind)) if kind.lexeme else _grams(text))


def _grams(text: Column) -> Column:
    """Each run of three characters; null where the text is shorter."""
    starts = F.sequence(F.lit(1), F.length(text) - (GRAM - 1))
    grams = F.transform(starts, lambda start: F.substring(text, start, F.lit(GRAM)))
    return F.when(F.length(text) >= GRAM, grams)
