"""An expression of CEL (Common Expression Language), by Google's own library ``cel-expr-python``.

The language has no loops but those over lists and maps, and regular expressions in linear time. The library stops at
10,000 iterations and 32 levels of an expression; what one of them may cost is bounded by the record's size beforehand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from turnout.base.startup import np
from turnout.base.untrusted import JsonObject
from turnout.errors import MissingExtraError, RecordError
from turnout.records import Batch, Block, Moment, Schema, Struct
from turnout.records.text import iso_of
from turnout.records.types import Column, DynamicValue, Entries, Fields, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_DEPTH: Final = 64
"""Lists and objects inside each other; the library converts them by recursion."""

MAX_WORK: Final = 1 << 27
"""Maximum number of characters and nodes that one evaluation may read or create, by an upper estimate."""

_NODE: Final = 8
"""Size of a value beside its characters."""

_INT64: Final = 1 << 63


Wanted: TypeAlias = "Mapping[str, Wanted] | None"
"""Named fields of an object, each with its own named fields; `ALL` for everything."""

ALL: Final = None


def wanted_of(paths: Iterable[tuple[str, ...]]) -> Wanted:
    """Return the fields that paths name.

    >>> wanted_of([("a", "b"), ("a", "c"), ("d",), ("d", "e")])
    {'a': {'b': None, 'c': None}, 'd': None}
    """
    inside: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        if not path:
            return ALL
        inside.setdefault(path[0], []).append(path[1:])
    return {name: wanted_of(rest) for name, rest in inside.items()}


def _schema_of(schema: Schema | None, name: str) -> Schema | None:
    if schema is None or schema.type != "struct":
        return None if schema is None else schema.values
    return schema.field(name)


class Inputs:
    """Values of one record for expressions, and the size of the named parts.

    Attributes:
        size: characters and bytes, and some for each value.
        longest_text: characters of the longest text.
        longest_list: items of the longest list or object.
    """

    __slots__ = ("longest_list", "longest_text", "size", "values")

    def __init__(self) -> None:
        self.values: JsonObject = {}
        self.size = 0
        self.longest_text = 0
        self.longest_list = 0

    def add(self, variable: str, value: object, schema: Schema | None = None, required: Wanted = ALL) -> None:
        """Add a variable.

        Date objects become texts of ISO 8601; decimals, and integers of more than 64 bits, doubles.

        Args:
            variable: its name.
            value: its value.
            schema: schema of the value.
            required: the fields that expressions name; the others are left out.

        Raises:
            RecordError: the value is nested too deep, or has a text that UTF-8 cannot hold.
        """
        self.values[variable] = self._plain(value, schema, MAX_DEPTH, required)

    def _plain(self, value: object, schema: Schema | None, depth: int, required: Wanted = ALL) -> object:
        self.size += _NODE
        kind = type(value)
        if isinstance(value, str):
            return self._text(value)
        if value is None or kind is bool or kind is float:
            return value
        if isinstance(value, Moment):
            return iso_of(value, schema)
        if isinstance(value, int):
            return int(value) if -_INT64 <= value < _INT64 else _double(value)
        if depth == 0:
            raise RecordError(f"the record has more than {MAX_DEPTH} lists and objects inside each other")
        if isinstance(value, Struct):
            return self._object(value.fields, value.schema, depth - 1, required)
        if isinstance(value, dict):
            return self._object(value, schema, depth - 1, required)
        if isinstance(value, list | tuple):
            self.longest_list = max(self.longest_list, len(value))
            inner = None if schema is None else schema.values
            return [self._plain(item, inner, depth - 1) for item in value]
        if isinstance(value, bytes | bytearray | memoryview):
            self._count(len(value))
            # The library cuts bytes at the first zero, and a bytearray it does not.
            return bytearray(value)
        return _double(value) if isinstance(value, Decimal | float) else self._text(str(value))

    def _object(self, value: Entries, schema: Schema | None, depth: int, required: Wanted) -> Entries:
        if required is not ALL:
            fields = {name: inside for name, inside in required.items() if name in value}
            return {
                name: self._plain(value[name], _schema_of(schema, name), depth, inside)
                for name, inside in fields.items()
            }
        self.longest_list = max(self.longest_list, len(value))
        if schema is None or schema.type != "struct":
            inner = None if schema is None else schema.values
            return {self._key(name): self._plain(item, inner, depth) for name, item in value.items()}
        return {
            field.name: self._plain(value.get(field.name), field.schema, depth)
            for field in schema.fields
            if field.name in value
        }

    def _key(self, name: object) -> object:
        return self._text(name) if isinstance(name, str) else name if type(name) in (int, bool) else str(name)

    def _text(self, text: str) -> str:
        self._count(len(text))
        if "\0" in text:
            raise RecordError("the record has a text with a zero character, at which the library would cut it")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise RecordError("the record has a text with half of a surrogate pair") from None
        return text

    def _count(self, length: int) -> None:
        self.size += length
        self.longest_text = max(self.longest_text, length)


def _double(value: Decimal | int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class BatchReader:
    """Reads what expressions name of each record of a batch.

    Args:
        batch: the batch.
        paths: paths in the expressions.
        rows: rows of the records; None for all.
    """

    def __init__(self, batch: Batch, paths: Iterable[tuple[str, ...]], rows: NDArray[np.int64] | None = None) -> None:
        by_root: dict[str, set[tuple[str, ...]]] = {}
        for path in paths:
            by_root.setdefault(path[0], set()).add(path[1:])
        self.roots = by_root
        self.wanted = {root: wanted_of(inside) for root, inside in by_root.items()}
        self.sides = {
            root: _whole_values(side, by_root[root], rows)
            for root, side in (("key", batch.key), ("value", batch.value))
            if root in by_root
        }
        address: dict[str, Column | NDArray[np.int64] | None] = {
            "topic": batch.topics,
            "partition": batch.partitions,
            "offset": batch.offsets,
            "timestamp": batch.timestamps,
        }
        self.address = {name: column for name, column in address.items() if name in by_root and column is not None}
        named = by_root.get("headers", set())
        names = batch.headers.names() if () in named else {path[0] for path in named}
        self.headers = {name: batch.headers.last(name) for name in names}

    def inputs(self, row: int) -> Inputs:
        """Return the inputs of the expressions for a row.

        Raises:
            RecordError: they cannot see it.
        """
        inputs = Inputs()
        for root, (schemas, values) in self.sides.items():
            inputs.add(root, values.get(row), schemas.get(row), self.wanted[root])
        if "headers" in self.roots:
            found = {name: texts[row] for name, texts in self.headers.items()}
            inputs.add("headers", {name: text for name, text in found.items() if text is not None})
        for name, column in self.address.items():
            part = column[row]
            if part is not None:
                inputs.add(name, part if isinstance(part, str) else int(part))
        return inputs


def _whole_values(
    side: Sequence[Block], paths: set[tuple[str, ...]], chosen: NDArray[np.int64] | None
) -> tuple[dict[int, Schema | None], dict[int, Value]]:
    """Return the schema and the value of each chosen row, of objects only the fields that are named."""
    schemas: dict[int, Schema | None] = {}
    values: dict[int, Value] = {}
    for block in side:
        if chosen is not None and len(chosen) < len(block):
            block = block.take(np.flatnonzero(np.isin(block.rows, chosen)))
        if block.kind == "object" and () not in paths:
            names = [name for name in dict.fromkeys(path[0] for path in sorted(paths)) if name in block.columns]
            block = block.with_columns(block.schema, {name: block.columns[name] for name in names})
        rows = block.rows.tolist()
        values.update(zip(rows, block.whole(), strict=True))
        schemas.update(dict.fromkeys(rows, block.schema))
    return schemas, values


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

_LOOKUP: Final = "lookup"
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
        lookups: the tables that it looks up, each with the field of the row, "" for the whole row; a table that is no
            text is "".
    """

    paths: frozenset[tuple[str, ...]]
    loops: int
    depth: int
    copies: int
    computed_pattern: bool
    growth: int
    lookups: frozenset[tuple[str, str]] = frozenset()

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
    lookups: set[tuple[str, str]] = set()
    open_loops: list[bool] = []
    loops = depth = copies = 0
    computed = False
    for index, (kind, word) in enumerate(tokens):
        if kind == "name" and word in variables and not _is_member(tokens, index) and tokens[index + 1][1] != "(":
            paths.add(_path(tokens, index))
        elif word == _LOOKUP and tokens[index + 1][1] == "(":
            lookups.add(_lookup(tokens, index + 2))
        elif word == "(":
            is_loop = index > 1 and tokens[index - 1][1] in _LOOPS and tokens[index - 2][1] == "."
            open_loops.append(is_loop)
            loops += is_loop
            depth = max(depth, sum(open_loops))
            computed = computed or (tokens[index - 1][1] == "matches" and not _has_literal_pattern(tokens, index))
        elif word == ")" and open_loops:
            open_loops.pop()
        copies += kind == "mark" and word in "+,"
    growth = _growth(loops + 1, copies)
    return References(frozenset(paths), loops, depth, copies, computed, growth, frozenset(lookups))


