"""Options of a Kafka client as one value, and the names of Kafka's own properties, ``sasl.jaas.config`` among them."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import subprocess
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias
from urllib.parse import unquote, urlsplit

from turnout.base.files import read_file
from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, MissingExtraError, Mistake, StreamError

FILE: Final = "turnout.token.file"
COMMAND: Final = "turnout.token.command"
AWS: Final = "turnout.token.aws"
"""Own properties of a client, beside those of librdkafka: where its tokens are from."""

REPORTS: Final = "delivery.report.only.error"
"""Property of a producer: ``false`` for reports of messages that are stored, too, a microsecond each."""

ALLOWED: Final = "TURNOUT_TOKEN_COMMANDS"
"""Variable that allows routes to name commands: who may write a route could otherwise run any program."""

_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_LONGEST_SECONDS: Final = 300.0
"""A token is read again after so long, or after four fifths of its life, if that is shorter."""

_MOST_BYTES: Final = 1 << 20
_COMMAND_SECONDS: Final = 30.0
_SPARE_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)

Answer: TypeAlias = tuple[str, float, str, dict[str, str]]
"""Token, its end in seconds since 1970, principal, extensions."""


def file_of(url: str) -> str:
    """Return the path of a file URL, as Java's client takes one for its tokens (KIP-768).

    >>> file_of("file:///var/run/secrets/token")
    '/var/run/secrets/token'

    Raises:
        ValueError: it is none of this machine.
    """
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError("expected file:/// and an absolute path")
    return unquote(parts.path)


def command_of(text: str) -> str:
    """Return a command that prints a token, if the process may run commands of routes.

    Raises:
        ValueError: it may not, or there is no command.
    """
    if os.environ.get(ALLOWED) != "1":
        raise ValueError(f"commands of routes are run only with {ALLOWED}=1 in the environment of turnout")
    if not shlex.split(text):
        raise ValueError("found no command")
    return text


def tokens_of(properties: Mapping[str, str], servers: Sequence[str]) -> Callable[[str], Answer] | None:
    """Return the callback that gives a client its tokens; None for a client without.

    Args:
        properties: of the client, with own ones.
        servers: its bootstrap servers, whose names have the region at Amazon.

    Raises:
        ValueError: no region is known.
        MissingExtraError: the library of Amazon is not installed.
    """
    if FILE in properties:
        path = Path(properties[FILE])
        return _Tokens(f"the file {path}", lambda: _parsed(read_file(path, max_bytes=_MOST_BYTES).decode()))
    if COMMAND in properties:
        arguments = shlex.split(properties[COMMAND])
        return _Tokens(f"the command {arguments[0]}", lambda: _parsed(_printed(arguments)))
    if AWS in properties:
        return _Tokens("Amazon's credentials", _signer(json.loads(properties[AWS]), servers))
    return None


class _Tokens:
    """Callback of a client, which takes the last token again if a new one cannot be had yet."""

    def __init__(self, origin: str, make: Callable[[], tuple[str, float]]) -> None:
        self._origin = origin
        self._make = make
        self._last: tuple[str, float] | None = None

    def __call__(self, _config: str) -> Answer:
        now = time.time()
        try:
            self._last = token, until = _unexpired(self._make(), now)
        except Exception as failure:
            if self._last is None or self._last[1] < now + _SPARE_SECONDS:
                raise StreamError(f"{self._origin} gives no token: {failure}", code=401) from failure
            _log.warning("%s gives no new token, and the last one is used: %s", self._origin, failure)
            token, until = self._last
        return token, min(until, now + _LONGEST_SECONDS), str(_claims(token).get("sub", "")), {}


def _unexpired(made: tuple[str, float], now: float) -> tuple[str, float]:
    if made[1] <= now:
        raise ValueError("the token has expired")
    return made


def _parsed(text: str) -> tuple[str, float]:
    """Return a token and its end: a text, or an answer of OAuth 2 as JSON (RFC 6749, 5.1)."""
    token, seconds = text.strip(), None
    if token.startswith("{"):
        answer = json.loads(token)
        token, seconds = str(answer["access_token"]), answer.get("expires_in")
    if not token:
        raise ValueError("it is empty")
    until = _claims(token).get("exp")
    if not isinstance(until, int | float):
        until = time.time() + (float(seconds) if seconds is not None else _LONGEST_SECONDS)
    return token, float(until)


def _claims(token: str) -> JsonObject:
    """Return the claims of a JWT, unverified; none of another token."""
    parts = token.split(".")
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "==")) if len(parts) == 3 else {}
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _printed(arguments: Sequence[str]) -> str:
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        # What it prints may be secret.
        raise ValueError(f"it ended with {done.returncode}")
    return done.stdout


def _signer(settings: Mapping[str, str], servers: Sequence[str]) -> Callable[[], tuple[str, float]]:
    """Return what signs tokens by the settings of Amazon's login module."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Provider
    except ImportError as missing:
        raise MissingExtraError("msk", "aws_msk_iam_sasl_signer") from missing
    found = next((match[1] for server in servers if (match := _REGION.search(server))), None)
    region = found or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ValueError("no region is in the names of the servers, or in AWS_REGION")

    def signed() -> tuple[str, float]:
        if role := settings.get("awsRoleArn"):
            session = settings.get("awsRoleSessionName", "turnout")
            token, milliseconds = Provider.generate_auth_token_from_role_arn(region, role, session)
        elif profile := settings.get("awsProfileName"):
            token, milliseconds = Provider.generate_auth_token_from_profile(region, profile)
        else:
            token, milliseconds = Provider.generate_auth_token(region)
        return token, milliseconds / 1000

    return signed


