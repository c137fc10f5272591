"""Blocks as JSON texts: what needs another form is converted by column, and each value is written once."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Final, TypeAlias

import msgspec

from turnout.codecs.json_forms import Form, builtin_of, hook, json_form
from turnout.codecs.moments import timestamps_as_text
from turnout.codecs.nodes import field_names
from turnout.errors import RecordError
from turnout.records import BigInt, Block, Int8, Int16, Int32, Moment, Schema, Struct
from turnout.records.text import text_of
from turnout.records.types import Column, Columns, ConvertColumn, DynamicValue, Value
from turnout.untrusted import JsonObject

Written: TypeAlias = tuple[list[bytes | None], dict[int, RecordError]]
"""The text of each value, and the errors of the others by index."""

_MAX_DICT_VALUES: Final = 8
"""This many values are written as dicts: a class for their names would cost more than it gives."""

_CHUNK: Final = 200
"""Values that are written together: they should fit into the processor's cache."""

_values = dict.values
_encoder = msgspec.json.Encoder(enc_hook=hook, decimal_format="number")
_encode = _encoder.encode
_encode_lines = _encoder.encode_lines


def encode_json(block: Block) -> Written:
    """Return the values as JSON without their schema: every field, nulls too; a null itself is a tombstone."""
    if block.kind == "null":
        return [None] * len(block), {}
    return texts_of(block, json_form)


def texts_of(
    block: Block,
    form_of: Callable[[Schema | None], Form],
    field_form_of: Callable[[Schema | None], Form] | None = None,
) -> Written:
    """Return the JSON texts of values that are no nulls.

    Args:
        block: of objects or plain values.
        form_of: how the values of a schema are written in JSON.
        field_form_of: the same of an object's fields, if it differs; a field that becomes `msgspec.UNSET` is omitted.
    """
    errors: dict[int, RecordError] = {}
    if block.kind == "object" and block.schema is not None and form_of(block.schema).whole:
        block = Block(block.rows, block.schema, values=block.whole())
    members = block.members
    if members is not None and (block.kind == "mixed" or _has_text_names(members)):
        return _member_texts(members, errors), errors
    if block.kind == "plain":
        form = form_of(block.schema)
        values = _formed(block.values, form, errors)
        texts = _texts(values, errors)
        if form.free:
            _odd_again(texts, {None: values}, values.__getitem__, errors)
        return texts, errors
    forms = _forms_of(block, field_form_of or form_of)
    columns = {name: _formed(column, forms[name], errors) for name, column in block.columns.items()}
    texts = _objects(len(block), columns, errors)
    free = {name: column for name, column in columns.items() if forms[name].free}
    if free:
        names = tuple(columns)
        _odd_again(texts, free, lambda at: _object(names, [column[at] for column in columns.values()]), errors)
    return texts, errors


def _has_text_names(members: Sequence[Mapping[object, object]]) -> bool:
    """Return True if the first of some objects of one shape has only names that are texts."""
    return all(type(name) is str for name in members[0])


def _member_texts(members: Sequence[JsonObject], errors: dict[int, RecordError]) -> list[bytes | None]:
    """Return the JSON texts of schemaless objects that were never put into columns."""
    try:
        texts = _lines(iter(members))
    except _UNWRITABLE:
        texts = _texts(members, errors)
    if not _is_plain(list(chain.from_iterable(map(_values, members)))):
        for index, member in enumerate(members):
            if _is_odd(member):
                texts[index] = _slowly(index, member, errors)
    return texts


def _forms_of(block: Block, form_of: Callable[[Schema | None], Form]) -> Mapping[Hashable, Form]:
    if block.schema is None:
        return dict.fromkeys(block.columns, form_of(None))
    return {field.name: form_of(field.schema) for field in block.schema.fields}


