"""``turnout.yaml``: how a server is set up, with the command line and the environment over it.

An address that other machines reach needs TLS and tokens, or ``insecure``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from turnout.base.clocks import SECONDS_BY_UNIT
from turnout.base.files import read_file
from turnout.base.terminal import did_you_mean
from turnout.base.untrusted import decimal
from turnout.base.yaml_values import load, position_of
from turnout.errors import MOST_MISTAKES, ConfigError, Mistake
from turnout.routes.document import names_at
from turnout.routes.endpoints import NatsSink, Part
from turnout.routes.limits import HealthPart
from turnout.routes.variables import Variables
from turnout.routes.yaml_text import Path as Location
from turnout.rpc.caller import Right
from turnout.rpc.tokens import JwtSettings
from turnout.secrets import Secrecy
from turnout.server.security import MAX_BODY
from turnout.subjects import is_publishable
from turnout.subjects.pattern import Rights
from turnout.subscriptions.credentials import SYMMETRIC, decoded_secret
from turnout.subscriptions.store_url import store_url, with_absolute_paths

_MAX_SECONDS = 1e9
"""Some thirty years, which every clock and every lock can wait."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")


def seconds_of(written: object) -> float:
    """Return the seconds of ``90``, ``"90s"``, ``"1.5m"``, ``"2h"`` or ``"7d"``.

    >>> seconds_of("10m")
    600.0

    Raises:
        ValueError: it is none of these.
    """
    match = _SPAN.fullmatch(str(written).strip())
    seconds = (
        float("nan")
        if isinstance(written, bool) or match is None
        else float(match[1]) * SECONDS_BY_UNIT[match[2] or "s"]
    )
    if not seconds <= _MAX_SECONDS:
        raise ValueError('expected a span like 30, "30s", "10m", "2h" or "7d"')
    return seconds


_TEXT = {"type": "string", "pattern": f"^\\s*{_SPAN.pattern}\\s*$"}

Seconds = Annotated[
    float,
    BeforeValidator(seconds_of),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, _TEXT]}),
]
"""A field of a configuration that holds a span of time."""


InputName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
InputKind = Literal["standard-webhooks", "github", "stripe", "cloudevents", "json", "lines"]


_SHORTEST: Final = 16
_PUBLIC: Final = "whpk_"
_KEY_BYTES: Final = {SYMMETRIC: range(24, 65), _PUBLIC: (32,)}


def check_secret(kind: str, secret: str) -> None:
    """Refuse a secret that cannot be one of a kind of input.

    Raises:
        ValueError: names the expected form, without the secret.
    """
    if kind == "standard-webhooks":
        webhook_key(secret)
    elif len(secret) < _SHORTEST or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ValueError(f"expected a secret of at least {_SHORTEST} visible ASCII characters")


def webhook_key(secret: str) -> tuple[str, bytes]:
    """Return the prefix and the key of a secret of Standard Webhooks.

    Raises:
        ValueError: it is none.
    """
    prefix, key = decoded_secret(secret, _KEY_BYTES)
    if prefix and len(key) in _KEY_BYTES[prefix]:
        return prefix, key
    raise ValueError(f"expected {SYMMETRIC} and 24 to 64 bytes in base64, or {_PUBLIC} and the 32 of a public key")


