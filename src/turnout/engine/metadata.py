"""Metadata for conditions, as columns: topic, key, headers by name, and the listed value paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias

from turnout.base.multivalued import (
    ANY_KEY,
    Expanded,
    Texts,
    is_plain_key,
    leaf_key,
    metadata_key,
    metadata_of,
    split_kind,
    texts_or_none,
)
from turnout.base.multivalued import Metadata as Texted
from turnout.base.terminal import first_names, nearest
from turnout.conditions import Condition
from turnout.conditions import leaves as leaves_of
from turnout.conditions.text import leftovers
from turnout.records import Batch, Block, Positions, Schema
from turnout.records.field_paths import (
    ADDRESS,
    PREFIX,
    ListedPath,
    PathError,
    element_texts_at,
    entry_at,
    has_elements,
    is_prefix,
    leaf_texts_at,
    listed_path,
    texts_at,
)
from turnout.records.text import iso_of, json_text, kind_of_type, text_of
from turnout.subscriptions.index import Column

if TYPE_CHECKING:
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.index import Index

_TOPIC = ("topic", "subject")

_REMEMBERED = 10_000
"""Maximum number of keys whose readers are cached."""

_Read: TypeAlias = Callable[[Batch, Positions], Column]
"""Reads the column of one key."""


def doubtful_leaves(subscriptions: Iterable[Subscription], paths: Mapping[str, str]) -> list[str]:
    """Return a sentence for each key or pattern that is probably not meant as it is written, with its subscriptions.

    A key that the route does not list, though it lists a similar one, may be a header; what begins like a comparison or
    a negation of a search engine's query language may be a text.

    Args:
        subscriptions: their conditions are examined.
        paths: path by the name that the route lists.
    """
    found: dict[str, list[str]] = {}
    guesses: dict[str, str | None] = {}
    for subscription in subscriptions:
        for problem in dict.fromkeys(_doubts(subscription.condition, paths, guesses)):
            found.setdefault(problem, []).append(subscription.id)
    return [f"{problem}, in: {first_names(ids)}" for problem, ids in sorted(found.items())]


def _doubts(condition: Condition, paths: Mapping[str, str], guesses: dict[str, str | None]) -> Iterator[str]:
    for leaf in leaves_of(condition):
        yield from leftovers(leaf)
        for key in leaf.keys:
            name = split_kind(metadata_key(key))[0]
            if key == ANY_KEY or name in ADDRESS:
                continue
            if name not in guesses:
                guesses[name] = None if listed_path(paths, name) is not None else nearest(name, [*paths, *ADDRESS])
            if (guess := guesses[name]) is not None:
                absent = "Without such a header it is absent"
                yield f'{name}: the route lists no such name; did you mean "{guess}"? {absent}'


class Metadata:
    """Reads the metadata that conditions use.

    A listed path has precedence, then ``topic`` (alias ``subject``) and ``key``, then a path below a prefix, then the
    last header of that name. Under `ANY_KEY` are the values of all of them.

    Args:
        paths: name → path, as in ``{"origin": "value.origin"}``, or prefix → prefix, as in ``{"*": "value.detail.*"}``.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths
        self._listed = {name: ListedPath.of(path) for name, path in paths.items() if not is_prefix(path)}
        self._has_prefixes = len(self._listed) < len(paths)
        self._reader = lru_cache(maxsize=_REMEMBERED)(self._reader_of)

    def columns(self, batch: Batch, rows: Positions, keys: Sequence[str]) -> dict[str, Column]:
        """Return a column for each key, with an entry for each of *rows*, which are all alive, in order."""
        return {key: self._column(batch, rows, key) for key in keys}

    def _column(self, batch: Batch, rows: Positions, key: str) -> Column:
        return self._reader(key)(batch, rows)

    def _reader_of(self, key: str) -> _Read:
        """Return the function that reads the column of a key."""
        if key == ANY_KEY:
            return self._any
        name = metadata_key(key)
        path = self._listed.get(name) or self._derived_path(name)
        if path is not None:
            return _Inside(path) if path.root in ("value", "key") else partial(_at, path)
        if name in _TOPIC:
            return _topics
        if name == "key":
            return _Inside(ListedPath("key", ()))
        return partial(_header, name)

    def _derived_path(self, name: str) -> ListedPath | None:
        """Return the path below a listed prefix that a name stands for, or that of a name with a kind."""
        derives = self._has_prefixes or split_kind(name)[1]
        path = listed_path(self._paths, name) if derives else None
        if path is None:
            return None
        try:
            return ListedPath.of(path)
        except PathError:
            return _NOWHERE

    def _any(self, batch: Batch, rows: Positions) -> Column:
        """Return the column of all values of each row, the first of them where there are too many."""
        texts: list[list[str | None]] = [[] for _ in range(len(rows))]
        names = dict.fromkeys([*map(leaf_key, self._listed), "topic", "key"])
        for column in (self._column(batch, rows, name) for name in names):
            for own, value in zip(texts, column.values, strict=True):
                if isinstance(value, tuple):
                    own += value
                elif value is not None:
                    own.append(value if column.text is None else column.text(value))
        for path in filter(is_prefix, self._paths.values()):
            root, steps, _ = ListedPath.of(path.removesuffix(PREFIX))
            side = {"key": batch.key, "value": batch.value}.get(root, [])
            below = leaf_texts_at(side, steps, len(batch))
            for own, leaves in zip(texts, batch.by_row(below, rows), strict=True):
                own += leaves
        headers: dict[int, dict[str, str | None]] = {}
        for row, name, text in batch.headers.texts_where(self._is_header, rows):
            headers.setdefault(row, {})[name] = text
        for own, row in zip(texts, rows.tolist(), strict=True):
            own += headers.get(row, {}).values()
        return Column(list(map(texts_or_none, texts)), several=True)

    def _is_header(self, name: str) -> bool:
        """Return True if conditions see a header of that name."""
        return name not in ADDRESS and listed_path(self._paths, name) is None