def _formed(column: Column, form: Form, errors: dict[int, RecordError]) -> Column:
    """Return the column as its form has it; null where a value has none."""
    if form.column is None:
        return _with_moments_as_text(column) if form.free else column
    try:
        return form.column(column)
    except (RecordError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return [_formed_alone(form.column, index, value, errors) for index, value in enumerate(column)]


def _with_moments_as_text(column: Column) -> Column:
    """Return a column of nothing but moments and nulls as texts, which value by value takes ten times as long."""
    first = next((value for value in column if value is not None), None)
    if type(first) is not Moment or not _MOMENTS.issuperset(map(type, column)):
        return column
    try:
        return timestamps_as_text(column)
    except (ValueError, ArithmeticError):
        return column


def _formed_alone(convert: ConvertColumn, index: int, value: Value, errors: dict[int, RecordError]) -> DynamicValue:
    try:
        return convert([value])[0]
    except RecordError as error:
        errors.setdefault(index, error)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as failure:
        errors.setdefault(index, RecordError(f"the value does not fit its schema: {failure}"))
    return None


def _objects(count: int, columns: Columns, errors: dict[int, RecordError]) -> list[bytes | None]:
    names = tuple(name if type(name) is str else str(text_of(name)) for name in columns)
    if not names:
        return [b"{}"] * count
    kind = _outgoing(names) if count > _MAX_DICT_VALUES else None
    if kind is not None:
        try:
            return _lines(map(kind, *columns.values()))
        except _UNWRITABLE:
            pass
    return _texts([_object(names, row) for row in zip(*columns.values(), strict=True)], errors)


def _object(names: Sequence[str], row: Column) -> JsonObject:
    """Return the object of some values by name, without those that are omitted."""
    return {name: value for name, value in zip(names, row, strict=True) if value is not msgspec.UNSET}


def _lines(values: Iterator[msgspec.Struct] | Iterator[JsonObject]) -> list[bytes | None]:
    """Return the text of each value; some at a time are written into one buffer, in which no text has a line's end."""
    texts: list[bytes | None] = []
    while chunk := list(islice(values, _CHUNK)):
        texts += _encode_lines(chunk).split(b"\n")
        texts.pop()  # The last line ends too.
    return texts


@lru_cache(maxsize=256)
def _outgoing(names: tuple[str, ...]) -> Callable[..., msgspec.Struct] | None:
    """Return a struct that is written as an object with these names; None where msgspec refuses one."""
    renames = field_names(names)
    if renames is None or len(set(names)) < len(names):
        return None
    own, rename = renames
    return msgspec.defstruct("Written", own, rename=rename, gc=False)


_PLAIN_TYPES: Final = frozenset({str, int, bool, type(None), Int8, Int16, Int32, BigInt, Moment, bytes})
"""Types of values that msgspec writes as they should be written, whatever they are."""

_MOMENTS: Final = frozenset({Moment, type(None)})

_UNWRITABLE = (TypeError, ValueError, RecursionError, OverflowError)


def _texts(values: Column, errors: dict[int, RecordError]) -> list[bytes | None]:
    """Encode each value separately; values that msgspec cannot write use the Python fallback."""
    texts: list[bytes | None] = []
    for index, value in enumerate(values):
        try:
            texts.append(_encode(value))
        except _UNWRITABLE:
            texts.append(_slowly(index, value, errors))
    return texts


def _slowly(index: int, value: Value, errors: dict[int, RecordError]) -> bytes | None:
    try:
        return _encode(builtin_of(value))
    except _UNWRITABLE as failure:
        errors.setdefault(index, RecordError(f"the value cannot be written as JSON: {failure}"))
        return None


def _odd_again(
    texts: list[bytes | None],
    columns: Columns,
    value: Callable[[int], Value],
    errors: dict[int, RecordError],
) -> None:
    """Rewrite values that msgspec writes in the wrong form: infinities, and structs in a map."""
    odd: set[int] = set()
    for column in columns.values():
        if not _is_plain(column):
            odd.update(index for index, item in enumerate(column) if _is_odd(item))
    for index in sorted(odd):
        texts[index] = _slowly(index, value(index), errors)


def _is_plain(column: Column) -> bool:
    """Return True if the types of a column show that msgspec writes all of it correctly."""
    kinds = list(map(type, column))
    # Mostly all are of one type, which is counted in less time than a set takes.
    one = not kinds or kinds.count(kinds[0]) == len(kinds)
    different = set(kinds[:1] if one else kinds)
    if float not in different:
        return _PLAIN_TYPES.issuperset(different)
    different.discard(float)
    return _PLAIN_TYPES.issuperset(different) and all(
        map(math.isfinite, column if one else [item for item in column if type(item) is float])
    )


def _is_odd(value: DynamicValue) -> bool:
    kind = type(value)
    if kind is float:
        return not math.isfinite(value)
    if kind is dict:
        return any(map(_is_odd, value.values()))
    if kind is list or kind is tuple:
        return any(map(_is_odd, value))
    return kind is Struct
