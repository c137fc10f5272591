"""Addresses of NATS servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import SplitResult, quote, unquote, urlsplit

from turnout.errors import ConfigError, Mistake

_SCHEMES = {"nats": 4222, "tls": 4222}


@dataclass(frozen=True, slots=True)
class Server:
    """Server address; user and password of its URL are stored but never shown.

    A user without a password is a token, as in every NATS client.

    >>> server = Server.parse("tls://reader:secret@nats.example:4333")
    >>> server.host, server.port, server.tls, str(server)
    ('nats.example', 4333, True, 'tls://nats.example:4333')
    """

    host: str
    port: int
    tls: bool = False
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``nats://host:port``, ``tls://…``, ``nats://user:password@host`` or plain ``host:port``.

        Raises:
            ConfigError: invalid; neither the text before an ``@`` nor the text of a port
                belongs is repeated.
        """
        try:
            parts = urlsplit(url.strip() if "://" in url else f"nats://{url.strip()}")
        except ValueError:
            raise ConfigError([Mistake("servers", "holds an address with brackets around no IPv6 address")]) from None
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise _mistaken(parts, "is not an address like nats://host:4222")
        try:
            port = parts.port
        except ValueError:
            raise _mistaken(parts, "is not an address: its port is no number from 0 to 65535") from None
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password is not None else None
        return cls(parts.hostname, port or _SCHEMES[parts.scheme], parts.scheme == "tls", user, password)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'nats'}://{host}:{self.port}"

    @property
    def secret_url(self) -> str:
        """Address including user and password, for clients that accept only a URL; must not be shown or logged."""
        if self.user is None:
            return str(self)
        password = "" if self.password is None else f":{quote(self.password, safe='')}"
        return str(self).replace("://", f"://{quote(self.user, safe='')}{password}@", 1)

    def connect_fields(self) -> dict[str, str]:
        """Return the fields that the address adds to the CONNECT message."""
        if self.user is None:
            return {}
        return {"auth_token": self.user} if self.password is None else {"user": self.user, "pass": self.password}


def _mistaken(parts: SplitResult, problem: str) -> ConfigError:
    # A password with an unencoded "/", "#" or comma ends the address early, so any part may hold a piece of it.
    user_info = "***@" if "@" in parts.geturl() else ""
    host = "" if user_info and "@" not in parts.netloc else parts.hostname or ""
    return ConfigError([Mistake("servers", f"{f'{parts.scheme}://{user_info}{host}'!r} {problem}")])
