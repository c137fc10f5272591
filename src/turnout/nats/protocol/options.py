"""Connection options as one value that can be sent to another machine: servers, credentials, TLS, the API's prefix.

A credentials file and an nkey sign the server's nonce; that takes the package ``nkeys`` (the extra ``nkeys``).
"""

from __future__ import annotations

import base64
import logging
import re
import ssl
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Final, Self, TypeAlias
from urllib.parse import SplitResult, quote, unquote, urlsplit

from turnout.base.options import Option, camel_case, of_text, option, options_of, read_options
from turnout.errors import ConfigError, MissingExtraError, Mistake, StreamError
from turnout.secrets import Secrecy

DEFAULT_WINDOW: Final = 4000
"""Messages without an acknowledgement, where a publisher has no other limit."""

_SCHEMES = {"nats": 4222, "tls": 4222}
_MAX_SECONDS = 1e9
"""Seconds; some thirty years, which every socket can wait."""


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"is true or false, not {text.lower()!r}")
    return text.lower() == "true"


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise ValueError(f"is a number of seconds above 0, not {text!r}")
    return seconds


TEXT: Final = of_text(str)
FLAG: Final = of_text(_flag)
_SECONDS: Final = of_text(_seconds, blank=False)


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


_log = logging.getLogger(__name__)

