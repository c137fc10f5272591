"""Numbers in texts off the wire, read strictly."""

from __future__ import annotations

LARGEST_SEQUENCE = (1 << 63) - 1
"""What fits into a column of 64 bits with a sign; a server counts one bit further."""

_UNSIGNED = (1 << 64) - 1
_MAX_DIGITS = 20


def decimal(text: bytes | str, largest: int = _UNSIGNED) -> int | None:
    """The number that *text* is in ASCII digits and nothing else; None where it is none, or above *largest*.

    int() alone accepts more, and raises for thousands of digits:

    >>> [decimal(text) for text in ("17", "-1", " 1", "1_0", "٣", "", "9" * 5000)]
    [17, None, None, None, None, None, None]
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return None
    number = int(text)
    return number if number <= largest else None
