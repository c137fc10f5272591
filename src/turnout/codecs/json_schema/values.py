"""JSON values of JsonSchemaData: unions as the value alone, and maps with other keys as lists of key and value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET

from turnout.codecs.json_forms import Form, wire_form
from turnout.codecs.json_leaf_readers import wire_leaf
from turnout.codecs.json_reading import Reader
from turnout.codecs.json_schema.branches import Branches, UnionReader, has_entries, is_union
from turnout.codecs.nodes import Misfit, Node, Slow, each, json_of, slow_node
from turnout.records import Schema, Struct
from turnout.records.types import Column, DynamicValue, Entries, NewColumn

_NAMESPACE: Final = "io.confluent.connect.json"
ENUM: Final = f"{_NAMESPACE}.Enum"
NAMESPACE: Final = _NAMESPACE

_INTEGERS: Final = frozenset(("int8", "int16", "int32", "int64"))
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_entry = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def reader_of(schema: Schema, branches: Branches) -> Reader | UnionReader:
    """Return the reader of values of a schema.

    Raises:
        ValueError: the schema is not one.
    """
    if is_union(schema):
        return UnionReader(schema, branches, partial(reader_of, branches=branches))
    return Reader.of(schema, _leaf, partial(_composite, branches))


def form_of(schema: Schema | None, *, numeric: bool) -> Form:
    """Return how values of a schema are written."""
    return wire_form(schema, defaults=True, numeric=numeric, composite=_composite_form)


def field_form_of(schema: Schema | None, *, numeric: bool) -> Form:
    """Return how a field of an object is written: one that may be absent is omitted where it has no value."""
    return _omitting(schema, form_of(schema, numeric=numeric))


def _omitting(schema: Schema | None, form: Form) -> Form:
    if schema is None or not schema.omissible:
        return form
    convert = form.column

    def column(values: Column) -> Column:
        if None not in values:
            return values if convert is None else convert(values)
        present = [value for value in values if value is not None]
        converted = iter(present if convert is None or not present else convert(present))
        return [UNSET if value is None else next(converted) for value in values]

    return Form(column, form.free, form.whole)


def _leaf(schema: Schema, digits: int) -> Node:
    """Read a primitive value; other than JsonConverter's, whole numbers may have a fraction of zero."""
    node = wire_leaf(schema, digits)
    if schema.type in _INTEGERS:
        return replace(node, slow=_whole(node.slow))
    if schema.type == "string":
        return replace(node, slow=_text)
    return node


def _whole(read: Slow) -> Slow:
    def slow(text: bytes) -> DynamicValue:
        try:
            number = json_of(text)
        except (ValueError, RecursionError):
            number = None
        if type(number) is float and number.is_integer():
            return read(str(int(number)).encode())
        return read(text)

    return slow


def _text(text: bytes) -> str:
    if text[:1] != b'"':
        raise Misfit("a text", text)
    try:
        return str(json_of(text))
    except ValueError:
        raise Misfit("a text", text) from None


def _composite(branches: Branches, schema: Schema, inner: Callable[[Schema], Node]) -> Node | None:
    if is_union(schema):
        return slow_node(_union(branches, schema, inner))
    if has_entries(schema):
        assert schema.keys is not None
        if schema.values is None:
            raise ValueError("expected the schema of the map's elements, found none")
        return slow_node(_entries(inner(schema.keys), inner(schema.values)))
    return None


def _union(branches: Branches, schema: Schema, inner: Callable[[Schema], Node]) -> Slow:
    members = [(field.name, inner(field.schema)) for field in schema.fields]
    absent = dict.fromkeys(name for name, _ in members)

    def read(text: bytes) -> Entries:
        try:
            value = json_of(text)
        except (ValueError, RecursionError):
            raise Misfit("JSON", text) from None
        branch = branches.choose(schema, value)
        if branch is None:
            raise Misfit("a value of one of the schemas of oneOf", text)
        name, node = members[branch]
        return {**absent, name: node.slow(text)}

    return read


def _entries(key: Node, item: Node) -> Slow:
    def read(text: bytes) -> Entries:
        values = {}
        try:
            entries = [_entry(raw) for raw in _items(text)]
        except (ValueError, RecursionError):
            raise Misfit("a list of objects with key and value", text) from None
        for at, entry in enumerate(entries):
            if entry.keys() != {"key", "value"}:
                raise Misfit("a list of objects with key and value", text)
            try:
                values[key.slow(bytes(entry["key"]))] = item.slow(bytes(entry["value"]))
            except Misfit as misfit:
                misfit.path.insert(0, f"[{at}]")
                raise
            except TypeError:
                raise Misfit("a key that can be looked up", bytes(entry["key"])) from None
        return values

    return read


def _composite_form(schema: Schema, form: Callable[[Schema | None], Form]) -> Form | None:
    if is_union(schema):
        members = {field.name: form(field.schema) for field in schema.fields}
        return Form(each(partial(_chosen, members)), any(member.free for member in members.values()), whole=True)
    if schema.type == "struct":
        fields = {field.name: _omitting(field.schema, form(field.schema)) for field in schema.fields}
        return Form(each(partial(_object, fields)), any(field.free for field in fields.values()))
    if has_entries(schema):
        keys, items = form(schema.keys), form(schema.values)
        return Form(each(partial(_as_list, keys, items)), items.free)
    return None


def _object(fields: dict[str, Form], value: DynamicValue) -> Entries:
    """Return the fields of a struct that are not omitted."""
    values = value.fields if isinstance(value, Struct) else value
    found = {name: _converted(form, [values.get(name)])[0] for name, form in fields.items()}
    return {name: item for name, item in found.items() if item is not UNSET}


def _chosen(members: dict[str, Form], value: DynamicValue) -> DynamicValue:
    """Return the first value of a union that is set."""
    fields = value.fields if isinstance(value, Struct) else value
    for name, form in members.items():
        if fields.get(name) is not None:
            return _converted(form, [fields[name]])[0]
    return None


def _as_list(keys: Form, items: Form, value: Entries) -> NewColumn:
    names, values = _converted(keys, list(value)), _converted(items, list(value.values()))
    return [{"key": name, "value": item} for name, item in zip(names, values, strict=True)]


def _converted(form: Form, values: NewColumn) -> NewColumn:
    return values if form.column is None else list(form.column(values))
