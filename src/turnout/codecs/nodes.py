"""Readers of JSON values of one schema: fast for well-formed values, lenient for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from turnout.codecs.codec import text_for_people
from turnout.records.types import Column, Convert, ConvertColumn, DynamicValue, Entries, NewColumn, Value

_Read = TypeVar("_Read")

NULL: Final = b"null"
JsonType: TypeAlias = Any
"""A type for msgspec's decoder, built at run time."""

Slow: TypeAlias = Callable[[bytes], DynamicValue]
"""Reads the JSON text of a value, whatever it is; raises `Misfit`."""

json_of = msgspec.json.decode
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WHOLE = msgspec.json.Decoder(msgspec.Raw).decode


class Misfit(Exception):  # noqa: N818 - control flow between these modules, never seen outside
    """Raised where a value is not of its schema.

    Attributes:
        place: the names and numbers that lead to it.
    """

    def __init__(self, expected: str, text: bytes) -> None:
        self.expected = expected
        self.text = text
        self.path: list[str] = []

    def __str__(self) -> str:
        shown = "nothing" if not self.text else text_for_people(self.text)
        where = "".join(self.path).removeprefix(".")
        return f"{where + ': ' if where else ''}expected {self.expected}, found {shown}"


@dataclass(frozen=True, slots=True)
class Node:
    """Reader of values of one schema.

    Attributes:
        strict: the type that msgspec reads, with None where a null may be.
        absent: msgspec's default of a missing field; `msgspec.NODEFAULT` for required ones.
        column: makes values of what msgspec has read, nulls included; None where they are the same.
        slow: the value of any JSON text, which is empty where a field is missing; may be slow and raises `Misfit`.
        check: of what msgspec has read; raises `Misfit`. None where nothing can be wrong with it.
        kind: type of a number, text or boolean that JSON has a form of; empty for others, and where nulls are replaced.
        nullable: whether null is a value.
    """

    strict: JsonType
    absent: object
    column: ConvertColumn | None
    slow: Slow
    check: Convert | None = None
    kind: str = ""
    nullable: bool = False