def _lookup(tokens: list[tuple[str, str]], index: int) -> tuple[str, str]:
    """Return the table of a call whose arguments begin at an index, and the field that is selected from its row."""
    kind, table = tokens[index]
    name = table[1:-1] if kind == "literal" and tokens[index + 1][1] == "," and table[0] in "\"'" else ""
    depth = 1
    while depth and tokens[index][0] != "end":
        depth += (tokens[index][1] == "(") - (tokens[index][1] == ")")
        index += 1
    selected = tokens[index : index + 2]
    return name, selected[1][1] if selected and selected[0][1] == "." else ""


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


@dataclass(frozen=True)
class TableRows:
    """Rows of a table that expressions look up.

    Attributes:
        rows: key → row, each with the values that CEL takes.
        size: the greatest size of a row, as `Inputs` counts it.
    """

    rows: Mapping[object, Fields] = field(default_factory=dict, repr=False)
    size: int = 0


_NO_ROWS: Final = TableRows()
_tables: ContextVar[Mapping[str, TableRows]] = ContextVar("tables", default=MappingProxyType({}))
_missing: ContextVar[str] = ContextVar("missing", default="")


@contextmanager
def looking_up(tables: Mapping[str, TableRows]) -> Iterator[None]:
    """Let expressions inside the block look up rows of tables."""
    token = _tables.set(tables)
    try:
        yield
    finally:
        _tables.reset(token)


