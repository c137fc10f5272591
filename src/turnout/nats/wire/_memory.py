"""The memory that bytes off the wire are received into."""

from __future__ import annotations


def with_room(memory: bytearray, filled: int) -> bytearray:
    r"""Return *memory*, or a copy of twice the size if its *filled* bytes leave no room.

    >>> with_room(bytearray(b"MSG "), 4)
    bytearray(b'MSG \x00\x00\x00\x00')
    """
    if filled < len(memory):
        return memory
    larger = bytearray(2 * len(memory))
    larger[:filled] = memory
    return larger
