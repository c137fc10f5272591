"""ConfluentFilter: records kept or dropped by a path of JSONPath with conditions, as Jayway's JsonPath evaluates it.

Each value is visited once for each step and condition, so that the time is linear in the record: conditions see the
element that they are about, and not the root.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Moment, Positions, Shape, Struct
from turnout.records.types import DynamicValue
from turnout.transforms.base import Errors, NamedField, Side, Transform
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.java.regex_characters import JavaRegexError
from turnout.transforms.options import STRING, Option, OptionError, Options, one_of

_TOKEN: Final = re.compile(
    r"""
    \s*(?:
        (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<regex>/(?:[^/\\]|\\.)+/[a-zA-Z]*)
      | (?P<operator>===|!==|==|!=|<=|>=|=~|<|>|&&|\|\||!)
      | (?P<dots>\.\.)
      | (?P<name>[^\W\d][\w-]*)
      | (?P<mark>[$@.*?()\[\],:])
    )
    """,
    re.VERBOSE,
)
_PLAIN_NAME: Final = re.compile(r"\.([^.\[\]()'\"\s*?@$=!<>&|,]+)")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_MAX_DEPTH: Final = 32


class PathMissingError(Exception):
    """Raised where a path leads to nothing, or to null."""


class _Missing:
    """Value of a path that leads to nothing, in a condition."""


_MISSING: Final = _Missing()

Test: TypeAlias = Callable[[object], bool]
Operand: TypeAlias = Callable[[object], object]


class _Step(NamedTuple):
    """Step of a path: names of fields, indexes, a slice, everything inside, or a condition.

    Attributes:
        select: returns the values that the step leads to from one value; None where it leads to nothing.
        is_definite: whether it leads to one value.
        name: the field's name, of a step to one field.
    """

    select: Callable[[object], Sequence[object] | None]
    is_definite: bool
    name: str = ""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """Parsed path.

    >>> path = JsonPath.parse("$.items[?(@.price > 10 && @.kind == 'book')]")
    >>> path.found({"items": [{"price": 12, "kind": "book"}, {"price": 20}]})
    [{'price': 12, 'kind': 'book'}]
    """

    steps: tuple[_Step, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a path.

        Raises:
            ValueError: it is none, or has a part that is not supported.
        """
        reader = _Reader(text.strip())
        reader.expect("$")
        steps = tuple(reader.steps())
        if reader.at < len(reader.text):
            raise reader.problem("a step: .name, ['name'], [0], [*] or [?(…)]")
        return cls(steps)

    @property
    def is_definite(self) -> bool:
        """True if it leads to one value."""
        return all(step.is_definite for step in self.steps)

    def found(self, value: object) -> list[object]:
        """Return the values at the path.

        Raises:
            PathMissingError: a field that the path names is missing before any step that leads to several values.
            RecordError: a condition is about a value that is neither an object nor an array.
        """
        values: list[object] = [value]
        definite = True
        for step in self.steps:
            after: list[object] = []
            for one in values:
                selected = step.select(one)
                if selected is None and definite:
                    raise PathMissingError
                after += selected or ()
            values = after
            definite = definite and step.is_definite
        return values


