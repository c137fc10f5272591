"""JSON texts of one schema, read to blocks: each strictly at first, and leniently where that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import astuple

from turnout.base.deferred import np
from turnout.codecs.codec import Decoded
from turnout.codecs.ddl import Declared
from turnout.codecs.json_leaf_readers import Leaf, Schemaless, declared_leaf, read_schemaless, wire_leaf
from turnout.codecs.nodes import (
    Misfit,
    Node,
    json_text,
    list_node,
    map_node,
    nullable,
    pairs_node,
    slow_node,
    struct_node,
)
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema, group
from turnout.records.schema import DIGITS
from turnout.records.types import Convert, DynamicValue, NewColumn, Value

_UNREADABLE = (ValueError, TypeError, RecursionError)
"""Errors of a strict read: no UTF-8, no JSON, not of its type, no text at all, or nested too deep."""

_CHUNK: Final = 128
"""Texts that are read before their values are put into columns: they are still in the processor's cache then,
which makes it twice as fast as one pass for each (measured)."""


Composite: TypeAlias = Callable[[Schema, Callable[[Schema], Node]], Node | None]
"""Builds the reader of a schema from readers of its parts; None if it is read as usual."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """Rules of a notation.

    Attributes:
        leaf: builds readers of primitive schemas.
        defaults: whether a null that has a default is read as it.
        composite: builds readers of other schemas that have a form of their own.
        omits: whether any field of an object may be missing.
    """

    leaf: Leaf
    defaults: bool = False
    composite: Composite = lambda _schema, _inner: None
    omits: bool = False

    def node(self, schema: Schema, declared: Declared | None = None, *, omits: bool = False) -> Node:
        """Return the reader of a schema's values at any position."""
        own = self.composite(schema, self.node)
        return self.nullable(self._bare(schema, declared) if own is None else own, schema, omits=omits)

    def _bare(self, schema: Schema, declared: Declared | None) -> Node:
        if schema.type == "struct":
            return struct_node(self.fields(schema, declared))
        if schema.type in ("array", "map"):
            if schema.values is None:
                raise ValueError(f"expected the schema of the {schema.type}'s elements, found none")
            item = self.node(schema.values, declared and declared.inner[0])
            if schema.type == "array":
                return list_node(item)
            if schema.keys is None:
                raise ValueError("expected the schema of the map's keys, found none")
            if schema.keys.type == "string":
                return map_node(item)
            return pairs_node(self.node(schema.keys), item)
        return self.leaf(schema, declared.digits if declared is not None else DIGITS)

    def fields(self, schema: Schema, declared: Declared | None) -> dict[str, Node]:
        """Return the readers of a struct's fields."""
        inner = declared.inner if declared is not None else (None,) * len(schema.fields)
        return {
            field.name: self.node(field.schema, column, omits=self.omits)
            for field, column in zip(schema.fields, inner, strict=True)
        }

    def nullable(self, node: Node, schema: Schema, *, omits: bool = False) -> Node:
        """Return the reader with nulls allowed or refused, as the schema says."""
        default = schema.default if self.defaults else None
        return nullable(node, required=not schema.optional and default is None, default=default, omits=omits)


