from __future__ import annotations

import pytest

from turnout.kafka.producer import murmur2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_vectors_of_javas_client(text: bytes, expected: int) -> None:
    """The hashes are those of Kafka's own `Utils.murmur2`."""
    assert murmur2(text) == expected & 0xFFFFFFFF
