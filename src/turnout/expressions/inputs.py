"""Values of a record as CEL takes them, with their size: what an evaluation can cost follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turnout.errors import RecordError
from turnout.records import Batch, Block, Moment, Schema, Struct
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
        address: dict[str, Sequence[Any] | NDArray[np.int64] | None] = {
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
) -> tuple[dict[int, Schema | None], dict[int, Any]]:
    """Return the schema and the value of each chosen row, of objects only the fields that are named."""
    schemas: dict[int, Schema | None] = {}
    values: dict[int, Any] = {}
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
