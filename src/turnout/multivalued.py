"""Metadata of a message, of which keys may have several values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

MAX_VALUES: Final = 1_000
"""Most different values of a key: two keys with many values cost the product of those that subscriptions name."""

Texts: TypeAlias = str | tuple[str, ...]
"""The text under a key; a tuple of two or more, each different, where it has several values."""

Metadata: TypeAlias = Mapping[str, Texts]


class Multivalued(dict[str, Texts]):
    """Metadata of which at least one key has several values.

    >>> Multivalued({"sku": ("A1", "B2"), "city": "Oulu"})["sku"]
    ('A1', 'B2')
    """


def texts_or_none(texts: Iterable[str | None]) -> Texts | None:
    """Return the different texts of several values, the first `MAX_VALUES`; one alone as it is, None without any.

    >>> texts_or_none(["a", None, "b", "a"]), texts_or_none(["a", "a"]), texts_or_none([None])
    (('a', 'b'), 'a', None)
    """
    distinct = tuple(islice((text for text in dict.fromkeys(texts) if text is not None), MAX_VALUES))
    return distinct if len(distinct) > 1 else distinct[0] if distinct else None


def metadata_of(texts: dict[str, Texts]) -> Metadata:
    """Return metadata as `Multivalued` where a key has several values."""
    return Multivalued(texts) if tuple in set(map(type, texts.values())) else texts


def values_at(metadata: Metadata, key: str) -> tuple[str, ...]:
    """Return the values under a key; none where it is missing.

    >>> values_at({"sku": ("A1", "B2")}, "sku"), values_at({"sku": "A1"}, "sku"), values_at({}, "sku")
    (('A1', 'B2'), ('A1',), ())
    """
    texts = metadata.get(key)
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
    return {key: text for key in metadata if (text := text_at(metadata, key)) is not None}


def text_at(metadata: Metadata, key: str) -> str | None:
    """Return the text under a key for people to read: of several values, that of an array of JSON.

    >>> text_at({"sku": ("A1", "B2")}, "sku"), text_at({"sku": "A1"}, "sku"), text_at({}, "sku")
    ('["A1","B2"]', 'A1', None)
    """
    return text_of_texts(metadata.get(key))


def text_of_texts(texts: Texts | None) -> str | None:
    """Return one text for people to read; see `text_at`."""
    if texts is None or isinstance(texts, str):
        return texts
    return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
