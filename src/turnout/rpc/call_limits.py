"""Bounds of one call, checked before any work is done; those of connections are options of `rpc.server`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType

import grpc

from turnout.base.multivalued import Metadata, values_of
from turnout.errors import SubscriptionInvalidError
from turnout.rpc.status import RefusedError

MAX_SEARCHED = 64
"""Pairs of a search by metadata: each is one more condition of the store's query."""

MAX_EXPLAINED = 1_000
"""Matches of one message that are explained: an explanation is as large as its condition."""

MAX_BULK = 100_000
"""Subscriptions of one CreateMany, or ids of one DeleteMany: all of them are held until the last has arrived."""

MAX_BULK_BYTES = 256 << 20

_LARGE = 16_384
"""A message of this many characters or more is large: matching it may take tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """Bounds of a message to match.

    Attributes:
        pairs: largest number of keys, and of values.
        key: characters of a key.
        value: characters of a value.
    """

    pairs: int = 1_000
    key: int = 1_024
    value: int = 65_536

    def check(self, metadata: Metadata) -> None:
        """Refuse a message that is larger.

        Raises:
            SubscriptionInvalidError: the message names the key, or the number of keys.
        """
        if len(metadata) > self.pairs:
            raise SubscriptionInvalidError(f"metadata: {len(metadata)} keys, at most {self.pairs} are taken")
        count = sum(1 for _ in values_of(metadata))
        if count > self.pairs:
            raise SubscriptionInvalidError(f"metadata: {count} values, at most {self.pairs} are taken")
        for key, texts in metadata.items():
            value = texts if isinstance(texts, str) else max(texts, key=len)
            if len(key) > self.key:
                raise SubscriptionInvalidError(
                    f"metadata: a key of {len(key)} characters, at most {self.key} are taken"
                )
            if len(value) > self.value:
                raise SubscriptionInvalidError(
                    f"metadata[{key!r}]: {len(value)} characters, at most {self.value} are taken"
                )


_RETRY_SECONDS = 5.0


class Slots(AbstractContextManager[None]):
    """Limited number of slots; a caller without a slot gets an error immediately and blocks no thread.

    Args:
        count: number of slots.
        full: message of the error if no slot is free.
    """

    def __init__(self, count: int, full: str) -> None:
        self._free = threading.BoundedSemaphore(count)
        self._full = full

    @contextmanager
    def patiently(self) -> Iterator[None]:
        """Wait for a slot; for callers with a thread of their own."""
        with self._free:
            yield

    def __enter__(self) -> None:
        if not self._free.acquire(blocking=False):
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, self._full, _RETRY_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free.release()


def is_large(metadata: Metadata) -> bool:
    """Return True if matching this message may take long enough to be limited."""
    return sum(map(len, values_of(metadata))) > _LARGE