_SECTION = re.compile(r"-----BEGIN ([A-Z ]+)-----\s*+(\S++)\s++-++END")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of one authentication method, or of none. Secrets are not part of the ``repr``.

    >>> Credentials(user="reader", password="secret")
    Credentials(user='reader')
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    seed: str | None = field(default=None, repr=False)
    jwt: str | None = field(default=None, repr=False)

    @classmethod
    def from_file(cls, text: str) -> Credentials:
        """Parse a ``.creds`` file: the user's JWT and the seed that signs for it.

        Raises:
            ConfigError: when one of the two is not there; the text is not repeated.
        """
        sections = dict(_SECTION.findall(text))
        jwt, seed = sections.get("NATS USER JWT"), sections.get("USER NKEY SEED")
        if not jwt or not seed:
            missing = "NATS USER JWT" if not jwt else "USER NKEY SEED"
            raise ConfigError([Mistake("credentials", f"the file has no section {missing!r}")])
        return cls(seed=seed, jwt=jwt)

    @property
    def signs(self) -> bool:
        """True if the credentials answer the server's nonce with a signature."""
        return self.seed is not None

    def connect_fields(self, nonce: str | None) -> dict[str, str]:
        """Return the fields that these credentials add to the CONNECT message.

        Raises:
            MissingExtraError: when a signature is needed and ``nkeys`` is not installed.
            ConfigError: when the seed is none, or the server offered nothing to sign.
        """
        if self.seed is not None:
            return self._signed(self.seed, nonce)
        fields = {"user": self.user, "pass": self.password, "auth_token": self.token}
        return {name: value for name, value in fields.items() if value is not None}

    def _signed(self, seed: str, nonce: str | None) -> dict[str, str]:
        try:
            import nkeys
        except ImportError as missing:
            raise MissingExtraError("nkeys", "nkeys") from missing
        if nonce is None:
            raise ConfigError([Mistake("credentials", "the server offered no nonce: it does not use nkeys or JWTs")])
        try:
            pair = nkeys.from_seed(seed.strip().encode())
            signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=").decode()
            public = pair.public_key.decode()
        except Exception:  # noqa: BLE001 - nkeys raises several kinds; none may carry the seed into a log
            raise ConfigError([Mistake("credentials", "the seed is not an nkey seed")]) from None
        return {"sig": signature, "jwt": self.jwt} if self.jwt else {"sig": signature, "nkey": public}


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of a connection: certificates to check and to present, as PEM texts.

    The files that they come from are read again for each connection: a renewed certificate is that of the next one.

    Attributes:
        ca: the authorities to trust, and no others; the system's where there are none.
        certificate: our own, with its *key* in the same text or apart.
        hostname: the name that the server's certificate must have, if not the host's.
        insecure: take any certificate.
        first: begin with the handshake, before the server's greeting.
        files: paths of *ca*, *certificate* and *key*; None for texts without a file. Texts are used where a process
            cannot read them.

    >>> Tls(ca="-----BEGIN CERTIFICATE-----", hostname="nats.example")
    Tls(hostname='nats.example', insecure=False, first=False)
    """

    ca: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    hostname: str | None = option(TEXT, None, name="tlsHostname")
    insecure: bool = option(FLAG, False, name="tlsInsecure")
    first: bool = option(FLAG, False, name="tlsFirst")
    files: tuple[str | None, str | None, str | None] = field(default=(None, None, None), repr=False)

    def context(self) -> ssl.SSLContext:
        """The context to wrap a socket with.

        Files that do not fit, as while they are replaced, are not used: the texts that were read first are.

        Raises:
            ConfigError: when a certificate or a key cannot be used.
        """
        texts = (self.ca, self.certificate, self.key)
        present = tuple(map(_present, self.files, texts))
        if present != texts:
            try:
                return _context_of(replace(self, ca=present[0], certificate=present[1], key=present[2]))
            except ConfigError as wrong:
                _log.warning("%s: the certificates that were read at the start are used", wrong.mistakes[0])
        return _context_of(self)


def _context_of(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=tls.ca)
        if tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.certificate is not None:
            # The ssl module reads a client certificate from a file only; this one is deleted immediately
            # afterwards.
            with tempfile.TemporaryDirectory(prefix="turnout-tls-") as folder:
                pem = Path(folder) / "client.pem"
                pem.touch(mode=0o600)
                pem.write_text(f"{tls.certificate}\n{tls.key or ''}\n", encoding="utf-8")
                context.load_cert_chain(pem)
    except ssl.SSLError as failure:
        raise ConfigError([Mistake("tls", f"a certificate cannot be used: {failure.reason}")]) from None
    return context


def _present(file: str | None, text: str | None) -> str | None:
    """Return the text that a file has now, or *text* if it cannot be read."""
    try:
        return text if file is None else Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return text


def begins_tls(greeting: Mapping[str, object], *, requested: bool, server: object) -> bool:
    """Return True if a TLS handshake follows the greeting of *server* (its INFO); call before sending anything.

    It follows where the server requires it, and where it was *requested* and the server offers it (nats.go does the
    same). Not promised: that a server's requirement of TLS is noticed where TLS is not requested and an attacker on the
    path changes the greeting. Only ``tls://`` or an option of TLS refuses that.

    Raises:
        StreamError: TLS is required and not offered: the credentials would be sent in the clear.
    """
    required = bool(greeting.get("tls_required"))
    if requested and not (required or greeting.get("tls_available")):
        raise StreamError(f"{server} offers no TLS, and TLS is required: nothing was sent to it")
    return requested or required


_DEFAULT = "$JS.API."
_DOMAIN = re.compile(r"\$JS\.([^\s.*>]+)\.API")
_TOKENS = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")


@dataclass(frozen=True, slots=True)
class Prefix:
    """Prefix of the JetStream API and of the views on top of it; no other module handles it.

    Subjects inside a request (filters, the key of a direct get) never carry it, nor do plain publishes, inboxes,
    acks and flow control answers: those are the server's, verbatim.

    Attributes:
        text: the prefix with its final dot.
        objects: whether writes of the object store carry it. nats.go and nats-py never prefix ``$O``; ADR-19 requires
            it. Under a custom prefix it is on (the account must import ``$O.>``); under a domain it is off, because a
            server maps ``$KV`` but not ``$O`` across a leaf node. The hub can be given that mapping: ``mappings {
            "$JS.HUB.API.$O.>": "$O.>" }``; then say ``prefix_objects=True``.

    >>> Prefix.of(domain="hub").api("STREAM.INFO.ORDERS")
    '$JS.hub.API.STREAM.INFO.ORDERS'
    >>> Prefix.of(prefix="fromA").api("STREAM.INFO.ORDERS")
    'fromA.STREAM.INFO.ORDERS'
    >>> Prefix().is_default
    True
    """

    text: str = _DEFAULT
    objects: bool = False

    @classmethod
    def of(cls, *, prefix: str | None = None, domain: str | None = None, prefix_objects: bool | None = None) -> Prefix:
        """The prefix for the caller's arguments: a prefix, a domain, or neither.

        A prefix that is written as a domain is written, ``$JS.hub.API``, means the domain.

        Raises:
            ConfigError: both were given, or one that has other than plain subject tokens.
        """
        if prefix is not None and domain is not None:
            raise ConfigError([Mistake("prefix", f"give a prefix ({prefix!r}) or a domain ({domain!r}), not both")])
        if domain is not None:
            if not _TOKENS.fullmatch(domain) or "." in domain:
                raise ConfigError([Mistake("domain", f"{domain!r} is not one plain subject token")])
            return cls(f"$JS.{domain}.API.", bool(prefix_objects))
        if prefix is None:
            return cls()
        bare = prefix.removesuffix(".")
        if not _TOKENS.fullmatch(bare):
            raise ConfigError([Mistake("prefix", f"{prefix!r} does not consist of plain subject tokens")])
        if spelled := _DOMAIN.fullmatch(bare):
            return cls.of(domain=spelled[1], prefix_objects=prefix_objects)
        text = f"{bare}."
        return cls(text, text != _DEFAULT if prefix_objects is None else prefix_objects)

    @property
    def bare(self) -> str:
        """The prefix without its final dot."""
        return self.text.removesuffix(".")

    @property
    def is_default(self) -> bool:
        """True for the prefix of the local JetStream."""
        return self.text == _DEFAULT

    def api(self, subject: str) -> str:
        """The subject of an API request: ``STREAM.INFO.S`` under the prefix."""
        return f"{self.text}{subject}"

    def view(self, subject: str) -> str:
        """Return the subject for a KV write of *subject* (``$KV.bucket.key``)."""
        return subject if self.is_default else f"{self.text}{subject}"

    def object(self, subject: str) -> str:
        """Return the subject for an object store write of *subject* (``$O.bucket...``)."""
        return f"{self.text}{subject}" if self.objects and not self.is_default else subject


_SecretText: TypeAlias = Annotated[str | None, Secrecy.SECRET]


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
    password: _SecretText = None
    token: _SecretText = None
    nkey_seed: _SecretText = None
    nkey_seed_file: _SecretText = None
    credentials: _SecretText = None
    tls: bool | None = None
    tls_first: bool | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: _SecretText = None
    tls_hostname: str | None = None
    tls_insecure: bool | None = None
    api_prefix: str | None = None
    domain: str | None = None
    inbox_prefix: str | None = None
    timeout: float | None = None
    connect_timeout: float | None = None
    reconnect_timeout: float | None = None
    client_name: str | None = None


CONNECTION_OPTIONS: Final = tuple(camel_case(field.name) for field in fields(ConnectionSettings))
"""The names of the options, in a route and for Spark's reader and writer."""