_HEAD = re.compile(r"\s*+([\w.$]++)\s++(required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(r"""\s*+([\w.-]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|'((?:[^'\\]|\\.)*+)'|([^\s;"']++))""")
_END = re.compile(r"\s*+;\s*+")
_ESCAPE = re.compile(r"\\(.)")

_USER_AND_PASSWORD: Final = {"username": "sasl.username", "password": "sasl.password"}
_OAUTH: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_OF_IAM: Final = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
_IAM_HANDLER: Final = "IAMClientCallbackHandler"
_EXTENSION: Final = "extension_"
_UNSECURED: Final = "unsecuredLoginStringClaim_sub"


def translated_jaas(text: str) -> dict[str, str]:
    """Return the properties that stand for a ``sasl.jaas.config``.

    Raises:
        ValueError: it is no such text, or of a login module without an equivalent; says what to write instead, and
            repeats no value.

    >>> text = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="x";'
    >>> translated_jaas(text)
    {'sasl.username': 'ann', 'sasl.password': 'x'}
    """
    head = _HEAD.match(text)
    if head is None:
        raise ValueError('expected a login module and its options, as in PlainLoginModule required username="…";')
    module, options = head[1].rpartition(".")[2], _options(text, head.end())
    match module:
        case "PlainLoginModule" | "ScramLoginModule":
            return _renamed(module, options, _USER_AND_PASSWORD, required=("username", "password"))
        case "OAuthBearerLoginModule":
            return _oauth(options)
        case "IAMLoginModule":
            unknown = sorted(options.keys() - _OF_IAM)
            if unknown:
                raise ValueError(f"{module}: {', '.join(unknown)} cannot be used here; there are {', '.join(_OF_IAM)}")
            return {AWS: json.dumps(options)}
        case "Krb5LoginModule":
            raise ValueError("Kerberos is not supported: use SCRAM, OAUTHBEARER or a client certificate (mTLS)")
        case _:
            modules = "PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule and IAMLoginModule"
            raise ValueError(f"the login module {module} has no equivalent here; there are {modules}")


def _options(text: str, at: int) -> dict[str, str]:
    options = {}
    while (found := _OPTION.match(text, at)) is not None:
        quoted = next((part for part in found.groups()[1:3] if part is not None), None)
        options[found[1]] = found[4] if quoted is None else _ESCAPE.sub(r"\1", quoted)
        at = found.end()
    if _END.fullmatch(text, at) is None:
        raise ValueError(f"cannot be read after character {at}: expected name=\"value\" or a final ';'")
    return options


def _renamed(
    module: str, options: Mapping[str, str], names: Mapping[str, str], required: tuple[str, ...]
) -> dict[str, str]:
    unknown = sorted(options.keys() - names.keys())
    if unknown:
        raise ValueError(f"{module}: {', '.join(unknown)} cannot be used here; there are {', '.join(names)}")
    missing = [name for name in required if name not in options]
    if missing:
        raise ValueError(f"{module}: {' and '.join(missing)} is missing")
    return {names[name]: value for name, value in options.items()}


def _oauth(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a login by client credentials, or of an unsecured token, which brokers take in tests."""
    if _UNSECURED in options:
        others = sorted(options.keys() - {_UNSECURED})
        if others:
            raise ValueError(f"{', '.join(others)} cannot be used beside {_UNSECURED}")
        principal = f"principal={options[_UNSECURED]}"
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": principal}
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    rest = {name: value for name, value in options.items() if not name.startswith(_EXTENSION)}
    properties = _renamed("OAuthBearerLoginModule", rest, _OAUTH, required=("clientId", "clientSecret"))
    properties["sasl.oauthbearer.method"] = "oidc"
    if extensions:
        pairs = ",".join(f"{name}={value}" for name, value in extensions.items())
        properties["sasl.oauthbearer.extensions"] = pairs
    return properties


SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.sasl.", "enable.ssl.", "https.ca.")
"""Beginnings of the names that belong into a ``security`` block."""

_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

_OWN: Final = {
    "bootstrap.servers": "is the option servers",
    "transactional.id": "is set by turnout where exactlyOnce is true",
    "partitioner.class": "is the option partitionBy of the sink",
    "partitioner": "is the option partitionBy of the sink",
    "auto.offset.reset": "is set by turnout: the source has start and failOnDataLoss",
}
"""Properties with an option of turnout in their place."""

_OWN_SILENT: Final = frozenset(
    {
        "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "delivery.report.only.error",
        "enable.idempotence", "interceptor.classes", "group.instance.id",
        "key.serializer", "value.serializer", "key.deserializer", "value.deserializer",
    }
)  # fmt: skip
"""Properties that turnout sets itself, with nothing in their place."""

_JAVA_ONLY: Final = frozenset(
    {
        "max.block.ms", "max.poll.records", "default.api.timeout.ms", "metric.reporters", "metrics.num.samples",
        "metrics.recording.level", "metrics.sample.window.ms", "auto.include.jmx.reporter", "ssl.protocol",
        "ssl.enabled.protocols", "ssl.provider", "ssl.trustmanager.algorithm", "ssl.keymanager.algorithm",
        "ssl.secure.random.implementation", "security.providers", "exclude.internal.topics",
    }
)  # fmt: skip
"""Properties that only Java's client has, without effect on the records."""

_IAM: Final = "AWS_MSK_IAM"
_OAUTH_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_LARGEST_KBYTES: Final = 2_147_483_647


class Translated(NamedTuple):
    """Properties as librdkafka names them.

    Attributes:
        properties: names and values.
        ignored: names that only Java's client has.
        mistakes: unusable properties, each with its replacement; no value that may be secret is repeated.
    """

    properties: dict[str, str]
    ignored: tuple[str, ...]
    mistakes: tuple[Mistake, ...]


def translated(settings: Mapping[str, object], path: str = "") -> Translated:
    """Translate properties of a Kafka client, by the names of Java's client or of librdkafka.

    Args:
        settings: names and values.
        path: path of the block in the route file, for mistakes.

    >>> jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="x";'
    >>> translated({"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas, "max.poll.records": 500}).properties
    {'sasl.mechanisms': 'SCRAM-SHA-512', 'sasl.username': 'ann', 'sasl.password': 'x'}
    >>> [str(mistake) for mistake in translated({"ssl.truststore.location": "/etc/trust.jks"}, "security").mistakes]
    ... # doctest: +ELLIPSIS
    ['security.ssl.truststore.location: a Java key store cannot be read: export ...']
    """
    texts = {name: _text(value) for name, value in settings.items()}
    properties: dict[str, str] = {}
    ignored: list[str] = []
    mistakes: list[Mistake] = []
    for name, text in texts.items():
        if name in _JAVA_ONLY:
            ignored.append(name)
            continue
        try:
            properties |= _one(name, text, texts)
        except ValueError as wrong:
            mistakes.append(Mistake(f"{path}.{name}" if path else name, str(wrong)))
    return Translated(properties, tuple(ignored), tuple(mistakes))


