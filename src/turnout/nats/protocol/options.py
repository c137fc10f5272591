"""Connection options as one value that can be sent to another machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.prefix import Prefix
from turnout.nats.protocol.security import Credentials, Tls
from turnout.nats.protocol.servers import Server


@dataclass(kw_only=True)
class ConnectionSettings:
    """Settings of a connection to a nats-server, one field per option of docs/nats.md; None is the default.

    Attributes:
        servers: nats://host:port, or a list of them.
        user: one way to log in, with a password.
        password: password of the user.
        token: one way to log in.
        nkey_seed: one way to log in: the seed itself; better is the name of its file.
        nkey_seed_file: one way to log in: a file with the seed.
        credentials: a .creds file.
        tls: whether the connection is encrypted; a server that requires it gets it in any case.
        tls_first: begin with TLS, for servers with handshake_first.
        tls_ca: a file with the authorities to trust.
        tls_cert: a file with the client's own certificate.
        tls_key: the file with its key.
        tls_hostname: the name that the server's certificate must have, where it is not the host's.
        tls_insecure: do not check the server's certificate.
        api_prefix: prefix of the API's subjects, for a JetStream of another account (ADR-19): $JS.API.
        domain: the JetStream domain; stands for the prefix $JS.<domain>.API.
        inbox_prefix: prefix of reply subjects; an account import may require its own.
        timeout: seconds to wait for one answer.
        connect_timeout: seconds.
        reconnect_timeout: seconds to keep trying.
        client_name: name of this connection at the server.
    """

    servers: str | list[str]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey_seed: str | None = None
    nkey_seed_file: str | None = None
    credentials: str | None = None
    tls: bool | None = None
    tls_first: bool | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_hostname: str | None = None
    tls_insecure: bool | None = None
    api_prefix: str | None = None
    domain: str | None = None
    inbox_prefix: str | None = None
    timeout: float | None = None
    connect_timeout: float | None = None
    reconnect_timeout: float | None = None
    client_name: str | None = None


def option_of(name: str) -> str:
    """Return the option name of a field.

    >>> option_of("nkey_seed_file")
    'nkeySeedFile'
    """
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


CONNECTION_OPTIONS: Final = tuple(option_of(field.name) for field in fields(ConnectionSettings))
"""The names of the options, in a route and for Spark's reader and writer."""

LOGINS: Final = ("user", "token", "nkey_seed", "nkey_seed_file", "credentials")
"""The fields that each are a way to log in: one of them is enough."""

REQUIRED_WITH: Final = (("password", "user"), ("tls_key", "tls_cert"))
"""Fields that mean nothing without another."""

FILE_OPTIONS: Final = ("tls_ca", "tls_cert", "tls_key", "credentials", "nkey_seed_file")
"""The fields that name a file on the machine where the connection is planned."""

_MAX_SECONDS = 1e9
"""Seconds; some thirty years, which every socket can wait."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Servers, credentials, TLS, prefixes and times.

    Attributes:
        servers: tried in their order, again and again until *reconnect_timeout* is over.
        api_prefix: prefix of ``STREAM.INFO`` and the others (ADR-19), without its final dot.
        inbox_prefix: prefix of reply subjects; an account import may require its own.
        timeout: seconds to wait for one answer.
        reconnect_timeout: seconds to keep trying when no server is there.

    >>> options = ConnectionOptions.from_mapping({"servers": "nats://a,nats://b:5000", "timeout": "2s", "domain": "x"})
    >>> [str(server) for server in options.servers], options.timeout, options.api_prefix
    (['nats://a:4222', 'nats://b:5000'], 2.0, '$JS.x.API')
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

    @property
    def asks_for_tls(self) -> bool:
        """True if no connection may be in clear text; one address with ``tls://`` decides for all."""
        return self.tls is not None or any(server.tls for server in self.servers)

    @classmethod
    def of(cls, servers: str | Sequence[str], **options: object) -> ConnectionOptions:
        """Options from *servers* (one text may name several, with commas) and the attributes of this class.

        ``domain`` stands for the prefix ``$JS.<domain>.API``.

        Raises:
            ConfigError: when an address or the prefix cannot be.
        """
        names = servers.split(",") if isinstance(servers, str) else servers
        prefix, domain = options.pop("api_prefix", None), options.pop("domain", None)
        base = cls(tuple(Server.parse(name) for name in names if name.strip()))
        if any(server.tls for server in base.servers):
            options.setdefault("tls", Tls())
        options["api_prefix"] = Prefix.of(prefix=prefix or None, domain=domain or None).bare  # type: ignore[arg-type]
        return replace(base, **options)  # type: ignore[arg-type]

    @classmethod
    def from_mapping(cls, options: Mapping[str, str]) -> ConnectionOptions:
        """Options from `CONNECTION_OPTIONS` as texts, of a route file or of Spark; files are read on this machine.

        Raises:
            ConfigError: lists every mistake; no value that may be secret is repeated.
        """
        return _OptionsReader(options).read()


