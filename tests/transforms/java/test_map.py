"""The order of Java's HashMap."""

from __future__ import annotations

from turnout.transforms.java.map import in_hash_order


def test_keys_come_by_their_buckets() -> None:
    """Checked against a HashMap of Java 17, one that has grown too."""
    assert in_hash_order(["id", "b", "a"]) == ["a", "b", "id"]
    assert in_hash_order(["id", "b", "id"]) == ["b", "id"]
    assert in_hash_order(["ünï", "\U0001f600", "Aa", "BB"]) == ["Aa", "BB", "\U0001f600", "ünï"]
    grown = in_hash_order([f"key{n}" for n in range(13)])
    assert ",".join(name.removeprefix("key") for name in grown) == "1,2,0,5,6,3,4,9,7,8,11,10,12"
