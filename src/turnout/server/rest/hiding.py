"""The text of a route without its secrets, for those who may read it and not write it."""

from __future__ import annotations

import re

from turnout.secrets import is_secret, masked_url

__all__ = ["without_secrets"]

_FIELD = re.compile(r"""(["']?)([A-Za-z_][\w.\-]*)\1(\s*:\s*)("[^"\n]*"|'[^'\n]*'|[^\s,}\]#{\["'][^,}\]#\n]*)""")


def without_secrets(text: str) -> str:
    """The text with ``***`` for passwords, tokens and seeds, and for what stands before the @ of a URL.

    >>> without_secrets('sink: {servers: "nats://ann:pw@a", password: open sesame, window: 5}')
    'sink: {servers: "nats://***@a", password: ***, window: 5}'
    """
    return masked_url(_FIELD.sub(_masked, text))


def _masked(field: re.Match[str]) -> str:
    if not is_secret(field[2]) or field[4].startswith("${"):
        return field[0]
    return f"{field[1]}{field[2]}{field[1]}{field[3]}***"