def _one(name: str, text: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that stand for one.

    Raises:
        ValueError: none do; names the replacement.
    """
    if name in _OWN:
        raise ValueError(_OWN[name])
    if name in _OWN_SILENT:
        raise ValueError("is set by turnout itself: leave it out")
    special = _SPECIAL.get(name)
    if special is not None:
        return special(text, texts)
    return {_RENAMED.get(name, name): text}


def _acks(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    if text not in ("all", "-1"):
        raise ValueError(f"found {text!r}, expected all: a message counts as delivered when no replica can lose it")
    return {"acks": "all"}


def _truststore(text: str, texts: Mapping[str, str]) -> dict[str, str]:
    if texts.get("ssl.truststore.type", "JKS").upper() == "PEM" or text.endswith((".pem", ".crt")):
        return {"ssl.ca.location": text}
    raise ValueError(
        "a Java key store cannot be read: export the authorities (keytool -exportcert -rfc) and name the file under"
        " ssl.ca.location"
    )


def _keystore(text: str, texts: Mapping[str, str]) -> dict[str, str]:
    kind = texts.get("ssl.keystore.type", "").upper()
    if kind == "PEM" or text.endswith(".pem"):
        return {"ssl.certificate.location": text, "ssl.key.location": text}
    if kind == "PKCS12" or text.endswith((".p12", ".pfx")):
        return {"ssl.keystore.location": text}
    raise ValueError(
        "a Java key store cannot be read: name PEM files under ssl.certificate.location and ssl.key.location, or a"
        " PKCS#12 file here with ssl.keystore.type: PKCS12"
    )


def _mechanism(text: str, texts: Mapping[str, str]) -> dict[str, str]:
    if text.upper() != _IAM:
        return {"sasl.mechanisms": text}
    # A login module may name a profile or a role; librdkafka has the mechanism that Amazon's brokers also take.
    return {"sasl.mechanisms": "OAUTHBEARER", **({} if "sasl.jaas.config" in texts else {AWS: "{}"})}


def _token_endpoint(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    name = "sasl.oauthbearer.token.endpoint.url"
    return {FILE: file_of(text)} if text.startswith("file:") else {name: text}


def _nothing(_text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    return {}


def _trust_password(_text: str, texts: Mapping[str, str]) -> dict[str, str]:
    # A PEM file needs none, and a Java store is a mistake already.
    if "ssl.truststore.location" not in texts:
        raise ValueError("means nothing without ssl.truststore.location")
    return {}


def _host_check(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    if text.lower() not in ("", "none", "https"):
        raise ValueError(f"found {text!r}, expected https, or nothing to accept any host name")
    return {"ssl.endpoint.identification.algorithm": text.lower() or "none"}


def _login_handler(text: str, texts: Mapping[str, str]) -> dict[str, str]:
    uses_file = texts.get("sasl.oauthbearer.token.endpoint.url", "").startswith("file:")
    if text.rpartition(".")[2] == _IAM_HANDLER or (uses_file and text.rpartition(".")[2] == _OAUTH_HANDLER):
        return {}
    if text.rpartition(".")[2] != _OAUTH_HANDLER:
        raise ValueError("Java classes cannot be run here: use sasl.oauthbearer.method: oidc with client credentials")
    return {"sasl.oauthbearer.method": "oidc"}


def _buffer_memory(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"expected a number of bytes, found {text!r:.40}")
    kbytes = max(1, min(_LARGEST_KBYTES, int(text[:19]) // 1024))
    return {"queue.buffering.max.kbytes": str(kbytes)}


_SPECIAL: Final[dict[str, Callable[[str, Mapping[str, str]], dict[str, str]]]] = {
    "sasl.mechanism": _mechanism,
    "sasl.mechanisms": _mechanism,
    "sasl.oauthbearer.token.endpoint.url": _token_endpoint,
    "sasl.oauthbearer.token.command": lambda text, _: {COMMAND: command_of(text)},
    "sasl.jaas.config": lambda text, _: translated_jaas(text),
    "acks": _acks,
    "buffer.memory": _buffer_memory,
    "ssl.truststore.location": _truststore,
    "ssl.truststore.type": _nothing,
    "ssl.truststore.password": _trust_password,
    "ssl.truststore.certificates": lambda text, _: {"ssl.ca.pem": text},
    "ssl.keystore.location": _keystore,
    "ssl.keystore.type": _nothing,
    "ssl.keystore.certificate.chain": lambda text, _: {"ssl.certificate.pem": text},
    "ssl.keystore.key": lambda text, _: {"ssl.key.pem": text},
    "ssl.endpoint.identification.algorithm": _host_check,
    "sasl.login.callback.handler.class": _login_handler,
    "sasl.login.class": _login_handler,
    "sasl.client.callback.handler.class": _login_handler,
}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


_FILES: Final = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""Properties that name a PEM file → those with its text, so that workers need no file."""

_PATH: Final = "turnout.path."
"""Beginning of own properties with the paths of these files, by the names of the properties with their texts."""

_MOST_PEM_BYTES: Final = 1 << 20

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", _IAM)


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Servers, security and client properties, by librdkafka's names; secrets are not part of the ``repr``.

    Attributes:
        servers: ``host:port`` of each bootstrap server.
        properties: client properties.
        ignored: names of given properties that only Java's client has.
        timeout: seconds to wait for one answer.
        patience: seconds to retry while no broker answers.

    >>> KafkaOptions.of("a:9092, b:9092", {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    KafkaOptions(servers=('a:9092', 'b:9092'), ignored=(), timeout=10.0, patience=60.0)
    """

    servers: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    ignored: tuple[str, ...] = ()
    timeout: float = 10.0
    patience: float = 60.0

    @classmethod
    def of(
        cls,
        servers: str | Sequence[str],
        security: Mapping[str, object] | None = None,
        client: Mapping[str, object] | None = None,
        **more: float,
    ) -> Self:
        """Options from properties as a route has them; PEM files are read on this machine, and again for new clients.

        Args:
            servers: addresses, as a list or a text with commas.
            security: properties of the ``security`` block, by the names of Java's clients or of librdkafka.
            client: other client properties, likewise.
            more: attributes of this class.

        Raises:
            ConfigError: lists every mistake; no value that may be secret is repeated.
        """
        names = servers.split(",") if isinstance(servers, str) else servers
        # Java's clients accept a protocol before the host, and use only host and port.
        hosts = tuple(name.strip().rpartition("://")[2] for name in names if name.strip())
        secured, others = translated(security or {}, "security"), translated(client or {}, "options")
        mistakes = [*secured.mistakes, *others.mistakes, *security_mistakes(security or {})]
        properties = {**others.properties, **secured.properties}
        for name in _FILES.keys() & properties.keys():
            try:
                properties |= _read(name, properties.pop(name))
            except (OSError, ValueError) as failure:
                reason = getattr(failure, "strerror", None) or failure
                mistakes.append(Mistake(f"security.{name}", f"the file cannot be read: {reason}"))
        if mistakes:
            raise ConfigError(mistakes, what="Kafka client")
        return cls(hosts, properties, (*secured.ignored, *others.ignored), **more)

    @property
    def files(self) -> dict[str, Path]:
        """PEM files by the properties that have their texts."""
        return {
            name.removeprefix(_PATH): Path(path) for name, path in self.properties.items() if name.startswith(_PATH)
        }

    def renewed(self) -> dict[str, str]:
        """Return the texts that PEM files have now, of those that this machine has and that can be read."""
        texts = {}
        for name, file in self.files.items():
            with suppress(OSError, ValueError):
                texts[name] = read_file(file, max_bytes=_MOST_PEM_BYTES).decode("utf-8")
        return texts

    @property
    def isolation(self) -> str:
        """Isolation level of consumers: ``read_committed``, unless a property has another."""
        return self.properties.get("isolation.level", "read_committed")


def security_mistakes(security: Mapping[str, object]) -> list[Mistake]:
    """Return the mistakes of a ``security`` block that need no file and no server."""
    mistakes = list(translated(security, "security").mistakes)
    strange = [name for name in security if not name.startswith(SECURITY_PREFIXES)]
    mistakes += [
        Mistake(f"security.{name}", "is no property of security: it belongs under options") for name in strange
    ]
    for name, allowed in (("security.protocol", SECURITY_PROTOCOLS), ("sasl.mechanism", MECHANISMS)):
        text = str(security.get(name, allowed[0])).upper()
        if text not in allowed:
            mistakes.append(Mistake(f"security.{name}", f"found {text!r:.40}, expected one of {', '.join(allowed)}"))
    uses_sasl = any(name.startswith(("sasl.", "enable.sasl.")) for name in security)
    if uses_sasl and not str(security.get("security.protocol", "")).upper().startswith("SASL_"):
        problem = "has to be SASL_SSL or SASL_PLAINTEXT, as properties of SASL are given"
        mistakes.append(Mistake("security.security.protocol", problem))
    return list(dict.fromkeys(mistakes))


def _read(name: str, path: str) -> dict[str, str]:
    """Return the property with a file's text; a folder of authorities is kept as a path."""
    file = Path(path).expanduser()
    if file.is_dir() or path == "probe":
        return {name: path}
    text = read_file(file, max_bytes=_MOST_PEM_BYTES).decode("utf-8")
    return {_FILES[name]: text, f"{_PATH}{_FILES[name]}": str(file.absolute())}
