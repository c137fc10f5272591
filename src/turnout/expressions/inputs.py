"""Values of a record as CEL takes them, with their size: what an evaluation can cost follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from turnout.errors import RecordError
from turnout.records import Moment, Schema, Struct
from turnout.records.text import iso_of

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
        self.values: dict[str, Any] = {}
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

    def _plain(self, value: Any, schema: Schema | None, depth: int, required: Wanted = ALL) -> Any:
        self.size += _NODE
        kind = type(value)
        if kind is str:
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

    def _object(self, value: dict[Any, Any], schema: Schema | None, depth: int, required: Wanted) -> dict[Any, Any]:
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