class _OptionsReader:
    """Reads the textual options and collects their mistakes."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self.mistakes: list[Mistake] = []

    def read(self) -> ConnectionOptions:
        options = self.options
        servers = self._servers(options.get("servers") or "")
        connection = ConnectionOptions(
            servers=servers,
            credentials=self._credentials(),
            tls=self._tls(servers),
            api_prefix=self._prefix(),
            inbox_prefix=(options.get("inboxPrefix") or "_INBOX").rstrip("."),
            timeout=self._seconds("timeout", 5.0),
            connect_timeout=self._seconds("connectTimeout", 5.0),
            reconnect_timeout=self._seconds("reconnectTimeout", 60.0),
            name=options.get("clientName") or "turnout",
        )
        if self.mistakes:
            raise ConfigError(self.mistakes, what="NATS connection")
        return connection

    def _mistake(self, option: str, problem: str) -> None:
        self.mistakes.append(Mistake(option, problem))

    def _prefix(self) -> str:
        prefix, domain = self.options.get("apiPrefix") or None, self.options.get("domain") or None
        if prefix and domain:
            self._mistake("domain", "is another way to say apiPrefix: give one of the two")
            return prefix
        try:
            return Prefix.of(prefix=prefix, domain=domain).bare
        except ConfigError as wrong:
            self._mistake("domain" if domain else "apiPrefix", wrong.mistakes[0].problem)
            return ""

    def _servers(self, text: str) -> tuple[Server, ...]:
        servers = []
        for name in filter(None, (part.strip() for part in text.split(","))):
            try:
                servers.append(Server.parse(name))
            except ConfigError as wrong:
                self.mistakes.extend(wrong.mistakes)
        if not servers and not self.mistakes:
            self._mistake("servers", "is missing: nats://host:4222, several with commas")
        return tuple(servers)

    def _credentials(self) -> Credentials:
        options = self.options
        ways = [option for option in map(option_of, LOGINS) if options.get(option)]
        if len(ways) > 1:
            self._mistake(ways[1], f"conflicts with {ways[0]!r}: give one way to log in")
        if options.get("credentials"):
            text = self._file("credentials")
            try:
                return Credentials.from_file(text) if text else Credentials()
            except ConfigError as wrong:
                self.mistakes.extend(wrong.mistakes)
        if options.get("nkeySeedFile"):
            return Credentials(seed=(self._file("nkeySeedFile") or "").strip())
        return Credentials(
            user=options.get("user"),
            password=options.get("password"),
            token=options.get("token"),
            seed=options.get("nkeySeed"),
        )

    def _tls(self, servers: Iterable[Server]) -> Tls | None:
        required = self._flag("tls") or any(server.tls for server in servers)
        # A certificate without a word about TLS means TLS; tls=false means none.
        implied = any(
            name.lower() in ("tlsca", "tlscert", "tlskey", "tlsfirst", "tlshostname") for name in self.options
        )
        if not required and (self.options.get("tls") is not None or not implied):
            return None
        return Tls(
            ca=self._file("tlsCa"),
            certificate=self._file("tlsCert"),
            key=self._file("tlsKey"),
            hostname=self.options.get("tlsHostname"),
            insecure=self._flag("tlsInsecure"),
            first=self._flag("tlsFirst"),
            files=(self.options.get("tlsCa"), self.options.get("tlsCert"), self.options.get("tlsKey")),
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
        if not 0 < seconds <= _MAX_SECONDS:
            self._mistake(option, f"is a number of seconds above 0, not {text!r}")
        return seconds
