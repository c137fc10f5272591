"""An expression of CEL (Common Expression Language), by Google's own library ``cel-expr-python``.

The language has no loops but those over lists and maps, and regular expressions in linear time. The library stops at
10,000 iterations and 32 levels of an expression; what one of them may cost is bounded by the record's size beforehand.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Final

from turnout.errors import MissingExtraError, RecordError
from turnout.expressions.inputs import MAX_WORK, Inputs
from turnout.records import Moment

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


VARIABLES: Final = ("value", "key", "headers", "topic", "partition", "offset", "timestamp")
"""Names that expressions see: ``timestamp`` is milliseconds since 1970, ``headers`` a map of texts."""

MAX_TEXT: Final = 4096
"""Characters of an expression."""

_CLEARER: Final = {
    "Applying SELECT to non-message type": "it names a field of something that has none",
    "cannot convert string to int": "the text is no whole number of 64 bits",
    "Iteration budget exceeded": "it takes more than 10,000 iterations",
}
"""Clearer words for messages of the library."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ExpressionError(ValueError):
    """Raised when a text is no expression of CEL."""


@dataclass(frozen=True)
class Expression:
    """A compiled expression; it is compiled once in each process, when it is used first.

    >>> gross = Expression("value.net * 1.24")
    >>> inputs = Inputs()
    >>> inputs.add("value", {"net": 50.0})
    >>> gross.evaluate(inputs), gross.references.paths
    (62.0, frozenset({('value', 'net')}))
    """

    text: str

    @cached_property
    def references(self) -> References:
        """The parts of the record that it names."""
        return references(self.text, frozenset(VARIABLES))

    @property
    def type(self) -> str:
        """The type that its values have by CEL's rules: ``INT``, ``STRING``, ``LIST<STRING>``; ``DYN`` if any."""
        return str(_program(self.text).return_type().name())

    def check(self) -> None:
        """Compile it.

        Raises:
            ExpressionError: it is no expression of CEL, or names something that there is not.
            MissingExtraError: ``cel-expr-python`` is not installed.
        """
        if len(self.text) > MAX_TEXT:
            raise ExpressionError(f"an expression of {len(self.text)} characters, at most {MAX_TEXT} are taken")
        _program(self.text)
        if self.references.computed_pattern:
            raise ExpressionError("expected the regular expression of x.matches(…) as a text, found something computed")

    def evaluate(self, inputs: Inputs) -> Any:
        """Return the value for a record, as turnout holds it: `Moment` for a time, objects with sorted names.

        Raises:
            RecordError: it has none for this record, or would take too much.
        """
        references = self.references
        iterations = references.iterations(inputs.longest_list)
        work = (inputs.longest_text * references.growth + inputs.size) * iterations
        if work > MAX_WORK:
            raise RecordError(
                f"the expression would take too much: the record has a list or object of {inputs.longest_list:,} items "
                f"and a text of {inputs.longest_text:,} characters, and a size of {inputs.size:,}"
            )
        try:
            found = _program(self.text).eval(data=inputs.values)
            kind, value = found.type().name(), found.plain_value()
        except RuntimeError as error:
            raise RecordError(_reason(error)) from None
        if kind == "ERROR":
            raise RecordError(_reason(value))
        return _as_plain(value)


def _as_plain(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if kind is list:
        return [_as_plain(item) for item in value]
    if kind is dict:
        # The library gives the entries in an order of their hashes.
        return {name: _as_plain(item) for name, item in sorted(value.items(), key=lambda entry: str(entry[0]))}
    if kind is bytearray or kind is bytes:
        return bytes(value)
    if kind is datetime:
        return Moment((value - _EPOCH) // timedelta(milliseconds=1))
    if kind is timedelta:
        raise RecordError("the value is a duration, which no record holds: make a text of it, string(…)")
    raise RecordError(f"the value is of no type that a record holds: {kind.__name__}")


def _reason(error: object) -> str:
    """Return the library's message without its picture of the place."""
    first = str(error).partition("\n")[0]
    code, colon, rest = first.partition(": ")
    message = rest if colon and code.isupper() else first
    message = message.removeprefix("ERROR: <input>:").partition(" [")[0].partition(" expecting {")[0]
    return _CLEARER.get(message, message)


@lru_cache(maxsize=1024)
def _program(text: str) -> Any:
    try:
        return _environment().compile(text)
    except RuntimeError as error:
        raise ExpressionError(f"not an expression of CEL: {_reason(error)}") from None


@lru_cache(maxsize=1)
def _environment() -> Any:
    try:
        from cel_expr_python import cel
    except ModuleNotFoundError as missing:
        raise MissingExtraError("cel", "cel_expr_python") from missing
    kinds = cel.Type
    types = dict.fromkeys(VARIABLES, kinds.DYN)
    types |= {"topic": kinds.STRING, "partition": kinds.INT, "offset": kinds.INT, "timestamp": kinds.INT}
    types["headers"] = kinds.Map(kinds.STRING, kinds.STRING)
    return cel.NewEnv(variables=types)
