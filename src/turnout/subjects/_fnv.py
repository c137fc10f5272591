"""FNV-1a with 32 bits: the hash of ``partition`` (ADR-30)."""

from __future__ import annotations

OFFSET = 2166136261
PRIME = 16777619

_MASK = 0xFFFFFFFF


def fnv1a(data: bytes) -> int:
    """Return the hash of *data*, from 0 to 2**32 - 1."""
    value = OFFSET
    for byte in data:
        value = ((value ^ byte) * PRIME) & _MASK
    return value