class InputPart(Part):
    """One input.

    Attributes:
        kind: form of its requests, and how they prove their sender: ``standard-webhooks``, ``github`` and ``stripe``
            are signed; ``cloudevents``, ``json`` and ``lines`` (a JSON text on each line) have a bearer token.
        secrets: of signatures, or tokens; two while one is replaced by another. ``${NAME}``, ``${NAME:-default}`` and
            ``${file:path}`` are filled in as in routes.
        subject: subject of the stored messages.
        sink: the server, and the stream that has to take them.
        tolerance: longest difference between a signature's time and now.
        rate: verified requests a second; further ones are answered with 429.
        max_body: bytes of a request.
    """

    kind: InputKind
    secrets: Annotated[list[str], Field(min_length=1, max_length=4), Secrecy.SECRET]
    subject: str
    sink: NatsSink
    tolerance: Seconds = Field(default=300.0, gt=0)
    rate: float | None = Field(default=None, gt=0)
    max_body: int = Field(default=1 << 20, ge=1, le=MAX_BODY)

    @field_validator("subject")
    @classmethod
    def _subject(cls, subject: str) -> str:
        if not is_publishable(subject):
            raise ValueError("expected a subject without wildcards")
        return subject

    @model_validator(mode="after")
    def _rights(self) -> Self:
        refusal = Rights(self.sink.writable, prefixes=self.sink.prefixes).refusal(self.subject)
        if refusal is not None:
            raise ValueError(f"subject: {self.subject!r} {refusal}")
        if self.sink.timing is not None:
            raise ValueError("sink: delay and deliverAt belong to the sink of a route: an input stores at once")
        return self

    @model_validator(mode="after")
    def _secrets(self) -> Self:
        for secret in self.secrets:
            check_secret(self.kind, secret)
        return self


