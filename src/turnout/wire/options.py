"""How to reach NATS: everything a connection needs to know, as one value that can be sent to another machine."""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from turnout.errors import ConfigError, Mistake
from turnout.wire.credentials import Credentials

__all__ = ["CONNECTION_OPTIONS", "ConnectionOptions", "Server", "Tls"]

_SCHEMES = {"nats": 4222, "tls": 4222}

CONNECTION_OPTIONS = (
    "servers", "user", "password", "token", "nkeySeed", "nkeySeedFile", "credentials",
    "tls", "tlsFirst", "tlsCa", "tlsCert", "tlsKey", "tlsHostname", "tlsInsecure",
    "apiPrefix", "domain", "inboxPrefix", "timeout", "connectTimeout", "reconnectTimeout", "clientName",
)  # fmt: skip
"""The options of a route, or of Spark's reader and writer, that `ConnectionOptions.from_mapping` reads."""


@dataclass(frozen=True, slots=True)
class Server:
    """One address; a user and a password in its URL are kept, and shown nowhere."""

    host: str
    port: int
    tls: bool = False
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Server:
        """Read ``nats://host:port``, ``tls://…``, ``nats://user:password@host`` or plain ``host:port``.

        Raises:
            ConfigError: when it is none of them; what stands before an ``@`` is not repeated.
        """
        shown = re.sub(r"//[^@/]*@", "//***@", url.strip())
        try:
            parts = urlsplit(url.strip() if "://" in url else f"nats://{url.strip()}")
            port = parts.port
        except ValueError:
            raise ConfigError([Mistake("servers", f"{shown!r} is not an address")]) from None
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ConfigError([Mistake("servers", f"{shown!r} is not an address like nats://host:4222")])
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password else None
        return cls(parts.hostname, port or _SCHEMES[parts.scheme], parts.scheme == "tls", user, password)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'nats'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """What to check and what to show in a TLS handshake; the PEM texts travel with the value, not their paths."""

    ca: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    hostname: str | None = None
    insecure: bool = False
    first: bool = False

    def context(self) -> ssl.SSLContext:
        """The context to wrap a socket with.

        Raises:
            ConfigError: when a certificate or a key cannot be used.
        """
        context = ssl.create_default_context()
        try:
            if self.ca is not None:
                context.load_verify_locations(cadata=self.ca)
            if self.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None:
                # The ssl module reads a client certificate from a file only; this one is gone a moment later.
                with tempfile.TemporaryDirectory(prefix="turnout-tls-") as folder:
                    pem = Path(folder) / "client.pem"
                    pem.touch(mode=0o600)
                    pem.write_text(f"{self.certificate}\n{self.key or ''}\n", encoding="utf-8")
                    context.load_cert_chain(pem)
        except ssl.SSLError as failure:
            raise ConfigError([Mistake("tls", f"a certificate cannot be used: {failure.reason}")]) from None
        return context


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Servers, credentials, TLS, prefixes and times.

    Attributes:
        servers: tried in their order, again and again until *reconnect_timeout* is over.
        api_prefix: what stands before ``STREAM.INFO`` and the rest (ADR-19), without its final dot.
        inbox_prefix: what answers come back on; an account import may ask for one of its own.
        timeout: seconds to wait for one answer.
        reconnect_timeout: seconds to keep trying when no server is there.
    """

    servers: tuple[Server, ...]
    credentials: Credentials = field(default_factory=Credentials)
    tls: Tls | None = None
    api_prefix: str = "$JS.API"
    inbox_prefix: str = "_INBOX"
    timeout: float = 5.0
    connect_timeout: float = 5.0
    reconnect_timeout: float = 60.0
    name: str = "turnout"

    @classmethod
    def of(cls, servers: str | Sequence[str], **options: object) -> ConnectionOptions:
        """Options from *servers* (one text may name several, with commas) and the attributes of this class.

        ``domain`` stands for the prefix ``$JS.<domain>.API``.
        """
        names = servers.split(",") if isinstance(servers, str) else servers
        domain = options.pop("domain", None)
        base = cls(tuple(Server.parse(name) for name in names if name.strip()))
        if any(server.tls for server in base.servers):
            options.setdefault("tls", Tls())
        if domain:
            options["api_prefix"] = f"$JS.{domain}.API"
        return replace(base, **options)  # type: ignore[arg-type]

    @classmethod
    def from_mapping(cls, options: Mapping[str, str]) -> ConnectionOptions:
        """Options from the texts of a route file or of Spark; files are read here, on this machine.

        Raises:
            ConfigError: lists every mistake; no value that may be secret is repeated.
        """
        return _Reader(options).read()


class _Reader:
    """Reads the textual options and collects what is wrong with them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self.mistakes: list[Mistake] = []

    def read(self) -> ConnectionOptions:
        given = self.options
        servers = self._servers(given.get("servers") or "")
        if given.get("apiPrefix") and given.get("domain"):
            self._mistake("domain", "is another way to say apiPrefix: give one of the two")
        prefix = f"$JS.{given['domain']}.API" if given.get("domain") else (given.get("apiPrefix") or "$JS.API")
        made = ConnectionOptions(
            servers=servers,
            credentials=self._credentials(),
            tls=self._tls(servers),
            api_prefix=prefix.rstrip("."),
            inbox_prefix=(given.get("inboxPrefix") or "_INBOX").rstrip("."),
            timeout=self._seconds("timeout", 5.0),
            connect_timeout=self._seconds("connectTimeout", 5.0),
            reconnect_timeout=self._seconds("reconnectTimeout", 60.0),
            name=given.get("clientName") or "turnout",
        )
        if self.mistakes:
            raise ConfigError(self.mistakes, what="NATS connection")
        return made

    def _mistake(self, option: str, problem: str) -> None:
        self.mistakes.append(Mistake(option, problem))

    def _servers(self, text: str) -> tuple[Server, ...]:
        made = []
        for name in filter(None, (part.strip() for part in text.split(","))):
            try:
                made.append(Server.parse(name))
            except ConfigError as wrong:
                self.mistakes.extend(wrong.mistakes)
        if not made and not self.mistakes:
            self._mistake("servers", "is missing: nats://host:4222, several with commas")
        return tuple(made)

    def _credentials(self) -> Credentials:
        given = self.options
        ways = [way for way in ("user", "token", "nkeySeed", "nkeySeedFile", "credentials") if given.get(way)]
        if len(ways) > 1:
            self._mistake(ways[1], f"comes beside {ways[0]!r}: one way to log in is enough")
        if given.get("credentials"):
            text = self._file("credentials")
            try:
                return Credentials.from_file(text) if text else Credentials()
            except ConfigError as wrong:
                self.mistakes.extend(wrong.mistakes)
        if given.get("nkeySeedFile"):
            return Credentials(seed=(self._file("nkeySeedFile") or "").strip())
        return Credentials(
            user=given.get("user"),
            password=given.get("password"),
            token=given.get("token"),
            seed=given.get("nkeySeed"),
        )

    def _tls(self, servers: Iterable[Server]) -> Tls | None:
        wanted = self._flag("tls") or any(server.tls for server in servers)
        # A certificate without a word about TLS means TLS; tls=false means none.
        implied = any(
            name.lower() in ("tlsca", "tlscert", "tlskey", "tlsfirst", "tlshostname") for name in self.options
        )
        if not wanted and (self.options.get("tls") is not None or not implied):
            return None
        return Tls(
            ca=self._file("tlsCa"),
            certificate=self._file("tlsCert"),
            key=self._file("tlsKey"),
            hostname=self.options.get("tlsHostname"),
            insecure=self._flag("tlsInsecure"),
            first=self._flag("tlsFirst"),
        )

    def _file(self, option: str) -> str | None:
        path = self.options.get(option)
        if not path:
            return None
        try:
            return Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as failure:
            why = failure.strerror if isinstance(failure, OSError) else "it is not text"
            self._mistake(option, f"the file {path!r} cannot be read: {why}")
            return None

    def _flag(self, option: str) -> bool:
        text = (self.options.get(option) or "false").lower()
        if text not in ("true", "false"):
            self._mistake(option, f"is true or false, not {text!r}")
        return text == "true"

    def _seconds(self, option: str, usual: float) -> float:
        text = self.options.get(option)
        if text is None:
            return usual
        try:
            seconds = float(text.removesuffix("s"))
        except ValueError:
            seconds = -1.0
        if seconds <= 0:
            self._mistake(option, f"is a number of seconds above 0, not {text!r}")
        return seconds
