"""The cache of bounded size."""

from __future__ import annotations

from turnout.base.caches import LruCache


def test_the_least_recently_used_entry_is_evicted() -> None:
    evicted: list[str] = []
    cache = LruCache[int, str](2, on_evict=evicted.append)
    cache.add(1, "one")
    cache.add(2, "two")

    cache.get(1)
    cache.add(3, "three")

    assert evicted == ["two"]
    assert cache.values() == ["one", "three"]
    assert cache.get(2) is None


def test_a_value_is_made_once() -> None:
    made: list[int] = []
    cache = LruCache[int, int](2)

    def make() -> int:
        made.append(1)
        return len(made)

    assert [cache.get_or_add(7, make) for _ in range(3)] == [1, 1, 1]


def test_a_value_that_takes_the_place_of_another_evicts_nothing() -> None:
    evicted: list[str] = []
    cache = LruCache[int, str](2, on_evict=evicted.append)
    cache.add(1, "one")
    cache.add(2, "two")
    cache.add(1, "uno")

    assert evicted == []
    assert cache.values() == ["two", "uno"]


def test_cleared() -> None:
    cache = LruCache[int, str](2)
    cache.add(1, "one")

    cache.clear()

    assert 1 not in cache
    assert cache.values() == []
