"""Parts of a record that an expression names, and the maximum size of its result, read from its text.

All of it errs on the side of more: a name inside of a loop counts although the loop's own variable hides it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

ITERATIONS: Final = 10_000
"""Iterations of all loops of one evaluation, at most; the library's own bound."""

_TOKEN: Final = re.compile(
    r"""
    (?P<comment>//[^\n]*)
  | (?P<literal>
        (?:[rR][bB]?|[bB][rR])(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')
      | [bB]?(?:\"{3}(?:\\[\s\S]|[^\\])*?\"{3}|'{3}(?:\\[\s\S]|[^\\])*?'{3}|"(?:\\.|[^"\\\n\r])*"|'(?:\\.|[^'\\\n\r])*')
    )
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<mark>[()\[\]+,.])
  | (?P<other>\S)
    """,
    re.VERBOSE,
)
_MOST_DOUBLINGS: Final = 40
"""Exponent beyond which nothing is taken, so that it need not be computed."""

_LOOPS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})


@dataclass(frozen=True, slots=True)
class References:
    """Knowledge of an expression without evaluating it.

    Attributes:
        paths: the variables that it names, each with the fields behind it: ``("value", "order", "total")``.
        loops: the number of loops, one after the other or inside each other.
        depth: how many of them are inside each other.
        copies: the number of places at which texts, lists or maps are put together.
        computed_pattern: whether it has a regular expression that is no text written in it.
        growth: greatest number of times that a value of the record can be in the result, loops aside.
    """

    paths: frozenset[tuple[str, ...]]
    loops: int
    depth: int
    copies: int
    computed_pattern: bool
    growth: int

    def iterations(self, longest: int) -> int:
        """Return how often a loop's inside is evaluated at most, over lists and maps of at most *longest* items."""
        return min(max(1, self.loops * longest**self.depth), ITERATIONS) if self.loops else 1


def references(text: str, variables: frozenset[str]) -> References:
    """Return what an expression names.

    Args:
        text: the expression, which is known to be one.
        variables: the names of the variables.

    >>> found = references('value.items.map(i, i.sku + "," + headers["Region"])', frozenset({"value", "headers"}))
    >>> sorted(found.paths), found.loops, found.copies
    ([('headers', 'Region'), ('value', 'items')], 1, 3)
    """
    tokens = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(text) if match.lastgroup != "comment"]
    tokens += [("end", "")] * 3
    paths: set[tuple[str, ...]] = set()
    open_loops: list[bool] = []
    loops = depth = copies = 0
    computed = False
    for index, (kind, word) in enumerate(tokens):
        if kind == "name" and word in variables and not _is_member(tokens, index) and tokens[index + 1][1] != "(":
            paths.add(_path(tokens, index))
        elif word == "(":
            is_loop = index > 1 and tokens[index - 1][1] in _LOOPS and tokens[index - 2][1] == "."
            open_loops.append(is_loop)
            loops += is_loop
            depth = max(depth, sum(open_loops))
            computed = computed or (tokens[index - 1][1] == "matches" and not _has_literal_pattern(tokens, index))
        elif word == ")" and open_loops:
            open_loops.pop()
        copies += kind == "mark" and word in "+,"
    return References(frozenset(paths), loops, depth, copies, computed, _growth(loops + 1, copies))


def _growth(rounds: int, copies: int) -> int:
    """Return the greatest product of *rounds* numbers whose sum is that of one and the copies for each."""
    return math.ceil(math.exp(min(rounds * math.log1p(copies / rounds), _MOST_DOUBLINGS)))


def _is_member(tokens: list[tuple[str, str]], index: int) -> bool:
    """Return True if a name is the field or method of something; with nothing before its dot it is a variable."""
    if index < 2 or tokens[index - 1][1] != ".":
        return False
    kind, word = tokens[index - 2]
    return kind in ("name", "literal") or word in ")]}"


def _has_literal_pattern(tokens: list[tuple[str, str]], index: int) -> bool:
    """Return True if the one argument of ``text.matches(…)``, opened at *index*, is a text."""
    return _is_member(tokens, index - 1) and tokens[index + 1][0] == "literal" and tokens[index + 2][1] == ")"


def _path(tokens: list[tuple[str, str]], index: int) -> tuple[str, ...]:
    """Return a variable with the fields selected from it by constant names; a method is not a field."""
    path = [tokens[index][1]]
    index += 1
    while True:
        (_, mark), (kind, word), (_, after) = tokens[index : index + 3]
        if mark == "." and kind == "name" and after != "(":
            path.append(word)
            index += 2
        elif mark == "[" and kind == "literal" and after == "]" and word[0] in "\"'" and "\\" not in word:
            path.append(word[3:-3] if word[:3] in ('"""', "'''") else word[1:-1])
            index += 3
        else:
            return tuple(path)
        if index + 3 > len(tokens):
            return tuple(path)