class _Reader:
    """Reads a path from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def problem(self, expected: str) -> ValueError:
        """Return the error at this position."""
        return ValueError(f"expected {expected} at offset {self.at}, found {self.text[self.at : self.at + 20]!r}")

    def expect(self, mark: str) -> None:
        """Read a mark."""
        if not self.takes(mark):
            raise self.problem(repr(mark))

    def takes(self, mark: str) -> bool:
        """Read a mark if it is next."""
        kind, text = self._peek()
        if text != mark or kind in ("text", "number"):
            return False
        self._next()
        return True

    def _peek(self) -> tuple[str, str]:
        found = _TOKEN.match(self.text, self.at)
        return ("", "") if found is None else (str(found.lastgroup), found[str(found.lastgroup)])

    def _next(self) -> tuple[str, str]:
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            raise self.problem("more")
        self.at = found.end()
        return str(found.lastgroup), found[str(found.lastgroup)]

    def steps(self) -> Iterator[_Step]:
        """Yield the steps of a path whose root is read."""
        while self.at < len(self.text) and self.text[self.at] in ".[":
            if self.text.startswith("..", self.at):
                raise self.problem("no search at any depth (..), which is not supported; name the path")
            plain = _PLAIN_NAME.match(self.text, self.at)
            if plain is not None:
                self.at = plain.end()
                if self.text.startswith("(", self.at):
                    raise ValueError(f"functions such as {plain[1]}() are not supported")
                yield _names([plain[1]])
            elif self.takes("."):
                self.expect("*")
                yield _Step(_members, is_definite=False)
            else:
                yield self._bracket()

    def _bracket(self) -> _Step:
        self.expect("[")
        kind, text = self._peek()
        if text == "?" and kind == "mark":
            self._next()
            self.expect("(")
            test = self.alternatives()
            self.expect(")")
            self.expect("]")
            return _Step(lambda value: _filtered(value, test), is_definite=False)
        if text == "*" and kind == "mark":
            self._next()
            self.expect("]")
            return _Step(_members, is_definite=False)
        if kind == "text":
            names = [self._literal_text()]
            while self.takes(","):
                names.append(self._literal_text())
            self.expect("]")
            return _names(names)
        return self._indexes()

    def _literal_text(self) -> str:
        kind, text = self._next()
        if kind != "text":
            raise self.problem("a name in quotes")
        return _ESCAPED.sub(r"\1", text[1:-1])

    def _indexes(self) -> _Step:
        parts: list[int | None] = []
        colon = False
        while not self.takes("]"):
            kind, text = self._next()
            if kind == "number" and text.lstrip("-").isdecimal():
                parts.append(int(text))
            elif text == ":" and len(parts) < 2 and not colon:
                colon = True
                parts += [None] * (1 - len(parts))
            elif text != "," or colon or not parts:
                raise self.problem("indexes, as [0], [0,1] or [1:3]")
        if not parts:
            raise self.problem("an index")
        if colon:
            begin, end = parts[0], parts[1] if len(parts) > 1 else None
            return _Step(lambda value: value[begin:end] if isinstance(value, list) else None, is_definite=False)
        numbers = [number for number in parts if number is not None]
        return _Step(lambda value: _indexed(value, numbers), is_definite=len(numbers) == 1)

    # Conditions

    def alternatives(self) -> Test:
        """Read a condition."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError(f"conditions nest deeper than {_MAX_DEPTH}")
        parts = [self._conjunction()]
        while self.takes("||"):
            parts.append(self._conjunction())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else lambda value: any(part(value) for part in parts)

    def _conjunction(self) -> Test:
        parts = [self._negation()]
        while self.takes("&&"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)

    def _negation(self) -> Test:
        negated = False
        while self.takes("!"):
            negated = not negated
        if self.takes("("):
            test = self.alternatives()
            self.expect(")")
        else:
            test = self._comparison()
        return (lambda value: not test(value)) if negated else test

    def _comparison(self) -> Test:
        left, is_path = self._operand()
        kind, text = self._peek()
        name = text if kind == "operator" else text.lower()
        compare = _OPERATORS.get(name) if kind in ("operator", "name") else None
        if compare is None:
            if kind == "name" or not is_path:
                raise self.problem(f"one of {', '.join(_OPERATORS)}")
            return lambda value: left(value) is not _MISSING
        self._next()
        right, _ = self._operand()
        return lambda value: compare(left(value), right(value))

    def _operand(self) -> tuple[Operand, bool]:
        kind, text = self._peek()
        if kind == "mark" and text == "$":
            raise self.problem("a path that begins with @, as in @.name: the root is not seen in conditions")
        if kind == "mark" and text == "@":
            self._next()
            path = JsonPath(tuple(self.steps()))
            return lambda value: _value_at(path, value), True
        constant = self._constant()
        return lambda _value: constant, False

    def _constant(self) -> object:
        kind, text = self._peek()
        if kind == "text":
            return self._literal_text()
        if kind == "mark" and text == "[":
            self._next()
            items: list[object] = []
            while not self.takes("]"):
                items.append(self._constant())
                self.takes(",")
            return items
        self._next()
        if kind == "number":
            return Decimal(text)
        if kind == "regex":
            return _pattern(text)
        if kind == "name" and text in _WORDS:
            return _WORDS[text]
        raise self.problem("@, a text, a number, true, false, null, a list or /a pattern/")


