"""The order in which Java's HashMap gives its keys, where what Connect does depends on it."""

from __future__ import annotations

from collections.abc import Iterable


def in_hash_order(keys: Iterable[str]) -> list[str]:
    """Return the distinct keys in the iteration order of a HashMap into which they were put one by one."""
    distinct = list(dict.fromkeys(keys))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2
    return sorted(distinct, key=lambda key: _spread(key) & buckets - 1)


def _spread(key: str) -> int:
    code = 0
    data = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        code = (31 * code + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return code ^ code >> 16
