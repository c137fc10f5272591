"""JSON that a server sends, as the objects and numbers that a client expects."""

from __future__ import annotations

import json

from turnout.base.untrusted import LARGEST_SEQUENCE, JsonMapping, JsonObject
from turnout.errors import StreamError

_SHOWN_BYTES = 60


def read_object(raw: bytes, *, request: str) -> JsonObject:
    """The JSON object in *raw*.

    Raises:
        StreamError: when there is none; the message names the *request*, and how the answer begins.
    """
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError) as failure:
        why = "nested too deep" if isinstance(failure, RecursionError) else "no JSON"
        raise StreamError(f"{request}: the answer is {why}: {raw[:_SHOWN_BYTES]!r}") from None
    if not isinstance(value, dict):
        raise StreamError(f"{request}: the answer is not a JSON object: {raw[:_SHOWN_BYTES]!r}")
    return value


def object_in(answer: JsonMapping, name: str, *, request: str) -> JsonObject:
    """The object that *answer* holds under *name*.

    Raises:
        StreamError: when it holds none.
    """
    value = answer.get(name)
    if not isinstance(value, dict):
        raise StreamError(f"{request}: the answer has no object {name!r}")
    return value


def number_in(answer: JsonMapping, name: str, *, request: str, default: int | None = None) -> int:
    """The number, from 0 to 2**63 - 1, that *answer* holds under *name*; *default* where it has nothing of the name.

    Raises:
        StreamError: when it holds none.
    """
    value = answer.get(name, default)
    if type(value) is not int or not 0 <= value <= LARGEST_SEQUENCE:
        raise StreamError(f"{request}: {name!r} in the answer is {value!r:.40}, not a number")
    return value
