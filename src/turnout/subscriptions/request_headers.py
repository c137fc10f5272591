"""Headers of requests to webhooks: those that settings add, and the names of turnout's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

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
    if _is_reserved(name):
        raise ValueError(f"{name} is set by turnout")
    if not isinstance(text, str) or len(text) > MAX_HEADER or not _VISIBLE.fullmatch(text):
        raise ValueError(f"{name}: expected a text of at most {MAX_HEADER:,} visible ASCII characters")


def _is_reserved(name: str) -> bool:
    return name.lower() in _CONNECTION_HEADERS or name.lower().startswith(_OWN_HEADERS)


class HeaderNames(NamedTuple):
    """Names of the headers that identify and sign a request; those of Standard Webhooks by default."""

    id: str = "webhook-id"
    timestamp: str = "webhook-timestamp"
    signature: str = "webhook-signature"
    receiver: str = "webhook-receiver"
    receiver_signature: str = "webhook-receiver-signature"

    @classmethod
    def of(cls, chosen: Mapping[str, str]) -> HeaderNames:
        """Return the names with others in place of some, by the keys of the setting."""
        return STANDARD_NAMES._replace(**{_NAME_KEYS[key]: name for key, name in chosen.items()})


STANDARD_NAMES: Final = HeaderNames()

_NAME_KEYS: Final[Mapping[str, str]] = {
    "id": "id",
    "timestamp": "timestamp",
    "signature": "signature",
    "receiver": "receiver",
    "receiverSignature": "receiver_signature",
}


def _unexpected(value: object) -> ValueError:
    return ValueError(f"expected an object with some of {', '.join(_NAME_KEYS)}, found {type(value).__name__}")


def read_header_names(value: object) -> Mapping[str, str]:
    """Return the chosen names of a request's own headers.

    Raises:
        ValueError: names the key and the expectation.
    """
    if not isinstance(value, Mapping):
        raise _unexpected(value)
    for key, name in value.items():
        if key not in _NAME_KEYS:
            raise ValueError(f"found {key!r:.60}, expected one of {', '.join(_NAME_KEYS)}")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name) or len(name) > 100:
            raise ValueError(f"{key}: expected the name of a header, found {name!r:.60}")
        if _is_reserved(name) and not name.lower().startswith("webhook-"):
            raise ValueError(f"{key}: {name} is set by turnout")
    names = [name.lower() for name in HeaderNames.of(value)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two of the headers would be {twice}")
    return MappingProxyType(dict(value))
