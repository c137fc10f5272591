"""Options of ours in the URL of a store whose driver reads the rest."""

from __future__ import annotations

from urllib.parse import unquote

from turnout.errors import ConfigError, Mistake
from turnout.subscriptions.past import DEFAULT_RETENTION, retention_of


def split_url(url: str, name: str, default: str) -> tuple[str, str, float]:
    """Return the URL as the driver takes it, the option of that name, and the retention in seconds.

    Raises:
        ConfigError: the retention is no duration.
    """
    base, _, query = url.partition("?")
    ours = {name: default, "retention": f"{DEFAULT_RETENTION:.0f}s"}
    rest = []
    for part in query.split("&") if query else []:
        key, _, value = part.partition("=")
        if key in ours:
            ours[key] = unquote(value)
        else:
            rest.append(part)
    retention = retention_of(ours["retention"])
    if retention is None:
        raise ConfigError([Mistake("store", f"retention is as 12h, 30d, 0 or forever, found {ours['retention']!r}")])
    return base + (f"?{'&'.join(rest)}" if rest else ""), ours[name], retention
