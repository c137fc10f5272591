"""JSON texts of one schema, read to blocks: each strictly at first, and leniently where that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from turnout.codecs.codec import Decoded
from turnout.codecs.ddl import Declared
from turnout.codecs.leaves import Leaf, Schemaless, declared_leaf, read_schemaless, wire_leaf
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

__all__ = ["Reader", "SchemalessReader"]

_UNREADABLE = (ValueError, TypeError, RecursionError)
"""What a strict reading raises: no UTF-8, no JSON, not of its type, no text at all, or nested too deep."""


class Reader:
    """Reads payloads of one schema."""

    def __init__(self, schema: Schema, node: Node, nodes: Mapping[str, Node] | None) -> None:
        """A reader of what *node* reads, whose fields are read by *nodes* where it is a struct."""
        self.schema = schema
        self._node = node
        self._strict: Callable[[Any], Any] | None = None
        self._names: tuple[str, ...] | None = None
        if node.strict is msgspec.Raw:
            return
        if nodes is not None:
            # The columns are opened here; a null goes the slow way.
            self._names = tuple(nodes)
            self._columns = [one.column for one in nodes.values()]
        decode = msgspec.json.Decoder(node.strict).decode
        check = node.check
        self._strict = decode if check is None else lambda text: _checked(decode(text), check)

    @classmethod
    def declared(cls, declared: Declared) -> Reader:
        """Of objects with declared columns: times in ISO 8601, decimals as numbers."""
        return cls._of(declared.schema, declared_leaf, declared, defaults=False)

    @classmethod
    def wire(cls, schema: Schema, *, defaults: bool) -> Reader:
        """Of payloads as JsonConverter writes them.

        Args:
            schema: of the payloads.
            defaults: whether a null that has a default is read as it.

        Raises:
            ValueError: the schema is not one.
        """
        return cls._of(schema, wire_leaf, None, defaults=defaults)

    @classmethod
    def _of(cls, schema: Schema, leaf: Leaf, declared: Declared | None, *, defaults: bool) -> Reader:
        if schema.type != "struct":
            return cls(schema, _node_of(schema, leaf, declared, defaults=defaults), None)
        nodes = _fields_of(schema, leaf, declared, defaults=defaults)
        whole = struct_node(nodes)
        # The strict reader is of the struct alone: of a null the slow one knows what it means.
        slow = _nullable(whole, schema, defaults=defaults).slow
        node = slow_node(slow) if whole.strict is msgspec.Raw else Node(
            whole.strict, whole.absent, whole.column, slow, whole.check
        )  # fmt: skip
        return cls(schema, node, nodes)

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """The blocks of these payloads; a null has the schema, too."""
        members, failed = _strictly(self._strict, texts)
        blocks = self._blocks(np.delete(rows, failed) if failed else rows, members) if members else []
        if not failed:
            return blocks, {}
        values, places, errors = [], [], {}
        for place in failed:
            try:
                values.append(self._node.slow(json_text(texts[place])))
                places.append(place)
            except Misfit as misfit:
                errors[int(rows[place])] = RecordError(f"the value is not of its schema: {misfit}")
        return blocks + (group(rows[places], self.schema, values) if values else []), errors

    def _blocks(self, rows: Positions, members: list[Any]) -> list[Block]:
        if self._names is not None:
            return [Block.closed(rows, self.schema, members, self._open)]
        column = self._node.column
        return group(rows, self.schema, members if column is None else column(members))

    def _open(self, members: list[Any]) -> dict[str, Sequence[Any]]:
        names = self._names or ()
        if not members or not names:
            return dict.fromkeys(names, ())
        columns = zip(*map(msgspec.structs.astuple, members), strict=True)
        return {
            name: found if column is None else column(found)
            for name, column, found in zip(names, self._columns, columns, strict=True)
        }


class SchemalessReader:
    """Reads JSON of any kind."""

    def __init__(self) -> None:
        self._strict = msgspec.json.Decoder(Schemaless).decode

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """The blocks of these texts, objects by their shape."""
        members, failed = _strictly(self._strict, texts)
        if not failed:
            return (group(rows, None, members) if members else []), {}
        errors: dict[int, RecordError] = {}
        good = np.ones(len(rows), np.bool_)
        for place in failed:
            try:
                members.insert(place - len(errors), read_schemaless(texts[place]))
            except _UNREADABLE as failure:
                errors[int(rows[place])] = RecordError(f"the value is not JSON: {failure}")
                good[place] = False
        return (group(rows[good], None, members) if members else []), errors


def _checked(member: Any, check: Callable[[Any], Any]) -> Any:
    try:
        check(member)
    except Misfit as misfit:
        raise ValueError(str(misfit)) from None
    return member


def _strictly(read: Callable[[bytes], Any] | None, texts: Sequence[bytes]) -> tuple[list[Any], list[int]]:
    """What can be read, and the places of the others."""
    if read is None:
        return [], list(range(len(texts)))
    # Mostly all can be read; only where one cannot, each is tried by itself.
    with suppress(*_UNREADABLE):
        return list(map(read, texts)), []
    members: list[Any] = []
    failed: list[int] = []
    keep = members.append
    for place, text in enumerate(texts):
        try:
            keep(read(text))
        except _UNREADABLE:
            failed.append(place)
    return members, failed


def _fields_of(schema: Schema, leaf: Leaf, declared: Declared | None, *, defaults: bool) -> dict[str, Node]:
    inner = declared.inner if declared is not None else (None,) * len(schema.fields)
    return {
        field.name: _node_of(field.schema, leaf, one, defaults=defaults)
        for field, one in zip(schema.fields, inner, strict=True)
    }


def _node_of(schema: Schema, leaf: Leaf, declared: Declared | None, *, defaults: bool) -> Node:
    """How values of a schema are read, wherever they stand."""
    return _nullable(_bare_node(schema, leaf, declared, defaults=defaults), schema, defaults=defaults)


def _bare_node(schema: Schema, leaf: Leaf, declared: Declared | None, *, defaults: bool) -> Node:
    if schema.type == "struct":
        return struct_node(_fields_of(schema, leaf, declared, defaults=defaults))
    if schema.type in ("array", "map"):
        if schema.values is None:
            raise ValueError(f"expected the schema of what the {schema.type} holds, found none")
        item = _node_of(schema.values, leaf, declared and declared.inner[0], defaults=defaults)
        if schema.type == "array":
            return list_node(item)
        if schema.keys is None:
            raise ValueError("expected the schema of the map's keys, found none")
        if schema.keys.type == "string":
            return map_node(item)
        return pairs_node(_node_of(schema.keys, leaf, None, defaults=defaults), item)
    return leaf(schema, declared.digits if declared is not None else DIGITS)


def _nullable(node: Node, schema: Schema, *, defaults: bool) -> Node:
    default = schema.default if defaults else None
    return nullable(node, required=not schema.optional and default is None, default=default)
