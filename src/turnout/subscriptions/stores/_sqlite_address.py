"""Address of a SQLite store: a URL with the file and options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, unquote

from turnout.errors import ConfigError, Mistake
from turnout.secrets import masked_url
from turnout.subscriptions.past import DEFAULT_RETENTION, retention_of

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
