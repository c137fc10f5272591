"""Digests by which a PostgreSQL store finds leaves and pairs of metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from turnout.subscriptions.model import Subscription
from turnout.subscriptions.plain_lines import PlainLine
from turnout.subscriptions.stores._document import kiwis_of, leaf_token, pair_token
from turnout.subscriptions.stores._record import lookup_rows


def leaf_digest(key: str, pattern: str, partial: bool) -> bytes:
    """Return the digest of a leaf."""
    return _digest(leaf_token(key, pattern, partial))


def pair_digest(name: str, value: str) -> bytes:
    """Return the digest of a pair of metadata."""
    return _digest(pair_token(name, value))


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode(), digest_size=16).digest()


def leaf_digests(subscription: Subscription | PlainLine) -> Iterator[bytes]:
    """Return the digest of each kiwi leaf."""
    if isinstance(subscription, PlainLine):
        return (leaf_digest(key, pattern, partial) for key, pattern, partial, _ in subscription.leaf_rows(""))
    return (leaf_digest(*kiwi) for kiwi in kiwis_of(subscription.condition))


def pair_digests(subscription: Subscription | PlainLine) -> Iterator[bytes]:
    """Return the digest of each pair of metadata."""
    return (pair_digest(*pair) for pair in subscription.metadata.items())


def recorded_digests(rows: Sequence[tuple[str, str, int]]) -> dict[str, list[tuple[bytes, str]]]:
    """Return the rows of each index that records of id, record and revision have, sorted."""
    leaf_rows, pairs = lookup_rows(rows)
    return {
        "leaf": sorted((leaf_digest(key, pattern, partial), id_) for key, pattern, partial, id_ in leaf_rows),
        "metadata": sorted((pair_digest(name, value), id_) for name, value, id_ in pairs),
    }


def digest_rows(
    chunk: Iterable[tuple[str, Subscription | PlainLine]],
    digests: Callable[[Subscription | PlainLine], Iterator[bytes]],
) -> list[tuple[bytes, str]]:
    """Return the rows of an index, each once and sorted, neighbours together."""
    return sorted({(digest, id_) for id_, subscription in chunk for digest in digests(subscription)})
