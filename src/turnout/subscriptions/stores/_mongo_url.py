"""A MongoDB store's URL: what is for the driver, and what is for us."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote

from turnout.errors import ConfigError, Mistake
from turnout.subscriptions.past import DEFAULT_RETENTION, retention_of
from turnout.untrusted import JsonObject

_WAITS = {
    # The driver would wait half a minute for a server that is not there.
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    # It would wait for ever for the answer of one that has stopped in the middle of it.
    "socketTimeoutMS": 60_000,
}

_MAX_DIGITS = 10


def split_url(url: str) -> tuple[str, str, float]:
    """The URL as the driver takes it, and our own options in it: the table's name, and the retention in seconds."""
    base, _, query = url.partition("?")
    ours = {"table": "subscriptions", "retention": f"{DEFAULT_RETENTION:.0f}s"}
    rest = []
    for part in query.split("&") if query else []:
        name, _, value = part.partition("=")
        if name in ours:
            ours[name] = unquote(value)
        else:
            rest.append(part)
    retention = retention_of(ours["retention"])
    if retention is None:
        raise ConfigError([Mistake("store", f"retention is as 12h, 30d, 0 or forever, found {ours['retention']!r}")])
    return base + (f"?{'&'.join(rest)}" if rest else ""), ours["table"], retention


def waits_of(uri: str) -> JsonObject:
    """Return the driver's time limits."""
    return {name: wait for name, wait in _WAITS.items() if f"{name.lower()}=" not in uri.lower()}


def awaited(uri: str) -> str:
    """Describe the servers in a URL, and the seconds for which one of them is waited for.

    >>> awaited("mongodb://ann:pass@a,b:1/db?serverSelectionTimeoutMS=1500")
    'a,b:1 (1.5 s)'
    """
    address, _, query = uri.partition("?")
    hosts = address.partition("://")[2].partition("/")[0].rpartition("@")[2]
    name = "serverSelectionTimeoutMS"
    written = dict(parse_qsl(query.lower())).get(name.lower(), "")
    milliseconds = int(written) if written.isdecimal() and len(written) < _MAX_DIGITS else _WAITS[name]
    return f"{hosts} ({milliseconds / 1e3:g} s)"
