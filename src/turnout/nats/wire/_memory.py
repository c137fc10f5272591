"""The memory that bytes off the wire are received into."""

from __future__ import annotations


def with_room(memory: bytearray, filled: int) -> bytearray:
    r"""*memory*, or twice as much with the same beginning where its *filled* bytes are all that it has.

    >>> with_room(bytearray(b"MSG "), 4)
    bytearray(b'MSG \x00\x00\x00\x00')
    """
    if filled < len(memory):
        return memory
    larger = bytearray(2 * len(memory))
    larger[:filled] = memory
    return larger