class Reader:
    """Reads payloads of one schema."""

    def __init__(self, schema: Schema, node: Node, nodes: Mapping[str, Node] | None) -> None:
        """Create a reader for *node*; the fields of a struct are read by *nodes*."""
        self.schema = schema
        self._node = node
        self._strict: Convert | None = None
        self._names: tuple[str, ...] | None = None
        if node.strict is msgspec.Raw:
            return
        if nodes is not None:
            # The columns are opened here; where a value is null, the fast decoder fails and they are read one by one.
            self._names = tuple(nodes)
            self._columns = [node.column for node in nodes.values()]
        decode = msgspec.json.Decoder(node.strict).decode
        check = node.check
        self._strict = decode if check is None else lambda text: _checked(decode(text), check)

    @classmethod
    def declared(cls, declared: Declared) -> Reader:
        """Of objects with declared columns: times in ISO 8601, decimals as numbers."""
        return cls._of(declared.schema, _Rules(declared_leaf), declared)

    @classmethod
    def plain(cls, schema: Schema) -> Reader:
        """Of values as people write them: times in ISO 8601, decimals as numbers.

        Raises:
            ValueError: the schema is not one.
        """
        return cls._of(schema, _Rules(declared_leaf))

    @classmethod
    def wire(cls, schema: Schema, *, defaults: bool) -> Reader:
        """Of payloads as JsonConverter writes them.

        Args:
            schema: schema of the payloads.
            defaults: whether a null that has a default is read as it.

        Raises:
            ValueError: the schema is not one.
        """
        return cls._of(schema, _Rules(wire_leaf, defaults))

    @classmethod
    def of(cls, schema: Schema, leaf: Leaf, composite: Composite) -> Reader:
        """Of payloads in which some schemas have forms of their own, and a null that has a default is read as it.

        A field that is missing is None, whether or not its schema is optional.

        Raises:
            ValueError: the schema is not one.
        """
        return cls._of(schema, _Rules(leaf, True, composite, omits=True))

    @classmethod
    def _of(cls, schema: Schema, rules: _Rules, declared: Declared | None = None) -> Reader:
        if schema.type != "struct" or rules.composite(schema, rules.node) is not None:
            return cls(schema, rules.node(schema, declared), None)
        nodes = rules.fields(schema, declared)
        whole = struct_node(nodes)
        # The strict reader is of the struct alone: the slow one handles nulls.
        slow = rules.nullable(whole, schema).slow
        node = slow_node(slow) if whole.strict is msgspec.Raw else Node(
            whole.strict, whole.absent, whole.column, slow, whole.check
        )  # fmt: skip
        return cls(schema, node, nodes)

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the blocks of these payloads; a null has the schema, too."""
        members, failed = ([], list(range(len(texts)))) if self._strict is None else self._strictly(self._strict, texts)
        blocks = self._blocks(np.delete(rows, failed) if failed else rows, members)
        if not failed:
            return blocks, {}
        values, read, errors = [], [], {}
        for index in failed:
            try:
                values.append(self._node.slow(json_text(texts[index])))
                read.append(index)
            except Misfit as misfit:
                errors[int(rows[index])] = RecordError(f"the value is not of its schema: {misfit}")
        return blocks + (group(rows[read], self.schema, values) if values else []), errors

    def _strictly(self, read: Callable[[bytes], Value], texts: Sequence[bytes]) -> tuple[NewColumn, list[int]]:
        """Read strictly, by column where the schema is a struct; return values and the indices of other texts."""
        if self._names is None:
            members: NewColumn = []
            return members, _read_all(read, texts, members)
        columns: list[NewColumn] = [[] for _ in self._names]
        failed: list[int] = []
        for start in range(0, len(texts), _CHUNK):
            members = []
            failed += [start + index for index in _read_all(read, texts[start : start + _CHUNK], members)]
            for column, values in zip(columns, zip(*map(astuple, members), strict=True), strict=False):
                column.extend(values)
        return columns, failed

    def _blocks(self, rows: Positions, members: NewColumn) -> list[Block]:
        if not len(rows):
            return []
        if self._names is not None:
            columns = {
                name: values if column is None else column(values)
                for name, column, values in zip(self._names, self._columns, members, strict=True)
            }
            return [Block(rows, self.schema, columns=columns)]
        column = self._node.column
        return group(rows, self.schema, members if column is None else column(members))


class SchemalessReader:
    """Reads schemaless values of any kind, one by one."""

    def __init__(
        self, strict: Convert | None = None, lenient: Convert = read_schemaless, notation: str = "JSON"
    ) -> None:
        """Create a reader for JSON, or for another notation.

        Args:
            strict: reads most texts.
            lenient: reads the others, or reports their faults.
            notation: the notation's name, for messages.
        """
        self._strict = strict or schemaless_decoder().decode
        self._lenient = lenient
        self._notation = notation

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the blocks of these texts, objects by their shape."""
        members: NewColumn = []
        failed = _read_all(self._strict, texts, members)
        errors: dict[int, RecordError] = {}
        for index in failed:
            try:
                members.insert(index - len(errors), self._lenient(texts[index]))
            except _UNREADABLE as failure:
                errors[index] = RecordError(f"the value is not {self._notation}: {failure}")
        read = np.delete(rows, list(errors)) if errors else rows
        return group(read, None, members), {int(rows[index]): error for index, error in errors.items()}


@cache
def schemaless_decoder() -> msgspec.json.Decoder[DynamicValue]:
    """Return the shared decoder: it is stateless, and takes 10 ms to create."""
    return msgspec.json.Decoder(Schemaless)


def _checked(member: DynamicValue, check: Convert) -> DynamicValue:
    try:
        check(member)
    except Misfit as misfit:
        raise ValueError(str(misfit)) from None
    return member


def _read_all(read: Callable[[bytes], Value], texts: Sequence[bytes], members: NewColumn) -> list[int]:
    """Append the readable values to *members*; return the indices of the other texts."""
    failed: list[int] = []
    remaining, before = iter(texts), len(members)
    while len(members) - before + len(failed) < len(texts):
        try:
            members.extend(map(read, remaining))
        except _UNREADABLE:
            # Earlier values are kept, and the iterator is behind it.
            failed.append(len(members) - before + len(failed))
    return failed