_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}


def _pattern(text: str) -> JavaRegex:
    body, _, flags = text[1:].rpartition("/")
    if set(flags) - set("idmsux"):
        raise ValueError(f"expected the flags i, d, m, s, u and x of a pattern, found {flags!r}")
    try:
        return JavaRegex.of(f"(?{flags}){body}" if flags else body)
    except JavaRegexError as error:
        raise ValueError(f"{text} is no regular expression: {error}") from None


# Steps


def _names(names: Sequence[str]) -> _Step:
    if len(names) > 1:
        return _Step(
            lambda value: [value[name] for name in names if name in value] if isinstance(value, dict) else None,
            is_definite=False,
        )
    (name,) = names
    return _Step(
        lambda value: [value[name]] if isinstance(value, dict) and name in value else None, is_definite=True, name=name
    )


def _members(value: object) -> Sequence[object] | None:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _indexed(value: object, numbers: Sequence[int]) -> Sequence[object] | None:
    if not isinstance(value, list):
        return None
    found = [value[number] for number in numbers if -len(value) <= number < len(value)]
    return found or (None if len(numbers) == 1 else [])


def _filtered(value: object, test: Test) -> Sequence[object] | None:
    if value is None:
        # An error for Jayway; Confluent's option is about nulls, too.
        return None
    if isinstance(value, list):
        return [one for one in value if test(one)]
    if isinstance(value, dict):
        return [value] if test(value) else []
    raise RecordError(f"a condition cannot be applied to {type(value).__name__}, but to objects and arrays")


def _value_at(path: JsonPath, value: object) -> object:
    try:
        found = path.found(value)
    except PathMissingError:
        return _MISSING
    return found[0] if path.is_definite else found


# Comparisons


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return value if isinstance(value, Decimal) else Decimal(repr(float(value)) if isinstance(value, float) else value)


def _text_of(value: object) -> str | None:
    if isinstance(value, str):
        return value
    number = _number(value)
    return None if number is None else str(number)


