"""Cache of bounded size."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Cache that evicts the least recently used entry. Safe to use from several threads.

    Unlike `functools.lru_cache`, it lets values be added, listed and closed.

    >>> cache = LruCache[str, int](2, on_evict=print)
    >>> [cache.get_or_add(word, lambda word=word: len(word)) for word in ("one", "three", "one", "eleven")]
    5
    [3, 5, 3, 6]

    Args:
        capacity: largest number of entries.
        on_evict: called with each value that is evicted.
    """

    def __init__(self, capacity: int, on_evict: Callable[[V], object] | None = None) -> None:
        self._capacity = capacity
        self._on_evict = on_evict
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def values(self) -> list[V]:
        """Return the values, the most recently used last."""
        with self._lock:
            return list(self._entries.values())

    def get(self, key: K) -> V | None:
        """Return the value of a key and count it as used; None if it is not cached."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def add(self, key: K, value: V) -> None:
        """Cache a value, in place of the key's earlier one."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            evicted = self._entries.popitem(last=False)[1] if len(self._entries) > self._capacity else None
        if evicted is not None and self._on_evict is not None:
            self._on_evict(evicted)

    def get_or_add(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made and cached if it is missing; two threads may both make it."""
        value = self.get(key)
        if value is None:
            value = make()
            self.add(key, value)
        return value

    def clear(self) -> None:
        """Remove all entries, without calling *on_evict*."""
        with self._lock:
            self._entries.clear()
