"""Webhook destinations, and the subjects under which their deliveries wait for the dispatcher.

A webhook is an ``https://`` or ``http://`` URL, or ``webhook:NAME`` for an endpoint of the route. Its deliveries are
stored as ``PREFIX.ENDPOINT.SUBSCRIPTION``, with both texts in base64url, so that a subject says where a message
goes and under which settings, and no header is needed for each copy of a record.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

NAMED: Final = "webhook:"
"""Prefix of a destination that is an endpoint of the route by its name."""

MAX_URL: Final = 1_024
"""Longest URL in bytes: as base64 it leaves a subject room for the subscription."""

_ENDPOINT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URL_CHARACTERS: Final = re.compile(r"[\x21-\x7e]+")
_HOST_NAME: Final = re.compile(r"(?=.{1,254}$)(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
"""Name that a resolver takes; IPv4 addresses in any form have its characters, too."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")
_NO_SUBSCRIPTION: Final = "-"


def is_url(destination: str) -> bool:
    """Return True for a destination that is an HTTP URL.

    >>> is_url("https://hooks.example/in"), is_url("sink:orders.new")
    (True, False)
    """
    return destination.startswith(("https://", "http://"))


def is_webhook(destination: str) -> bool:
    """Return True for a URL, or an endpoint by its name."""
    return destination.startswith(("https://", "http://", NAMED))


def webhook_problem(destination: str) -> str | None:
    """Return the reason that no request can be sent to a webhook; None for a valid one.

    >>> webhook_problem("https://hooks.example/in?x=1"), webhook_problem("webhook:billing")
    (None, None)
    >>> webhook_problem("https:///in")
    'is no URL of a webhook: it has no host'
    """
    if destination.startswith(NAMED):
        name = destination.removeprefix(NAMED)
        return None if _ENDPOINT_NAME.fullmatch(name) else f"names no endpoint: found {name!r:.60}"
    problem = _url_problem(destination)
    return None if problem is None else f"is no URL of a webhook: {problem}"


def _url_problem(url: str) -> str | None:
    if len(url) > MAX_URL:
        return f"it has {len(url):,} characters, at most {MAX_URL:,} are taken"
    if not _URL_CHARACTERS.fullmatch(url):
        return "it has spaces, control characters or others beyond ASCII, which a URL has percent-encoded"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        return str(problem)
    if not parts.hostname:
        return "it has no host"
    if not _is_host(parts.hostname, is_literal="[" in parts.netloc):
        return f"its host is no name and no address: found {parts.hostname!r:.60}"
    if port == 0:
        return "no server has the port 0"
    if parts.username is not None or parts.password is not None:
        return "it has a login, which belongs to a named endpoint"
    return "it has a fragment, which is never sent" if parts.fragment else None


def _is_host(host: str, *, is_literal: bool) -> bool:
    if not is_literal:
        return _HOST_NAME.fullmatch(host) is not None
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


def delivery_subject(prefix: str, destination: str, subscription: str) -> str:
    """Return the subject of a delivery; ``""`` stands for no subscription.

    >>> delivery_subject("deliver", "webhook:a", "s1")
    'deliver.d2ViaG9vazph.czE'
    """
    return f"{prefix}.{_encoded(destination)}.{_encoded(subscription) if subscription else _NO_SUBSCRIPTION}"


def delivery_address(prefix: str, subject: str) -> tuple[str, str] | None:
    """Return the destination and the subscription of a delivery's subject; None for another subject.

    >>> delivery_address("deliver", "deliver.d2ViaG9vazph.czE")
    ('webhook:a', 's1')
    """
    tokens = subject.removeprefix(f"{prefix}.").split(".")
    if not subject.startswith(f"{prefix}.") or len(tokens) != 2 or not all(map(_TOKEN.fullmatch, tokens)):
        return None
    try:
        return _decoded(tokens[0]), "" if tokens[1] == _NO_SUBSCRIPTION else _decoded(tokens[1])
    except ValueError:
        return None


@lru_cache(100_000)
def _encoded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _decoded(token: str) -> str:
    return urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