LOGINS: Final = ("user", "token", "nkey_seed", "nkey_seed_file", "credentials")
"""The fields that each are a way to log in: one of them is enough."""

REQUIRED_WITH: Final = (("password", "user"), ("tls_key", "tls_cert"))
"""Fields that mean nothing without another."""

FILE_OPTIONS: Final = ("tls_ca", "tls_cert", "tls_key", "credentials", "nkey_seed_file")
"""The fields that name a file on the machine where the connection is planned."""


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
    inbox_prefix: str = option(of_text(lambda text: text.rstrip(".")), "_INBOX")
    timeout: float = option(_SECONDS, 5.0)
    connect_timeout: float = option(_SECONDS, 5.0)
    reconnect_timeout: float = option(_SECONDS, 60.0)
    name: str = option(TEXT, "turnout", name="clientName")

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
        servers = self._servers(self.options.get("servers") or "")
        credentials, tls, api_prefix = self._credentials(), self._tls(servers), self._prefix()
        others = read_options(options_of(ConnectionOptions), self.options, self.mistakes)
        connection = ConnectionOptions(servers, credentials, tls, api_prefix, **others)
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
        ways = [option for option in map(camel_case, LOGINS) if options.get(option)]
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
        asked = read_options({"tls": Option("tls", FLAG)}, self.options, self.mistakes)
        required = asked.get("tls", False) or any(server.tls for server in servers)
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
            files=(self.options.get("tlsCa"), self.options.get("tlsCert"), self.options.get("tlsKey")),
            **read_options(options_of(Tls), self.options, self.mistakes),
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