Origin = Annotated[str, Field(pattern=r"^https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class HostPort(str):
    """``host:port``; an IPv6 host is in brackets."""

    __slots__ = ()

    @property
    def host(self) -> str:
        """The host, without brackets."""
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port; 0 is a free one."""
        return int(self.rpartition(":")[2])

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or decimal(port, 65535) is None:
        raise ValueError("expected host:port, as 127.0.0.1:8090 or [::1]:8090")
    return HostPort(text)


class TlsPart(Part):
    """Certificates, as PEM files.

    Attributes:
        cert: the server's own.
        key: its key.
        client_ca: clients must show a certificate of this authority.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    @field_validator("cert", "key", "client_ca")
    @classmethod
    def _is_there(cls, file: Path | None) -> Path | None:
        if file is not None and not file.is_file():
            raise ValueError("there is no such file")
        return file


def is_safe(address: str) -> bool:
    """Return True if an address cannot be read or replaced on the way: https, or this machine."""
    url = urlsplit(address)
    is_local = url.hostname in ("127.0.0.1", "::1", "localhost")
    return bool(url.hostname) and (url.scheme == "https" or (url.scheme == "http" and is_local))


class OidcPart(Part):
    """Provider at which people sign in to the console (OpenID Connect).

    Attributes:
        issuer: its name and address.
        client_id: name under which this server is registered there.
        client_secret: its secret, as ``${OIDC_SECRET}`` or ``${file:…}``; a public client has none.
        url: address of this server as browsers see it; the provider has to know ``URL/sign-in/callback``.
        scopes: requested scopes.
        name_claim: claim with the name that is recorded with changes; without it ``sub``.
        roles_claim: claim with the roles; dots lead into objects, as ``realm_access.roles``.
        roles: rights (read, write, match, unmasked) by role; users without one of these roles are refused.
        session: time after which people sign in again.
    """

    issuer: str
    client_id: Annotated[str, Field(min_length=1)]
    client_secret: Annotated[SecretStr, Secrecy.SECRET] = SecretStr("")
    url: str
    scopes: tuple[Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$")], ...] = ("openid", "profile")
    name_claim: str = "preferred_username"
    roles_claim: str = "roles"
    roles: dict[str, tuple[Right, ...]] = Field(min_length=1)
    session: Seconds = Field(default=8 * 3600.0, gt=0)

    @model_validator(mode="after")
    def _can_be_trusted(self) -> Self:
        if "openid" not in self.scopes:
            raise ValueError("scopes: expected openid among them")
        addresses = (("issuer", self.issuer), ("url", self.url))
        wrong = [
            f"oidc.{name}: expected an https:// URL without query and fragment, found {value!r:.80}"
            for name, value in addresses
            if not is_safe(value) or urlsplit(value).query or urlsplit(value).fragment
        ]
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def redirect_url(self) -> str:
        """Address to which the provider sends browsers back."""
        return f"{self.url.rstrip('/')}/sign-in/callback"


class GrpcPart(Part):
    """Subscriptions service over gRPC; it is served if a store is configured.

    Attributes:
        listen: address of gRPC.
    """

    listen: str = "127.0.0.1:8080"
    _listen = field_validator("listen")(_address)


class SparkPart(Part):
    """Spark session shared by all routes.

    Attributes:
        master: Spark's master.
        properties: Spark properties, over turnout's own.
        log: file for standard error of the JVM and the workers; ``spark.log`` in the state folder if not given.
    """

    master: str = "local[*]"
    properties: dict[str, str | int | float | bool] = Field(default_factory=dict)
    log: Path | None = None


class RestartsPart(Part):
    """Restart policy of failing routes.

    Attributes:
        max: restarts within the window; one failure more parks the route.
        window: period in which failures count.
        pause: before the first restart; each further one waits twice as long, and a random part of it.
        longest: the longest pause.
    """

    max: int = Field(default=10, ge=0)
    window: Seconds = 600.0
    pause: Seconds = 1.0
    longest: Seconds = 60.0


class RetentionPart(Part):
    """Retention of history in the state folder.

    Attributes:
        counts: age up to which the counts of each minute are kept.
        revisions: versions of each route.
        events: changes of state, of all routes.
    """

    counts: Seconds = 7 * 86400.0
    revisions: int = Field(default=50, ge=1)
    events: int = Field(default=10_000, ge=100)


class HaPart(Part):
    """Several servers with the same routes, of which one leads and the others are its standbys.

    Attributes:
        lease: store of the leader's lease: ``nats://…``, ``postgres://…`` or ``kubernetes``.
        options: further options of a connection to NATS, as of an endpoint: ``credentials``, ``tlsCa`` …
        folder: folder that all servers reach under the same path, for all that outlives a leader.
        name: name of the lease: servers with the same one take turns.
        url: where this server answers, as the others reach it; the address that it listens on if not given.
        seconds: length of the lease: a standby leads after it and 5 % more when the leader is gone.
        ca: authority of the servers' certificates (PEM), where the system does not know it.
    """

    lease: str
    folder: Path
    options: dict[str, str] = Field(default_factory=dict)
    name: str = "turnout"
    url: str | None = None
    seconds: Seconds = Field(default=5.0, ge=1, le=300)
    ca: Path | None = None


class LimitsPart(Part):
    """Limits of HTTP clients, so that slow and numerous ones do not take what others need.

    Attributes:
        connections: open at once, in all; one more is answered with 503.
        connections_per_address: open at once from one IPv4 address or IPv6 /64 network; one more is answered with
            429. A reverse proxy is one address.
        header_timeout: from the beginning of a connection, or the first byte of a further request, to the end of the
            headers; also for the TLS handshake.
        body_timeout: from the end of the headers to the end of the body.
        send_timeout: without anything read of a response that waits.
        buffered_bytes: maximum bytes of the bodies of all current requests; one more is answered with 503.
    """

    connections: int = Field(default=512, ge=1)
    connections_per_address: int = Field(default=256, ge=1)
    header_timeout: Seconds = Field(default=10.0, gt=0)
    body_timeout: Seconds = Field(default=30.0, gt=0)
    send_timeout: Seconds = Field(default=30.0, gt=0)
    buffered_bytes: int = Field(default=64 << 20, ge=1 << 20)


class ServerConfig(Part):
    """Settings of a server, without its routes.

    Attributes:
        name: name of the server, as ``eu-west``: the console shows it on each page and in each title; the address of
            the request if not given.
        listen: address of HTTP.
        hosts: names by which browsers and proxies reach the server, beside the address.
        cors_origins: other origins whose pages may use the REST interface with a token, as ``https://ops.example``.
        tls: certificates; without them HTTP is plain.
        store: store of the subscriptions served over gRPC.
        grpc: the subscriptions service.
        spark: the one session of all routes.
        restarts: restarts of a route that fails.
        retention: limits of the stored history.
        limits: limits for HTTP clients.
        inputs: requests to ``POST /v1/in/NAME`` that become messages of a stream, by name.
        health: shares of lost records above which a route is shown as unhealthy, where it sets none itself: half of
            the records or deliveries, and all records unmatched.
        ready_routes: names of routes whose health counts for ``/ready``, ``*`` for all; ``/ready?route=`` has that of
            each.
        log_format: format of lines of the log.
        log_level: minimum level of logged lines.
        route_variables: the environment variables that route texts from callers may name; those of files may name all.
        insecure: serve other machines without TLS or without tokens, knowingly.
        tokens: a file of bearer tokens; without one every caller may do everything.
        jwt: an issuer of tokens.
        oidc: a provider at which people sign in to the console, beside tokens.
        state: the folder of what outlives the process; ``.turnout/server`` beside the routes if not given.
        checkpoints: the folder of the progress of routes that name none; ``.turnout`` beside each file if not given.
        interval: time between two scans of the routes' folder.
        ha: several servers of which one leads; a single one if not given. Progress and state are then in its folder.
    """

    name: Annotated[str, Field(max_length=80)] = ""
    listen: str = "127.0.0.1:8090"
    hosts: tuple[str, ...] = ()
    cors_origins: tuple[Origin, ...] = ()
    route_variables: tuple[VariableName, ...] = ()
    insecure: bool = False
    tls: TlsPart | None = None
    tokens: Annotated[Path | None, Secrecy.PUBLIC] = None
    jwt: Annotated[JwtSettings | None, Secrecy.PUBLIC] = None
    oidc: OidcPart | None = None
    store: str | None = None
    grpc: GrpcPart = Field(default_factory=GrpcPart)
    state: Path | None = None
    checkpoints: Path | None = None
    spark: SparkPart = Field(default_factory=SparkPart)
    restarts: RestartsPart = Field(default_factory=RestartsPart)
    retention: RetentionPart = Field(default_factory=RetentionPart)
    limits: LimitsPart = Field(default_factory=LimitsPart)
    inputs: dict[InputName, InputPart] = Field(default_factory=dict)
    health: HealthPart = Field(default_factory=HealthPart)
    ready_routes: tuple[str, ...] = ()
    interval: Seconds = 1.0
    ha: HaPart | None = None
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    _listen = field_validator("listen")(_address)

    @property
    def address(self) -> HostPort:
        """Address of the HTTP server."""
        return HostPort(self.listen)

    @property
    def grpc_address(self) -> HostPort:
        """Address of the subscriptions service."""
        return HostPort(self.grpc.listen)

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if self.ha is not None and (self.state is not None or self.checkpoints is not None):
            raise ValueError("ha: state and checkpoints are in the folder of ha; remove these settings")
        return self

    @model_validator(mode="after")
    def _others_are_kept_out(self) -> Self:
        for name, address in (("listen", self.address), ("grpc.listen", self.grpc_address)):
            if address.loopback or self.insecure or (name == "grpc.listen" and self.store is None):
                continue
            if self.tls is None:
                raise ValueError(f"{name}: {address} can be reached by others: it needs tls, or --insecure")
            signs_in = name == "listen" and self.oidc is not None
            if self.tokens is None and self.jwt is None and self.tls.client_ca is None and not signs_in:
                raise ValueError(f"{name}: {address} can be reached by others: it needs tokens, or --insecure")
        return self

    @classmethod
    def load(cls, file: Path | None, environment: Mapping[str, str], **flags: object) -> Self:
        """Load a configuration file; the environment overrides it, and *flags* that are not None override both.

        Args:
            file: a YAML file; its relative paths start from its folder.
            environment: the variables of the subscriptions service, which mean the same here; those of TLS and tokens
                hold for HTTP as well.
            flags: fields by their Python names, from the command line.

        Raises:
            ConfigError: lists every mistake with its path in the file.
            FileNotFoundError: there is no such file.
        """
        document = _read(file) if file else {}
        for part in ("inputs", "oidc"):
            if file and part in document:
                document[part] = _filled(part, document[part], environment, file.parent)
        document |= _from_environment(document, environment)
        given = {to_camel(name): value for name, value in flags.items() if value is not None}
        of_file, of_flags = document.get("ha"), given.get("ha")
        if isinstance(of_file, dict) and isinstance(of_flags, dict):
            given["ha"] = of_file | of_flags
        document |= given
        try:
            return cls.model_validate(document)
        except ValidationError as failure:
            raise ConfigError(_mistakes(failure, document), what=f"{file or 'the server'} cannot be used") from failure


_PATHS = (
    ("tokens",),
    ("state",),
    ("checkpoints",),
    ("tls", "cert"),
    ("tls", "key"),
    ("tls", "clientCa"),
    ("spark", "log"),
    ("ha", "folder"),
    ("ha", "ca"),
)


def _read(file: Path) -> dict[str, object]:
    try:
        document = load(read_file(file).decode("utf-8-sig")) or {}
    except UnicodeDecodeError as failure:
        raise ConfigError([Mistake(str(file), f"is not UTF-8: the byte at {failure.start}")]) from failure
    except yaml.YAMLError as failure:
        problem, line = position_of(failure)
        raise ConfigError([Mistake(str(file), f"is not YAML: {problem}", line)]) from failure
    if not isinstance(document, dict):
        raise ConfigError([Mistake(str(file), "expected a block of names and values")])
    for path in _PATHS:
        block: object = document
        for step in path[:-1]:
            block = block.get(step) if isinstance(block, dict) else None
        if isinstance(block, dict) and isinstance(block.get(path[-1]), str):
            block[path[-1]] = str(file.parent / block[path[-1]])
    if isinstance(document.get("store"), str):
        document["store"] = with_absolute_paths(document["store"], file.parent)
    return document


def _filled(name: str, part: object, environment: Mapping[str, str], folder: Path) -> object:
    """Return a part with its variables filled in, as those of routes are.

    Raises:
        ConfigError: a variable is not set, or a file cannot be read.
    """
    variables = Variables(environment, folder)
    filled = variables.fill(part, (name,))
    if variables.mistakes:
        raise ConfigError([Mistake(".".join(map(str, path)), problem) for path, problem in variables.mistakes])
    return filled


def _from_environment(document: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    """Return the settings of the original service's variables, under the names used here."""
    settings: dict[str, object] = {}
    store = store_url(environment, str(document.get("store") or ""))
    if store:
        settings["store"] = store
    if environment.get("LOG_LEVEL"):
        settings["logLevel"] = environment["LOG_LEVEL"].lower()
    if environment.get("API_TOKENS_FILE"):
        settings["tokens"] = environment["API_TOKENS_FILE"]
    tls = {part: environment.get(name) for part, name in _TLS.items()}
    if any(tls.values()):
        settings["tls"] = {part: name for part, name in tls.items() if name}
    host, port = environment.get("API_HOST"), environment.get("API_PORT")
    if host or port:
        grpc = document.get("grpc")
        listen = grpc.get("listen") if isinstance(grpc, dict) else None
        before = HostPort(listen or GrpcPart().listen)
        written = host or before.host
        settings["grpc"] = {"listen": f"{f'[{written}]' if ':' in written else written}:{port or before.port}"}
    return settings


_TLS = {"cert": "API_TLS_CERT", "key": "API_TLS_KEY", "clientCa": "API_TLS_CLIENT_CA"}


def _mistakes(failure: ValidationError, document: object) -> list[Mistake]:
    errors = failure.errors(include_url=False)
    # More are counted in the error, and not shown.
    shown = [_mistake(error["loc"], error["type"], error["msg"], document) for error in errors[: MOST_MISTAKES + 1]]
    return [*shown, *shown[-1:] * (len(errors) - len(shown))]


def _mistake(path: Location, kind: str, message: str, document: object) -> Mistake:
    dotted_path = ".".join(map(str, path))
    if kind == "extra_forbidden":
        names = names_at(path[:-1], document, ServerConfig)
        return Mistake(dotted_path, f"is no setting; there are {', '.join(names)}{did_you_mean(str(path[-1]), names)}")
    return Mistake(dotted_path, message.removeprefix("Value error, "))