def _header(name: str, batch: Batch, rows: Positions) -> Column:
    return Column(batch.headers.last_column(name, rows))


def _topics(batch: Batch, rows: Positions) -> Column:
    return Column(batch.by_row(batch.topics, rows))


_NOWHERE = ListedPath("", ())
"""Path that leads to nothing."""

_KINDS = {"topic": "text", "subject": "text", "partition": "number", "offset": "number"}
"""Kinds of the parts of a record's address."""


def _at(path: ListedPath, batch: Batch, rows: Positions) -> Column:
    if path.kind == "json":
        column = _at(path._replace(kind=""), batch, rows)
        texts = (value if value is None or column.text is None else column.text(value) for value in column.values)
        return Column([None if text is None else json_text(text) for text in texts])
    match path.root:
        case part if path.kind not in ("", "scalar", _KINDS.get(part)):
            return Column([None] * len(rows))
        case "topic" | "subject":
            return _topics(batch, rows)
        case "partition":
            return Column(batch.by_row(batch.partitions, rows), text_of)
        case "offset":
            return Column(batch.by_row(batch.offsets, rows) if batch.offsets else [None] * len(rows), text_of)
        case "timestamp":
            return Column(batch.by_row(batch.timestamps, rows), iso_of)
    return Column([None] * len(rows))


class _Inside:
    """Reader of the column at a path into keys or values.

    Where all records have one schema or shape, and the field one type, its values are handed on as they are: the index
    makes a text of each different one, once.
    """

    def __init__(self, path: ListedPath) -> None:
        self._is_key = path.root == "key"
        self._steps, self._kind = path.steps, path.kind
        self._has_elements = has_elements(path.steps)
        # Batch by batch, a schema is mostly the same object.
        self._latest: tuple[Schema | None, type | None] = (None, None)

    def __call__(self, batch: Batch, rows: Positions) -> Column:
        side, steps, kind = batch.key if self._is_key else batch.value, self._steps, self._kind
        if self._has_elements:
            return Column(batch.by_row(element_texts_at(side, steps, len(batch), kind), rows), several=True)
        if len(side) == 1 and len(steps) == 1 and side[0].kind == "object" and len(side[0]) == len(rows):
            column = entry_at(side[0].columns, steps[0])
            if column is None:
                return Column([None] * len(rows))
            one_type = self._type_of(side[0], column)
            if one_type is not None and (not kind or kind == kind_of_type(one_type)):
                return Column(column, None if one_type is str else text_of)
        return Column(batch.by_row(texts_at(side, steps, len(batch), kind), rows))

    def _type_of(self, block: Block, values: Sequence[object]) -> type | None:
        """Return the type of all values of a column, nulls aside, if equal values have equal texts; else None.

        Of floats that is not so (0.0 and -0.0), nor of several types (1 and True).
        """
        if block.schema is not None and block.checked:
            latest, known = self._latest
            if latest is not block.schema:
                schema = block.schema.field(self._steps[0])
                known = _TYPES.get(schema.type) if schema is not None and schema.logical is None else None
                self._latest = block.schema, known
            return known
        types = set(map(type, values)) - {type(None)}
        return types.pop() if len(types) == 1 and types <= {str, int} else None


_TYPES = {"string": str, "int8": int, "int16": int, "int32": int, "int64": int}


def texts_of(columns: Mapping[str, Column], number: int) -> Texted:
    """Return the metadata of one record, as a condition's reference reads it."""
    texts: dict[str, Texts] = {}
    for key, column in columns.items():
        value = column.values[number]
        text = value if value is None or column.text is None else column.text(value)
        if text is not None:
            texts[key] = text
    return metadata_of(texts) if all(map(is_plain_key, texts)) else Expanded(texts)


def record_times(batch: Batch, rows: Positions, index: Index) -> Sequence[int | None] | None:
    """Return the times of rows that an index needs: None unless some of its subscriptions expire."""
    return batch.by_row(batch.timestamps, rows) if index.expires else None
