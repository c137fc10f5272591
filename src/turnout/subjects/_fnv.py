"""FNV-1a with 32 bits: the hash of ``partition`` (ADR-30)."""

from __future__ import annotations

OFFSET = 2166136261
PRIME = 16777619

_MASK = 0xFFFFFFFF
_SHORT_BYTES = 24


def fnv1a(data: bytes) -> int:
    """Return the hash of *data*, from 0 to 2**32 - 1."""
    value = OFFSET
    if len(data) <= _SHORT_BYTES:
        # A byte changes only the lowest bits, so the others may grow and be cut off once, at the end. That is
        # faster as long as the number is short.
        for byte in data:
            value = (value ^ byte) * PRIME
        return value & _MASK
    for byte in data:
        value = ((value ^ byte) * PRIME) & _MASK
    return value