def _equal(left: object, right: object) -> bool:
    """Compare as the left one is: a number with the number in a text, a text with the text of a number."""
    if left is _MISSING or right is _MISSING:
        return False
    number = _number(left)
    if number is not None:
        try:
            other = Decimal(right) if isinstance(right, str) else _number(right)
        except InvalidOperation:
            return False
        return other is not None and number == other
    if isinstance(left, str):
        return left == _text_of(right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return type(left) is type(right) and left == right


def _same_type(left: object, right: object) -> bool:
    kinds = [bool(_number(one) is not None) or type(one) for one in (left, right)]
    return kinds[0] == kinds[1] and _equal(left, right)


def _ordered(holds: Callable[[DynamicValue, DynamicValue], bool]) -> Callable[[object, object], bool]:
    def compare(left: object, right: object) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            one, other = (text.encode("utf-16-be", "surrogatepass") for text in (left, right))
            return holds(one, other)
        numbers = _number(left), _number(right)
        return None not in numbers and holds(*numbers)

    return compare


def _matches(left: object, right: object) -> bool:
    if isinstance(right, JavaRegex):
        values = left if isinstance(left, list) else [left]
        return any(right.matches(_regex_text(value)) for value in values)
    return isinstance(left, JavaRegex) and left.matches(_regex_text(right))


def _regex_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text_of(value) or ""


def _in(left: object, right: object) -> bool:
    return isinstance(right, list) and any(_equal(left, one) for one in right)


def _contains(left: object, right: object) -> bool:
    if isinstance(left, str):
        return isinstance(right, str) and right in left
    return isinstance(left, list) and any(_equal(right, one) for one in left)


def _sized(left: object, right: object) -> bool:
    size = len(left) if isinstance(left, str | list) else None
    return size is not None and _number(right) == size


def _empty(left: object, right: object) -> bool:
    return isinstance(right, bool) and isinstance(left, str | list) and (not left) == right


_OPERATORS: Final[dict[str, Callable[[object, object], bool]]] = {
    "==": _equal,
    "===": _same_type,
    "!=": lambda left, right: not _equal(left, right),
    "!==": lambda left, right: not _same_type(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "=~": _matches,
    "in": _in,
    "nin": lambda left, right: not _in(left, right),
    "contains": _contains,
    "size": _sized,
    "empty": _empty,
}


def _plain(value: object) -> object:
    """Return a value as JSON has it: structs as objects, dates as milliseconds, bytes as their text."""
    if isinstance(value, Struct):
        value = value.fields
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, Moment) else value


_BEHAVIORS: Final = ("fail", "include", "exclude")


@dataclass(frozen=True, slots=True)
class ConfluentFilter(Transform):
    """See ``summary``. Confluent's Filter, by its documentation and Jayway's JsonPath, which it uses."""

    summary: ClassVar[str] = "Keeps or drops records that have something at a path of JSONPath, with its conditions."
    java_names: ClassVar[tuple[str, ...]] = ("io.confluent.connect.transforms.Filter",)
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    filters: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "filter.condition",
            STRING,
            "The path: `$.items[?(@.price > 10)]`. It matches where it leads to a value, or to at least one.",
            own_language=True,
        ),
        Option(
            "filter.type",
            STRING,
            "Whether records that match are kept, or dropped.",
            check=one_of("include", "exclude", any_case=True),
            valid="include, exclude",
        ),
        Option(
            "missing.or.null.behavior",
            STRING,
            "Treatment of records without a field that the path names before its conditions, or with a null there.",
            default="fail",
            check=one_of(*_BEHAVIORS, any_case=True),
            valid=", ".join(_BEHAVIORS),
        ),
    )

    condition: str = ""
    includes: bool = True
    missing: str = "fail"
    _path: JsonPath = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_path", JsonPath.parse(self.condition))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.side, self.condition, self.includes, self.missing)

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the path."""
        try:
            return cls(
                side,
                options["filter.condition"] or "",
                options["filter.type"].lower() == "include",
                options["missing.or.null.behavior"].lower(),
            )
        except ValueError as problem:
            raise OptionError("filter.condition", str(problem)) from None

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        names: list[str] = []
        for step in self._path.steps:
            if not step.name:
                break
            names.append(step.name)
        if names:
            yield NamedField("filter.condition", self.side, tuple(names))

    def shapes_after(self, key: Shape, value: Shape) -> set[tuple[Shape, Shape]]:
        """See `Transform.shapes_after`."""
        return {(key, value)}

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop the records that do not match, or those that do."""
        errors: Errors = {}
        dropped: list[int] = []
        wanted = np.zeros(len(batch), np.bool_)
        wanted[rows] = True
        for block in batch.key if self.side == Side.KEY else batch.value:
            chosen = block.take(np.flatnonzero(wanted[block.rows]))
            for row, value in zip(chosen.rows.tolist(), chosen.whole(), strict=True):
                try:
                    if not self._keeps(_plain(value)):
                        dropped.append(row)
                except RecordError as error:
                    errors[row] = error
        batch.filter(np.array(sorted(dropped), np.intp))
        return errors

    def _keeps(self, value: object) -> bool:
        is_missing = value is None
        found: list[object] = []
        try:
            found = self._path.found(value)
        except PathMissingError:
            is_missing = True
        if is_missing or (self._path.is_definite and found[0] is None):
            if self.missing == "fail":
                raise RecordError(f"the {self.root} has nothing at {self.condition}, or null")
            return self.missing == "include"
        return bool(found) == self.includes
