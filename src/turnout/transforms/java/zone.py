"""Time zones in texts, as ``java.text.SimpleDateFormat`` reads them."""

from __future__ import annotations

_DIGITS = "0123456789"
_UTC_NAMES = ("COORDINATED UNIVERSAL TIME", "UTC", "GREENWICH MEAN TIME", "GMT")


def read_iso_zone(text: str, at: int, count: int) -> tuple[int, int] | None:
    """Return the milliseconds east of a zone of *count* letters ``X`` at *at*, and its end; None if invalid."""
    if text[at] == "Z":
        return 0, at + 1
    return _offset(text, at, count, colon=count == 3)


def read_zone(text: str, start: int, at: int) -> tuple[int, int] | None:
    """Return the zone of the letters ``z`` or ``Z``: an offset, ``GMT`` with an offset, or a name of UTC.

    Args:
        text: the text.
        start: where the last part of the pattern ended.
        at: the same behind blanks.
    """
    if text[at] in "+-":
        return _offset(text, at, 0, colon=False)
    if text[start : start + 3].upper() == "GMT":
        if text[start + 3 : start + 4] in ("+", "-"):
            return _offset(text, start + 3, 0, colon=True)
        return 0, start + 3
    upper = text[at : at + 26].upper()
    name = next((name for name in _UTC_NAMES if upper.startswith(name)), None)
    return None if name is None else (0, at + len(name))


def _offset(text: str, at: int, count: int, *, colon: bool) -> tuple[int, int] | None:
    """Hours and minutes behind a sign.

    Args:
        text: the text.
        at: where the sign is.
        count: of the letters ``X``; one means hours alone. 0 for ``z`` and ``Z``.
        colon: there is one between hours and minutes; the hours of ``GMT+1:00`` may then be one digit.
    """
    sign = {"+": 1, "-": -1}.get(text[at : at + 1])
    if sign is None:
        return None
    at += 1
    size = 2 if text[at + 1 : at + 2] in _DIGITS and text[at + 1 : at + 2] else 1
    if size == 1 and (count > 0 or not colon):
        return None
    hours = _digits(text[at : at + size], size)
    at += size
    if hours is None or hours > 23:
        return None
    if count == 1:
        return sign * hours * 3_600_000, at
    if colon:
        if text[at : at + 1] != ":":
            return None
        at += 1
    minutes = _digits(text[at : at + 2], 2)
    if minutes is None or minutes > 59:
        return None
    return sign * (hours * 60 + minutes) * 60_000, at + 2


def _digits(text: str, size: int) -> int | None:
    return int(text) if len(text) == size and all(char in _DIGITS for char in text) else None
