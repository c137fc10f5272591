"""The store's URL from the original's environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

__all__ = ["store_url"]


def store_url(environment: Mapping[str, str], default: str) -> str:
    """The store's URL from DB_URI, with DB_NAME as its database and DB_TABLE_NAME as its table."""
    url = environment.get("DB_URI") or default
    name, table = environment.get("DB_NAME", ""), environment.get("DB_TABLE_NAME", "")
    if not url.startswith("mongodb") or not (name or table):
        return url
    parts = urlsplit(url)
    query = parts.query
    if table:
        query = "&".join(filter(None, (query, f"table={quote(table)}")))
    path = f"/{quote(name)}" if name else parts.path or "/"
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))
