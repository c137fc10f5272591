"""Store URLs, parsed before any store is opened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from turnout.base.startup import entry_points
from turnout.base.terminal import did_you_mean
from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, Mistake
from turnout.secrets import masked_url
from turnout.subscriptions.past import DEFAULT_RETENTION, retention_of

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


_OPTIONS = ("mode", "retention", "synchronous", "timeout")
_MODES = ("rwc", "rw", "ro")
_SYNCHRONOUS = ("full", "normal", "off")


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """Parsed URL, for example ``sqlite:///subscriptions.db?timeout=5``.

    Attributes:
        path: the file.
        mode: ``rwc`` (default) creates the file where there is none, ``rw`` does not, ``ro`` never writes.
        timeout: how many seconds a caller waits for others that write, all in all.
        synchronous: ``full`` (default) makes acknowledged changes survive a power loss, ``normal`` only the
            death of the process.
        retention: for how many seconds deleted subscriptions are kept.
    """

    path: Path
    mode: str = "rwc"
    timeout: float = 30.0
    synchronous: str = "full"
    retention: float = DEFAULT_RETENTION

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a store URL: three slashes before a relative path, four before an absolute one.

        Raises:
            ConfigError: the URL says something else.
        """
        rest, _, query = url.removeprefix("sqlite://").partition("?")
        mistakes = []
        shown = masked_url(url)
        if not rest.startswith("/"):
            path = shown.removeprefix("sqlite://").partition("?")[0]
            mistakes.append(f"{shown!r} needs a third slash before the path: sqlite:///{path or 'subscriptions.db'}")
        path = unquote(rest[1:])
        if rest.startswith("/") and path in ("", ":memory:"):
            mistakes.append(f"{shown!r} names no file; memory:// keeps subscriptions in memory")
        options = dict(parse_qsl(query, keep_blank_values=True))
        mode = options.pop("mode", "rwc")
        if mode not in _MODES:
            mistakes.append(f"mode is one of {', '.join(_MODES)}, found {mode!r}")
        synchronous = options.pop("synchronous", "full")
        if synchronous not in _SYNCHRONOUS:
            mistakes.append(f"synchronous is one of {', '.join(_SYNCHRONOUS)}, found {synchronous!r}")
        timeout, written = 30.0, options.pop("timeout", "30")
        try:
            timeout = float(written)
        except ValueError:
            timeout = -1.0
        if not timeout >= 0:
            mistakes.append(f"timeout is a number of seconds, found {written!r}")
        retention = retention_of(written := options.pop("retention", f"{DEFAULT_RETENTION:.0f}s"))
        if retention is None:
            mistakes.append(f"retention is as 12h, 30d, 0 or forever, found {written!r}")
        mistakes += [f"unknown option {name!r}; there are {', '.join(_OPTIONS)}" for name in options]
        if mistakes:
            raise ConfigError([Mistake("store", mistake) for mistake in mistakes])
        assert retention is not None
        return cls(Path(path), mode, timeout, synchronous, retention)

    @property
    def read_only(self) -> bool:
        """True if nothing is ever written."""
        return self.mode == "ro"


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


_log = logging.getLogger(__name__)

_WAITS = {
    # The driver would wait half a minute for a server that is not there.
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    # It would wait for ever for the answer of one that has stopped in the middle of it.
    "socketTimeoutMS": 60_000,
}

_MAX_DIGITS = 10

_NOTICE_SECONDS = 1.0
"""Seconds after which the log says that the server is waited for."""


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


@contextmanager
def log_wait(uri: str) -> Iterator[None]:
    """Log the reason for the wait if the block takes more than a second."""
    timer = threading.Timer(_NOTICE_SECONDS, _log.warning, ("waiting for MongoDB at %s…", awaited(uri)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