def _look_up(table: str, key: object) -> Fields:
    """Return a row; an empty one where there is none, so that ``has(lookup(…).field)`` is false."""
    found = _tables.get().get(table)
    if found is None:
        raise ValueError(f"there is no table {table!r}")
    row = found.rows.get(key)
    if row is None:
        _missing.set(f"; the table {table!r} has no row {key!r:.60}")
        return {}
    return row


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

    def check(self, *, tables: bool = False) -> None:
        """Compile it.

        Args:
            tables: whether it may look up rows of tables.

        Raises:
            ExpressionError: it is no expression of CEL, or names something that there is not.
            MissingExtraError: ``cel-expr-python`` is not installed.
        """
        if len(self.text) > MAX_TEXT:
            raise ExpressionError(f"an expression of {len(self.text)} characters, at most {MAX_TEXT} are taken")
        _program(self.text)
        if self.references.computed_pattern:
            raise ExpressionError("expected the regular expression of x.matches(…) as a text, found something computed")
        if not tables and self.references.lookups:
            raise ExpressionError("lookup(…) is for the expressions of a route's Set alone")
        if "" in {table for table, _ in self.references.lookups}:
            raise ExpressionError('expected the table\'s name as a text, as in lookup("airlines", value.carrier).name')

    def evaluate(self, inputs: Inputs) -> DynamicValue:
        """Return the value for a record, as turnout holds it: `Moment` for a time, objects with sorted names.

        Raises:
            RecordError: it has none for this record, or would take too much.
        """
        references = self.references
        iterations = references.iterations(inputs.longest_list)
        rows = max((_tables.get().get(table, _NO_ROWS).size for table, _ in references.lookups), default=0)
        work = (max(inputs.longest_text, rows) * references.growth + inputs.size) * iterations
        if work > MAX_WORK:
            raise RecordError(
                f"the expression would take too much: the record has a list or object of {inputs.longest_list:,} items "
                f"and a text of {inputs.longest_text:,} characters, and a size of {inputs.size:,}"
            )
        if references.lookups:
            _missing.set("")
        try:
            found = _program(self.text).eval(data=inputs.values)
            kind, value = found.type().name(), found.plain_value()
        except RuntimeError as error:
            raise RecordError(_reason(error)) from None
        if kind == "ERROR":
            raise RecordError(_reason(value) + (_missing.get() if references.lookups else ""))
        return _as_plain(value)


def _as_plain(value: DynamicValue) -> DynamicValue:
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
    lookup = cel.FunctionDecl(
        _LOOKUP,
        [cel.Overload(f"{_LOOKUP}_{key.name()}", kinds.DYN, [kinds.STRING, key], impl=_look_up)
         for key in (kinds.STRING, kinds.INT)],
    )  # fmt: skip
    return cel.NewEnv(variables=types, functions=[lookup])
