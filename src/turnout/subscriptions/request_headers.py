"""Headers that a setting adds to requests of webhooks: names and values that can be sent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MAX_HEADER: Final = 4_096
"""Longest value of a header."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE: Final = re.compile(r"[\x20-\x7e\t]*")
_OWN_HEADERS: Final = ("webhook-", "ce-", "nats-", "turnout-")
_CONNECTION_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
)


def check_header_names(names: Iterable[str]) -> None:
    """Refuse names of one header in two spellings, of which a receiver would see both, or one.

    Raises:
        ValueError: names both.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(f"{other} and {name} are one header: case does not matter in its name")


def check_header(name: object, text: object) -> None:
    """Refuse an additional header that cannot be sent, or that is set by the dispatcher.

    Raises:
        ValueError: says what was expected; without the text, which may be a secret.
    """
    if not isinstance(name, str) or not _TOKEN.fullmatch(name) or len(name) > 100:
        raise ValueError(f"expected the name of a header, found {name!r:.60}")
    if name.lower() in _CONNECTION_HEADERS or name.lower().startswith(_OWN_HEADERS):
        raise ValueError(f"{name} is set by turnout")
    if not isinstance(text, str) or len(text) > MAX_HEADER or not _VISIBLE.fullmatch(text):
        raise ValueError(f"{name}: expected a text of at most {MAX_HEADER:,} visible ASCII characters")
