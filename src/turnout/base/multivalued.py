"""Metadata of a message whose keys may have several values."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, TypeAlias, cast

MAX_VALUES: Final = 1_000
"""Maximum number of distinct values of a key: two keys with many values cost the product of those that subscriptions
name."""

ANY_KEY: Final = "*"
"""Key of leaves that test all values of a message."""

KINDS: Final = ("boolean", "json", "null", "number", "scalar", "text")
"""Kinds of values that a key's suffix selects, as in ``total:number``.

``scalar`` is anything but an object or an array, and ``json`` is any value as JSON.
"""

PRESENCE_KINDS: Final = frozenset({"json", "null", "scalar"})
"""Kinds that distinguish null, whose text is ``null``, from a missing value."""

_STARRED: Final = re.compile(r"\\*\*")
_ESCAPED: Final = re.compile(r"\\+\*")

Texts: TypeAlias = str | tuple[str, ...]
"""The text under a key; a tuple of two or more, each different, where it has several values."""

Metadata: TypeAlias = Mapping[str, Texts]


def split_kind(name: str) -> tuple[str, str]:
    """Split a key or a path into its name and its kind, which is empty if it has none.

    >>> split_kind("total:number"), split_kind("dc:title"), split_kind("total")
    (('total', 'number'), ('dc:title', ''), ('total', ''))
    """
    base, _, kind = name.rpartition(":")
    return (base, kind) if base and kind in KINDS else (name, "")


class Multivalued(dict[str, Texts]):
    """Metadata with several values of at least one key.

    >>> Multivalued({"sku": ("A1", "B2"), "city": "Oulu"})["sku"]
    ('A1', 'B2')
    """


class Expanded(Multivalued):
    r"""Metadata by the keys of leaves: under `ANY_KEY` all values, and under ``\*`` those of the metadata key ``*``."""


def leaf_key(name: str) -> str:
    r"""Return the key of leaves for a metadata key: itself, but ``\*`` for one that is called ``*``.

    >>> leaf_key("city"), leaf_key("*"), leaf_key(r"\*")
    ('city', '\\*', '\\\\*')
    """
    return f"\\{name}" if name.endswith(ANY_KEY) and _STARRED.fullmatch(name) else name


def metadata_key(key: str) -> str:
    r"""Return the metadata key that a leaf with a key other than `ANY_KEY` tests; `leaf_key` is the inverse.

    >>> metadata_key("city"), metadata_key(r"\*")
    ('city', '*')
    """
    return key[1:] if key.endswith(ANY_KEY) and _ESCAPED.fullmatch(key) else key


def is_plain_key(key: str) -> bool:
    """Return True if a leaf's key is the metadata key that it tests."""
    return not key.endswith(ANY_KEY) or not _STARRED.fullmatch(key)


def seen_texts(metadata: Metadata, key: str) -> Texts | None:
    r"""Return a message's value for a leaf with this key; None for no value.

    >>> message = {"sku": ("A1", "B2"), "city": "Oulu", "*": "x"}
    >>> seen_texts(message, "sku"), seen_texts(message, "*"), seen_texts(message, r"\*"), seen_texts({}, "*")
    (('A1', 'B2'), ('A1', 'B2', 'Oulu', 'x'), 'x', None)
    """
    if not key.endswith(ANY_KEY) or isinstance(metadata, Expanded):
        return metadata.get(key)
    if key == ANY_KEY:
        is_single = set(map(type, metadata.values())) <= {str}
        return texts_or_none(cast("Mapping[str, str]", metadata).values() if is_single else values_of(metadata))
    return metadata.get(metadata_key(key))


def by_leaf_keys(metadata: Metadata, keys: Collection[str]) -> Metadata:
    """Return the metadata with the values of those *keys* that are not metadata keys; unchanged without any."""
    special = [key for key in keys if not is_plain_key(key)]
    if not special or isinstance(metadata, Expanded):
        return metadata
    texts_by_key = {key: seen_texts(metadata, key) for key in special}
    own = {key: texts for key, texts in metadata.items() if is_plain_key(key)}
    return Expanded(own | {key: texts for key, texts in texts_by_key.items() if texts is not None})


def texts_or_none(texts: Iterable[str | None]) -> Texts | None:
    """Return the first `MAX_VALUES` distinct texts; a single one as a plain text, None without any.

    >>> texts_or_none(["a", None, "b", "a"]), texts_or_none(["a", "a"]), texts_or_none([None])
    (('a', 'b'), 'a', None)
    """
    known = dict.fromkeys(texts)
    known.pop(None, None)
    distinct = cast("tuple[str, ...]", tuple(islice(known, MAX_VALUES)))
    return distinct if len(distinct) > 1 else distinct[0] if distinct else None


def metadata_of(texts: dict[str, Texts]) -> Metadata:
    """Return metadata as `Multivalued` where a key has several values."""
    return Multivalued(texts) if tuple in set(map(type, texts.values())) else texts


def values_of(metadata: Metadata) -> Iterator[str]:
    """Yield the values under all keys, in their order.

    >>> list(values_of({"sku": ("A1", "B2"), "city": "Oulu"}))
    ['A1', 'B2', 'Oulu']
    """
    return single_values(metadata.values())


def single_values(found: Iterable[Texts | None]) -> Iterator[str]:
    """Yield each value by itself, and nothing for None.

    >>> list(single_values([("A1", "B2"), None, "Oulu"]))
    ['A1', 'B2', 'Oulu']
    """
    return chain.from_iterable((texts,) if isinstance(texts, str) else texts or () for texts in found)


def values_at(metadata: Metadata, key: str) -> tuple[str, ...]:
    """Return the values that a leaf with this key sees; none where it is missing.

    >>> values_at({"sku": ("A1", "B2")}, "sku"), values_at({"sku": "A1"}, "sku"), values_at({}, "sku")
    (('A1', 'B2'), ('A1',), ())
    """
    texts = seen_texts(metadata, key)
    if texts is None:
        return ()
    return (texts,) if isinstance(texts, str) else texts


def single_texts(metadata: Metadata) -> dict[str, str]:
    """Return metadata with the first of several values.

    >>> single_texts({"sku": ("A1", "B2"), "city": "Oulu"})
    {'sku': 'A1', 'city': 'Oulu'}
    """
    return {key: texts if isinstance(texts, str) else texts[0] for key, texts in metadata.items()}


def readable_texts(metadata: Metadata) -> dict[str, str]:
    """Return metadata with one text under each key, for people to read; see `text_at`."""
    texts = ((key, text_of_texts(texts)) for key, texts in metadata.items())
    return {key: text for key, text in texts if text is not None}


def text_at(metadata: Metadata, key: str) -> str | None:
    """Return the text under a key for people to read: of several values, that of an array of JSON.

    >>> text_at({"sku": ("A1", "B2")}, "sku"), text_at({"sku": "A1"}, "sku"), text_at({}, "sku")
    ('["A1","B2"]', 'A1', None)
    """
    return text_of_texts(seen_texts(metadata, key))


def text_of_texts(texts: Texts | None) -> str | None:
    """Return one text for people to read; see `text_at`."""
    if texts is None or isinstance(texts, str):
        return texts
    return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
