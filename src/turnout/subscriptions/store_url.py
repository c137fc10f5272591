"""Store URLs, parsed before any store is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from turnout.base.startup import entry_points
from turnout.base.terminal import did_you_mean
from turnout.errors import ConfigError
from turnout.secrets import masked_url
from turnout.subscriptions.stores._sqlite_address import SqliteAddress

_SQLITE = "sqlite:///"
_FILES = ("ca", "certificate", "key", "token-file", "tlsCAFile", "tlsCertificateKeyFile")
"""Fields of the queries of ``grpc://`` and ``mongodb://`` that name a file."""
_POSTGRES_TIMEOUT = "connect_timeout"
_MONGO_TIMEOUTS = ("connectTimeoutMS", "serverSelectionTimeoutMS", "socketTimeoutMS")


def store_url(environment: Mapping[str, str], default: str) -> str:
    """Return the store's URL from DB_URI, with DB_NAME as its database and DB_TABLE_NAME as its table."""
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


def url_problem(url: str) -> str | None:
    """Return the problem of a store's URL that shows without opening the store; None if none shows."""
    schemes = sorted({entry.name for entry in entry_points(group="turnout.stores")})
    scheme, separator, _ = url.partition("://")
    # What follows a plus sign, as in mongodb+srv, is the driver's business.
    if not separator or scheme.partition("+")[0] not in schemes:
        prefixes = ", ".join(f"{name}://" for name in schemes)
        guess = did_you_mean(scheme.partition(":")[0], schemes)
        return f"no store is named {masked_url(url)!r}; expected one of {prefixes}{guess}"
    if scheme == "sqlite":
        try:
            SqliteAddress.parse(url)
        except ConfigError as failure:
            return masked_url("; ".join(mistake.problem for mistake in failure.mistakes))
    return None


def with_absolute_paths(url: str, folder: Path) -> str:
    """Return the URL with absolute names of its files, relative to *folder*: SQLite's own, and certificates.

    >>> with_absolute_paths("sqlite:///subscriptions.db?timeout=5", Path("/routes"))
    'sqlite:////routes/subscriptions.db?timeout=5'
    >>> with_absolute_paths("grpc://host:1?ca=ca.pem&timeout=5", Path("/routes"))
    'grpc://host:1?ca=/routes/ca.pem&timeout=5'
    """
    return _with_files(url, lambda path: (folder / path).absolute())


def resolved(url: str) -> str:
    """Return the URL with symbolic links in its file names resolved, so that two names of one store are equal."""
    return _with_files(url, Path.resolve)


def _with_files(url: str, change: Callable[[Path], Path]) -> str:
    def changed(path: str) -> str:
        return quote(str(change(Path(unquote(path)))))

    if url.startswith(_SQLITE):
        path, mark, query = url.removeprefix(_SQLITE).partition("?")
        return f"{_SQLITE}{changed(path)}{mark}{query}"
    location, mark, query = url.partition("?")
    fields = [field.partition("=") for field in query.split("&")]
    named = [f"{name}{sign}{changed(value) if name in _FILES and value else value}" for name, sign, value in fields]
    return f"{location}{mark}{'&'.join(named)}"


def files_of(url: str) -> list[str]:
    """Return the names of the files that a store's URL names.

    >>> files_of("sqlite:///a.db?timeout=5"), files_of("grpc://host:1?ca=ca.pem&timeout=5"), files_of("memory://")
    (['a.db'], ['ca.pem'], [])
    """
    named: list[str] = []

    def noted(path: Path) -> Path:
        named.append(str(path))
        return path

    _with_files(url, noted)
    return named


def existing(url: str) -> str:
    """Return the store's URL; for SQLite with ``mode=rw`` unless it has a mode, so that no file is created.

    >>> existing("sqlite:///subscriptions.db")
    'sqlite:///subscriptions.db?mode=rw'
    """
    if not url.startswith(_SQLITE):
        return url
    _, mark, query = url.partition("?")
    names = [field.partition("=")[0] for field in query.split("&")]
    return url if "mode" in names else f"{url}{'&' if mark else '?'}mode=rw"


def with_retention(url: str, retention: str) -> str:
    """Return the URL of a store with this retention of deleted subscriptions; it replaces a retention in the URL.

    >>> with_retention("sqlite:///subscriptions.db?retention=1h&timeout=5", "30d")
    'sqlite:///subscriptions.db?timeout=5&retention=30d'
    """
    return _with_option(url, "retention", quote(retention))


def with_timeout(url: str, seconds: float) -> str:
    """Return the store's URL with timeouts of *seconds*, which replace the timeouts in the URL.

    >>> with_timeout("mongodb://host/db?connectTimeoutMS=20", 3)
    'mongodb://host/db?connectTimeoutMS=3000&serverSelectionTimeoutMS=3000&socketTimeoutMS=3000'
    >>> with_timeout("postgresql://host/db", 3)
    'postgresql://host/db?connect_timeout=3'
    >>> with_timeout("sqlite:///subscriptions.db", 0.5)
    'sqlite:///subscriptions.db?timeout=0.5'
    """
    scheme = url.partition("://")[0].partition("+")[0]
    if scheme == "mongodb":
        for name in _MONGO_TIMEOUTS:
            url = _with_option(url, name, f"{max(1, round(seconds * 1e3))}")
    if scheme == "postgresql":
        # libpq counts whole seconds.
        return _with_option(url, _POSTGRES_TIMEOUT, f"{max(1, round(seconds))}")
    return _with_option(url, "timeout", f"{seconds:g}") if scheme in ("sqlite", "grpc") else url


def without_timeout(url: str) -> str:
    """Return the store's URL without timeouts: the same store, however long it is waited for.

    >>> without_timeout("mongodb://host/db?table=t&socketTimeoutMS=3000"), without_timeout("grpc://host:1?timeout=3")
    ('mongodb://host/db?table=t', 'grpc://host:1')
    """
    for name in (*_MONGO_TIMEOUTS, _POSTGRES_TIMEOUT, "timeout"):
        url = _without_option(url, name)
    return url


def _with_option(url: str, name: str, value: str) -> str:
    others = _without_option(url, name)
    return f"{others}{'&' if '?' in others else '?'}{name}={value}"


def _without_option(url: str, name: str) -> str:
    location, _, query = url.partition("?")
    others = "&".join(field for field in query.split("&") if field and field.partition("=")[0].lower() != name.lower())
    return f"{location}?{others}" if others else location