def field_names(names: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """Return valid Python names and the field of each; None if msgspec rejects one of the fields' names."""
    if any(character in '"\\' or character < " " for name in names for character in name):
        return None
    own = [f"f{at}" for at in range(len(names))]
    return own, dict(zip(own, names, strict=True))


def struct_node(nodes: Mapping[str, Node]) -> Node:
    """Return an object with these fields, as a dict."""
    kind = _struct_type(nodes)
    slow = _slow_struct(nodes)
    if kind is None:
        return slow_node(slow)
    names = tuple(nodes)
    own = kind.__struct_fields__
    columns = [(at, node.column) for at, node in enumerate(nodes.values()) if node.column is not None]
    checks = [(name, node.check) for name, node in zip(own, nodes.values(), strict=True) if node.check is not None]

    def opened(member: msgspec.Struct) -> Entries:
        values = list(msgspec.structs.astuple(member))
        for at, column in columns:
            values[at] = column((values[at],))[0]
        return dict(zip(names, values, strict=True))

    def check(member: msgspec.Struct) -> None:
        for name, check in checks:
            check(getattr(member, name))

    return Node(kind, msgspec.NODEFAULT, each(opened), slow, check if checks else None)


def _struct_type(nodes: Mapping[str, Node]) -> JsonType:
    names = field_names(tuple(nodes))
    if names is None:
        return None
    own, rename = names
    fields: NewColumn = [
        (name, node.strict) if node.absent is msgspec.NODEFAULT else (name, node.strict, node.absent)
        for name, node in zip(own, nodes.values(), strict=True)
    ]
    # Decoded values have no reference cycles: the garbage collector need not track them.
    return msgspec.defstruct("Read", fields, rename=rename, gc=False, kw_only=True)


def _slow_struct(nodes: Mapping[str, Node]) -> Slow:
    def read(text: bytes) -> Entries:
        members = _inside(_FIELDS, text, "an object")
        value = {}
        for name, node in nodes.items():
            try:
                value[name] = node.slow(bytes(members.get(name, b"")))
            except Misfit as misfit:
                misfit.path.insert(0, f".{name}")
                raise
        return value

    return read


def list_node(item: Node) -> Node:
    """Return the node for an array of *item*."""

    def read(text: bytes) -> NewColumn:
        values = []
        for at, raw in enumerate(_inside(_ITEMS, text, "an array")):
            try:
                values.append(item.slow(bytes(raw)))
            except Misfit as misfit:
                misfit.path.insert(0, f"[{at}]")
                raise
        return values

    column = item.column
    opened = None if column is None else each(lambda items: list(column(items)))
    return Node(list[item.strict], msgspec.NODEFAULT, opened, read, _all(item.check))  # type: ignore[name-defined]


def map_node(item: Node) -> Node:
    """Return the node for an object with any names and values of *item*."""

    def read(text: bytes) -> Entries:
        values = {}
        for name, raw in _inside(_FIELDS, text, "an object").items():
            try:
                values[name] = item.slow(bytes(raw))
            except Misfit as misfit:
                misfit.path.insert(0, f"[{name!r}]")
                raise
        return values

    column = item.column
    opened = (
        None if column is None else each(lambda entries: dict(zip(entries, column((*entries.values(),)), strict=True)))
    )
    inner = _all(item.check)
    check = None if inner is None else lambda entries: inner(entries.values())
    return Node(dict[str, item.strict], msgspec.NODEFAULT, opened, read, check)  # type: ignore[name-defined]


def pairs_node(key: Node, item: Node) -> Node:
    """Return the node for a map with keys that are not strings: an array of key-value pairs."""

    def read(text: bytes) -> Entries:
        values = {}
        for at, raw in enumerate(_inside(_ITEMS, text, "an array of pairs")):
            pair = _inside(_ITEMS, bytes(raw), "a pair")
            if len(pair) != 2:
                raise Misfit("a key and a value", bytes(raw))
            try:
                values[key.slow(bytes(pair[0]))] = item.slow(bytes(pair[1]))
            except Misfit as misfit:
                misfit.path.insert(0, f"[{at}]")
                raise
            except TypeError:
                raise Misfit("a key that can be looked up", bytes(pair[0])) from None
        return values

    return slow_node(read)


def slow_node(slow: Slow) -> Node:
    """Values that are always parsed one by one in Python."""

    def column(texts: Column) -> NewColumn:
        return [slow(bytes(raw)) for raw in texts]

    return Node(msgspec.Raw, msgspec.Raw(b""), column, slow, lambda raw: slow(bytes(raw)), nullable=True)


def nullable(node: Node, *, required: bool, default: Value = None, omits: bool = False) -> Node:
    """Return the node with nulls and missing values allowed, read as *default*, or with both refused.

    Args:
        node: how values that are not null are read.
        required: whether there is to be a value.
        default: replacement of a null, if not None.
        omits: whether a required value may be missing all the same, which is read as None; null is refused.
    """
    inner = node.slow

    def slow(text: bytes) -> DynamicValue:
        if text and text != NULL:
            return inner(text)
        if required and (text or not omits):
            raise Misfit("a value", text)
        return default

    if node.strict is msgspec.Raw:
        return slow_node(slow)
    if required and not omits:
        return replace(node, slow=slow)
    column = node.column
    if default is not None:
        column = _or_default(column, default)
    checked = node.check
    check = None if checked is None else lambda value: None if value is None else checked(value)
    kind = node.kind if default is None else ""
    return Node(node.strict if required else node.strict | None, None, column, slow, check, kind, not required)


def _or_default(column: ConvertColumn | None, default: Value) -> ConvertColumn:
    def read(texts: Column) -> NewColumn:
        values = texts if column is None else column(texts)
        return [default if value is None else value for value in values]

    return read


def each(convert: Convert) -> Callable[[Column], NewColumn]:
    """Return a column of the results of *convert* for each value except nulls."""
    return lambda values: [None if value is None else convert(value) for value in values]


def _all(check: Convert | None) -> Convert | None:
    if check is None:
        return None

    def every(values: Iterable[DynamicValue]) -> None:
        for value in values:
            check(value)

    return every


def json_text(text: bytes) -> bytes:
    """Return the JSON text without surrounding white space.

    Raises:
        Misfit: it is no JSON.
    """
    return bytes(_inside(_WHOLE, text, "JSON"))


def _inside(read: Callable[[bytes], _Read], text: bytes, expected: str) -> _Read:
    try:
        return read(text)
    except (ValueError, RecursionError):
        raise Misfit(expected, text) from None
