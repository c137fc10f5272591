"""Paths into nested fields (KIP-821) and elements of arrays, as conditions and transforms name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from turnout.base.multivalued import KINDS, PRESENCE_KINDS, Texts, split_kind, texts_or_none
from turnout.base.terminal import did_you_mean
from turnout.records.block import Block
from turnout.records.schema import ANY, Moment, Schema, Struct
from turnout.records.text import json_text, kind_of_type, text_of
from turnout.records.types import Column, DynamicValue, NewColumn, Value

_CLOSING = re.compile(r"`(?=\.|$)")
"""Backticks in a name that would close it."""

_AFTER_QUOTED = re.compile(r"`((?:\[\])+)(?=\.|$)")
"""Brackets behind a name in backticks."""

EACH: Final = "[]"
"""Step to each element of an array; it is this object, as a field may have the same name."""


class PathError(ValueError):
    """Raised when a backtick in a path is never closed."""


def parse_path(text: str, version: str = "V2") -> tuple[str, ...]:
    """Return the steps of a field path; V1 takes the whole text as one name.

    A step that begins with a backtick runs to the first backtick that is followed by a dot or ends the text, so
    that names may have dots in them. A backslash before such a backtick makes it an ordinary character.

    Raises:
        PathError: when the closing backtick is missing.
    """
    if version.upper() == "V1":
        return (text,)
    if not text:
        return ()
    steps: list[str] = []
    at = 0
    while at <= len(text):
        if text.startswith("`", at):
            step, at = _quoted(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            step, at = text[at:end], end + 1
        steps.append(step)
    return tuple(steps)


def parse_elements(text: str) -> tuple[str, ...]:
    """Return the steps of a path in which ``name[]`` denotes each element of the array *name*: a step and `EACH`.

    Between backticks brackets are part of the name.

    Raises:
        PathError: when the closing backtick is missing.

    >>> parse_elements("value.items[].sku"), parse_elements("value.`items[]`")
    (('value', 'items', '[]', 'sku'), ('value', 'items[]'))
    """
    text = _AFTER_QUOTED.sub(r"`.\1", text)
    steps: list[str] = []
    at = 0
    while at <= len(text):
        if text.startswith("`", at):
            step, at = _quoted(text, at)
            steps.append(step)
            continue
        end = text.find(".", at)
        end = len(text) if end < 0 else end
        name = text[at:end]
        while name.endswith("[]"):
            name = name[:-2]
        count = (end - at - len(name)) // 2
        steps += [*([name] if name or not count else []), *[EACH] * count]
        at = end + 1
    return tuple(steps)


def has_elements(steps: Iterable[str]) -> bool:
    """Return True if a path leads into the elements of an array.

    >>> has_elements(parse_elements("value.items[].sku")), has_elements(parse_elements("value.`[]`"))
    (True, False)
    """
    return any(step is EACH for step in steps)


PREFIX: Final = ".*"
"""End of a listed path that denotes all paths below."""


def is_prefix(path: str) -> bool:
    """Return True if a listed path is a prefix, and denotes all paths below.

    >>> is_prefix("value.detail.*"), is_prefix("value.detail"), is_prefix("value.`*`")
    (True, False, False)
    """
    return path.endswith(PREFIX)


def listed_path(paths: Mapping[str, str], name: str) -> str | None:
    """Return the path that a route lists for a metadata key: its own, or one below a prefix; None without any.

    Of several prefixes it is the one with the longest name. The parts of a record's address have no prefix. A key that
    ends with a kind has the path of the key without it, if that has none of its own.

    >>> paths = {"total": "value.total", "*": "value.detail.*", "o.*": "value.order.*"}
    >>> [listed_path(paths, name) for name in ("total", "city", "lines[].sku", "o.city", "topic")]
    ['value.total', 'value.detail.city', 'value.detail.lines[].sku', 'value.order.city', None]
    >>> [listed_path(paths, name) for name in ("total:number", "city:text", "key:text")]
    ['value.total:number', 'value.detail.city:text', 'key:text']
    """
    own = paths.get(name)
    if own is not None and not is_prefix(own):
        return own
    base, kind = split_kind(name)
    if kind:
        own = paths.get(base, base if base in ADDRESS else None)
        if own is not None and not is_prefix(own) and not split_kind(own)[1]:
            return f"{own}:{kind}"
    if name in ADDRESS:
        return None
    prefixes = [
        (listed[:-1], path)
        for listed, path in paths.items()
        if is_prefix(path) and name.startswith(listed[:-1]) and len(name) >= len(listed)
    ]
    if not prefixes:
        return None
    before, path = max(prefixes, key=lambda prefix: len(prefix[0]))
    return path[:-1] + name[len(before) :]


class ListedPath(NamedTuple):
    """Path that a route lists.

    Attributes:
        root: ``value``, ``key``, or a part of the record's address.
        steps: those inside, with `EACH` for each element of an array.
        kind: kind of the values that count, one of `turnout.base.multivalued.KINDS`; empty for all.
    """

    root: str
    steps: tuple[str, ...]
    kind: str = ""

    @classmethod
    def of(cls, path: str) -> ListedPath:
        """Parse a path that is no prefix.

        Raises:
            PathError: when a closing backtick is missing.

        >>> ListedPath.of("value.total:number")
        ListedPath(root='value', steps=('total',), kind='number')
        >>> ListedPath.of("value.`total:number`")
        ListedPath(root='value', steps=('total:number',), kind='')
        """
        path, kind = split_kind(path)
        root, *steps = parse_elements(path)
        return cls(root, tuple(steps), kind)

    @property
    def text(self) -> str:
        """The path as text, every name in backticks.

        >>> ListedPath.of("value.items[].sku:text").text
        '`value`.`items`[].`sku`:text'
        """
        text = ""
        for step in (self.root, *self.steps):
            escaped = _CLOSING.sub(r"\\`", step)
            text += EACH if step is EACH else f".`{escaped}`" if text else f"`{escaped}`"
        return f"{text}:{self.kind}" if self.kind else text


ADDRESS: Final = frozenset({"topic", "subject", "key"})
"""Metadata keys of every record, whatever prefixes are listed."""


def kind_problem(path: str) -> str | None:
    """Return the reason that the end of a listed path, behind a colon, is no kind; None if it is one, or there is none.

    >>> print(kind_problem("value.dc:title"))  # doctest: +NORMALIZE_WHITESPACE
    'title' is no kind of values: there are boolean, json, null, number, scalar, text.
    A field that is called so is written in backticks:
    value.`dc:title`
    >>> kind_problem("value.`total:numbr`"), kind_problem("value.total:number")
    (None, None)
    """
    rest, kind = split_kind(path)
    if kind:
        if is_prefix(rest):
            return f"a prefix has no kind: keys below it end with one, as in {rest[:-2]}.total:{kind}"
        return None
    before, dot, last = path.rpartition(".")
    name, colon, wrong = last.rpartition(":")
    if not colon or path.endswith(("`", "[]")):
        return None
    guess = did_you_mean(wrong, KINDS)
    return (
        f"{wrong!r} is no kind of values: there are {', '.join(KINDS)}{guess or '.'} A field that is called so is "
        f"written in backticks: {before}{dot}`{name.strip('`')}:{wrong}`"
    )


def _quoted(text: str, opened: int) -> tuple[str, int]:
    """Return the step that opens with a backtick at *opened*, and where the next step starts."""
    step: list[str] = []
    at = opened + 1
    while at < len(text):
        closes = text[at] == "`" and (at + 1 == len(text) or text[at + 1] == ".")
        if not closes:
            step.append(text[at])
            at += 1
            continue
        escaped = at > opened + 1 and text[at - 1] == "\\"
        if not escaped:
            return "".join(step), at + 2
        if at + 1 == len(text):
            break
        step[-1] = "`"
        at += 1
    raise PathError(f"the backtick opened at position {opened} of {text!r} is never closed")


_REPEATING = {int, bool, bytes, Moment}
"""Types whose equal values have equal texts, unlike 0.0 and -0.0, or 1.0 and 1.00 as decimals."""


def texts_at(blocks: Iterable[Block], steps: Sequence[str], count: int, kind: str = "") -> list[str | None]:
    """Return the text of each row's value at a path, in the form of `text_of`; None without a value.

    Nulls are seen as they are stored, without the defaults of their fields.

    Args:
        blocks: the keys or the values of a batch.
        steps: the path; without any the whole key or value is meant.
        count: how many rows the batch has.
        kind: values of another one are as null; empty for all.
    """
    if kind in PRESENCE_KINDS:
        return [None if texts is None else texts[0] for texts in _present_texts_at(blocks, steps, count, kind)]
    texts: list[str | None] = [None] * count
    for block in blocks:
        column = _texts(*_column(block, steps), kind)
        if len(column) == count:
            return column
        for row, text in zip(block.rows.tolist(), column, strict=True):
            texts[row] = text
    return texts


def element_texts_at(blocks: Iterable[Block], steps: Sequence[str], count: int, kind: str = "") -> list[Texts | None]:
    """Return the texts of each row's values at a path into the elements of arrays; None without a value.

    A value that is no array where one is expected counts as its only element; an array in an array stands for its own
    elements.

    Args:
        blocks: as for `texts_at`.
        steps: the path, with `EACH` among the steps.
        count: how many rows the batch has.
        kind: as for `texts_at`, of each element.
    """
    if kind in PRESENCE_KINDS:
        found = _present_texts_at(blocks, steps, count, kind)
        return [None if own is None else texts_or_none(own) for own in found]
    texts: list[Texts | None] = [None] * count
    first = next(index for index, step in enumerate(steps) if step is EACH)
    for block in blocks:
        schema, column = _column(block, steps[:first])
        owners: list[int] = list(range(len(column)))
        for step in steps[first:]:
            schema, column, owners = (
                _elements(schema, column, owners) if step is EACH else (*_inside(schema, column, step), owners)
            )
        of_rows: dict[int, list[str | None]] = {}
        for owner, text in zip(owners, _texts(schema, column, kind), strict=True):
            of_rows.setdefault(owner, []).append(text)
        rows = block.rows.tolist()
        for owner, own in of_rows.items():
            texts[rows[owner]] = texts_or_none(own)
    return texts


def _present_texts_at(blocks: Iterable[Block], steps: Sequence[str], count: int, kind: str) -> list[list[str] | None]:
    """Return the texts of each row's values at a path, of a kind that distinguishes null from a missing value.

    Fields of a struct that are null are missing: every record of a schema has them.
    """
    texts: list[list[str] | None] = [None] * count
    for block in blocks:
        schema, first = block.schema, 0
        if block.kind == "object" and steps and steps[0] is not EACH:
            inner = schema.field(steps[0]) if schema is not None else None
            values = block.columns.get(steps[0])
            is_absent = values is None or (schema is not None and inner is None)
            column: Column = () if is_absent or values is None else values
            drops_null, schema, first = schema is not None, inner, 1
        else:
            column = [None] * len(block) if block.kind == "null" else _whole_values(block)
            drops_null = False
        for row, value in zip(block.rows.tolist(), column, strict=False):
            if value is None and drops_null:
                continue
            found = [(value, schema)]
            for step in steps[first:]:
                found = list(_present_inside(found, step))
            own = [text for inner, of in found if (text := text_of_kind(inner, of, kind)) is not None]
            if own:
                texts[row] = own
    return texts


def _whole_values(block: Block) -> Column:
    return block.values if block.kind == "plain" else block.whole()


def _present_inside(
    found: Iterable[tuple[DynamicValue, Schema | None]], step: str
) -> Iterator[tuple[DynamicValue, Schema | None]]:
    """Yield the fields, or the elements, of values with their schemas; nothing for a value without one."""
    for value, schema in found:
        if isinstance(value, Struct):
            schema, value = value.schema, value.fields
        if step is EACH:
            yield from _flat_with_schema(value, schema)
        elif not isinstance(value, dict) or step not in value:
            continue
        elif schema is None or schema.type == ANY:
            yield value[step], None
        elif schema.type == "map":
            yield value[step], schema.values
        elif (field := schema.field(step)) is not None and value[step] is not None:
            yield value[step], field


def _flat_with_schema(value: DynamicValue, schema: Schema | None) -> Iterator[tuple[DynamicValue, Schema | None]]:
    if not isinstance(value, list | tuple):
        yield value, schema
        return
    while schema is not None and schema.type == "array":
        schema = schema.values
    yield from ((element, schema) for element in flat_elements(value))


def text_of_kind(value: DynamicValue, schema: Schema | None, kind: str) -> str | None:
    """Return the text of a value; None for one of another kind, and for null without a kind that has it.

    >>> [text_of_kind(value, None, "scalar") for value in ("a", None, [1])], text_of_kind("a", None, "json")
    (['a', 'null', None], '"a"')
    """
    if kind == "json":
        return json_text(value, schema)
    if value is None:
        return "null" if kind in PRESENCE_KINDS else None
    if kind == "scalar":
        return None if isinstance(value, dict | list | tuple | Struct) else text_of(value, schema)
    return text_of(value, schema) if not kind or kind_of_type(type(value)) == kind else None


def leaf_texts_at(blocks: Iterable[Block], steps: Sequence[str], count: int) -> list[list[str]]:
    """Return the texts of all values below a path that are neither objects nor arrays, row by row, in their order.

    Args:
        blocks: as for `texts_at`.
        steps: the path, without `EACH`.
        count: how many rows the batch has.
    """
    texts: list[list[str]] = [[] for _ in range(count)]
    for block in blocks:
        schema, column = _column(block, steps)
        for row, value in zip(block.rows.tolist(), column, strict=True):
            texts[row] = list(leaf_texts(value, schema))
    return texts


def leaf_texts(value: Value, schema: Schema | None = None) -> Iterator[str]:
    """Yield the text of each value inside, left to right; however deep they are, without recursion."""
    stack: list[tuple[DynamicValue, Schema | None]] = [(value, schema)]
    while stack:
        inner, own = stack.pop()
        if isinstance(inner, Struct):
            stack.append((inner.fields, inner.schema))
        elif isinstance(inner, dict):
            stack += [(item, _schema_inside(own, name)) for name, item in reversed(inner.items())]
        elif isinstance(inner, list | tuple):
            element = None if own is None or own.type == ANY else own.values
            stack += [(item, element) for item in reversed(inner)]
        elif (text := text_of(inner, own)) is not None:
            yield text


def _schema_inside(schema: Schema | None, name: DynamicValue) -> Schema | None:
    if schema is None or schema.type == ANY:
        return None
    return schema.values if schema.type == "map" else schema.field(name)


def _elements(schema: Schema | None, column: Column, owners: Sequence[int]) -> tuple[Schema | None, Column, list[int]]:
    """Return the elements of each array of a column, with their schema and the owner of each."""
    inner = schema
    while inner is not None and inner.type == "array":
        inner = inner.values
    elements: NewColumn = []
    of_elements: list[int] = []
    for value, owner in zip(column, owners, strict=True):
        own = _elements_of(value)
        elements += own
        of_elements += [owner] * len(own)
    return inner, elements, of_elements


def _elements_of(value: Value) -> Column:
    if value is None:
        return ()
    if isinstance(value, _Typed) and isinstance(value.value, list | tuple):
        inner = value.schema.values if value.schema is not None else None
        elements = [None if element is None else _Typed(element, inner) for element in value.value]
        return [one for element in elements for one in _elements_of(cast("Value", element))]
    return flat_elements(value) if isinstance(value, list | tuple) else (value,)


def flat_elements(values: Sequence[DynamicValue]) -> Sequence[DynamicValue]:
    """Return the elements of an array, with those of each array in it in its place; the array itself if it has none.

    >>> flat_elements([1, [2, [3]], []])
    [1, 2, 3]
    """
    if _ARRAYS.isdisjoint(map(type, values)):
        return values
    flat: list[DynamicValue] = []
    stack = [iter(values)]
    while stack:
        for value in stack[-1]:
            if type(value) in _ARRAYS:
                stack.append(iter(value))
                break
            flat.append(value)
        else:
            stack.pop()
    return flat


_ARRAYS: Final = frozenset({list, tuple})


def _column(block: Block, steps: Sequence[str]) -> tuple[Schema | None, Column]:
    """Return the values at the path in a block, with their schema."""
    schema = block.schema
    if block.kind == "null":
        return schema, [None] * len(block)
    if not steps:
        return schema, block.values if block.kind == "plain" else block.whole()
    first, *others = steps
    if block.kind == "object":
        schema = None if schema is None else schema.field(first)
        column = entry_at(block.columns, first)
        if column is None:
            return schema, [None] * len(block)
    elif block.kind == "mixed":
        column = block.mixed_objects.column(first)
    else:
        schema, column = _inside(schema, block.values, first)
    for step in others:
        schema, column = _inside(schema, column, step)
    return schema, column


def _inside(schema: Schema | None, column: Column, step: str) -> tuple[Schema | None, Column]:
    """Return the field, or the entry of a map, of each value of a column; None where a value has none."""
    if schema is None or schema.type == ANY:
        return None, [_entry(value, step) for value in column]
    if schema.type == "map":
        return schema.values, [entry_at(value, step, schema.keys) if type(value) is dict else None for value in column]
    inner = schema.field(step)
    if inner is None:
        return None, [None] * len(column)
    return inner, [value.get(step) if type(value) is dict else None for value in column]


def _entry(value: Value, step: str) -> DynamicValue:
    if type(value) is dict:
        return entry_at(value, step)
    if isinstance(value, Struct):
        return _Typed.of(value, step)
    return value.member(step) if isinstance(value, _Typed) else None


def entry_at(entries: Mapping[DynamicValue, DynamicValue], step: str, keys: Schema | None = None) -> DynamicValue:
    """Return the entry of a map under a text; a key that is no text is found by its own."""
    found = entries.get(step)
    if found is not None or (keys is not None and keys.type == "string"):
        return found
    for name, item in entries.items():
        if type(name) is not str and text_of(name, keys) == step:
            return item
    return found


class _Typed:
    """Value of a struct inside schemaless data, with its own schema."""

    __slots__ = ("schema", "value")

    def __init__(self, value: Value, schema: Schema | None) -> None:
        self.value = value
        self.schema = schema

    @classmethod
    def of(cls, struct: Struct, step: str) -> _Typed | None:
        return cls(struct.fields, struct.schema).member(step)

    def member(self, step: str) -> _Typed | None:
        schema, column = _inside(self.schema, [self.value], step)
        return None if column[0] is None else _Typed(column[0], schema)


def _texts(schema: Schema | None, column: Column, kind: str = "") -> list[str | None]:
    if kind:
        column = [value if _kind_of(value) == kind else None for value in column]
    kinds = set(map(type, column))
    kinds.discard(type(None))
    if kinds <= {str}:
        return list(column)
    if len(kinds) == 1 and kinds <= _REPEATING:
        texts = {value: text_of(value, schema) for value in set(column)}
        return [texts[value] for value in column]
    return [_seen_text(value, schema) for value in column]


def _kind_of(value: Value) -> str:
    return kind_of_type(type(value.value if isinstance(value, _Typed) else value))


def _seen_text(value: Value, schema: Schema | None) -> str | None:
    if type(value) is str:
        return value
    return text_of(value.value, value.schema) if isinstance(value, _Typed) else text_of(value, schema)
