"""Delivery settings of a subscription whose destinations are HTTP endpoints."""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, Literal, Self, TypeAlias, get_args

from turnout.base.clocks import parse_duration
from turnout.base.terminal import guesses
from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, Mistake
from turnout.secrets import is_secret

SYMMETRIC: Final = "whsec_"
"""Prefix of a secret for HMAC-SHA256 (Standard Webhooks, "v1")."""

ASYMMETRIC: Final = "whsk_"
"""Prefix of a private key for Ed25519 (Standard Webhooks, "v1a"): 32 bytes of seed, or those and the public key."""

MAX_SECRETS: Final = 4
"""Secrets that may be valid at the same time, for rotation."""

_SIZES: Final = {SYMMETRIC: range(24, 65), ASYMMETRIC: (32, 64)}
_SEALED: Final = re.compile(r"sealed:([0-9a-f]{8}):([A-Za-z0-9_=-]{100,2000})")
_HIDDEN: Final = re.compile(r"hidden:([0-9a-f]{8})")


def secret_bytes(secret: str) -> tuple[str, bytes]:
    """Return the prefix and the bytes of a signing secret.

    Raises:
        ValueError: it is none; without the secret.
    """
    prefix, key = decoded_secret(secret, _SIZES)
    if not prefix:
        raise ValueError(f"expected {SYMMETRIC} (HMAC-SHA256) or {ASYMMETRIC} (Ed25519), and base64 behind it")
    if len(key) not in _SIZES[prefix]:
        expected = "24 to 64" if prefix == SYMMETRIC else "32 or 64"
        raise ValueError(f"expected {expected} bytes in base64 behind {prefix}, found {len(key):,} bytes")
    return prefix, key


def decoded_secret(secret: str, prefixes: Iterable[str]) -> tuple[str, bytes]:
    """Return which of the prefixes a secret has, and the bytes behind it; both empty if it has none.

    Raises:
        ValueError: no base64 is behind it; without the secret.
    """
    prefix = next(filter(secret.startswith, prefixes), "")
    try:
        return prefix, b64decode(secret.removeprefix(prefix), validate=True) if prefix else b""
    except ValueError:
        raise ValueError(f"expected base64 behind {prefix}") from None


def new_secret() -> str:
    """Return a new secret for HMAC-SHA256, of 256 random bits."""
    return f"{SYMMETRIC}{b64encode(secrets.token_bytes(32)).decode()}"


@dataclass(frozen=True, slots=True, repr=False)
class PlainSecret:
    """Secret as its owner gives it; no store keeps it, and only `text` shows it."""

    text: str

    def __repr__(self) -> str:
        return "***"


@dataclass(frozen=True, slots=True, repr=False)
class SealedSecret:
    """Encrypted secret, see `turnout.subscriptions.sealing`.

    Attributes:
        name: identifies it in views, also after it has been encrypted again; random.
        token: the encrypted text.
    """

    name: str
    token: str = field(repr=False)

    @property
    def text(self) -> str:
        """Form in which stores and exports have it."""
        return f"sealed:{self.name}:{self.token}"

    def __repr__(self) -> str:
        return HiddenSecret(self.name).text


@dataclass(frozen=True, slots=True, repr=False)
class HiddenSecret:
    """Marker in place of a stored secret; an update with it keeps the secret.

    >>> HiddenSecret("0f3a9c1e")
    hidden:0f3a9c1e
    """

    name: str

    @property
    def text(self) -> str:
        """Form in which callers see it."""
        return f"hidden:{self.name}"

    def __repr__(self) -> str:
        return self.text


SigningSecret: TypeAlias = PlainSecret | SealedSecret | HiddenSecret


def read_secrets(value: object) -> tuple[SigningSecret, ...]:
    """Return the secrets of a list of texts, or of secrets.

    Raises:
        ValueError: names the index and the expectation; without the value, which may be a secret.
    """
    if not isinstance(value, list | tuple):
        raise _unexpected_secret(value, "a list of secrets")
    if len(value) > MAX_SECRETS:
        raise ValueError(f"expected at most {MAX_SECRETS} secrets, found {len(value):,}")
    return tuple(_read(index, one) for index, one in enumerate(value))


def _unexpected_secret(value: object, expected: str) -> ValueError:
    return ValueError(f"expected {expected}, found {type(value).__name__}")


def _read(index: int, value: object) -> SigningSecret:
    if isinstance(value, PlainSecret | SealedSecret | HiddenSecret):
        return value
    if not isinstance(value, str):
        raise _unexpected_secret(value, f"a text at {index}")
    if sealed := _SEALED.fullmatch(value):
        return SealedSecret(sealed[1], sealed[2])
    if hidden := _HIDDEN.fullmatch(value):
        return HiddenSecret(hidden[1])
    try:
        secret_bytes(value)
    except ValueError as problem:
        raise ValueError(f"[{index}]: {problem}") from None
    return PlainSecret(value)


def stored_texts(secrets: Iterable[SigningSecret]) -> list[str]:
    """Return the texts that a store may keep.

    Raises:
        ConfigError: a secret is plain. `turnout.subscriptions.sealing.sealed_all` encrypts it.
    """
    texts = []
    for index, secret in enumerate(secrets):
        if isinstance(secret, PlainSecret):
            raise ConfigError([Mistake(f"secrets[{index}]", "it is not encrypted, and no store keeps it")])
        texts.append(secret.text)
    return texts


BodyFormat = Literal["standard", "cloudevents-binary", "cloudevents-structured", "cloudevents-batched"]
"""Form of a request: the message's bytes as they are, or a CloudEvent in one of three modes; a batch has one event."""

MAX_RETRIES: Final = 50
MAX_HEADERS: Final = 32
MAX_HEADER: Final = 4_096
MONTH: Final = 30 * 86_400.0
"""Longest accepted duration, in seconds."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE: Final = re.compile(r"[\x20-\x7e\t]*")
_ORDER_KEY: Final = re.compile(r"(?:value|header)\.\S{1,250}")
_OWN_HEADERS: Final = ("webhook-", "ce-", "nats-", "turnout-")
_CONNECTION_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
)


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Settings of the requests that deliver a subscription's messages.

    The values are checked when the settings are made: there are no invalid ones.

    Attributes:
        retry: seconds to wait before each further attempt; the message is a dead letter after the last. Empty: none.
        jitter: largest random part of a wait, as a fraction of it: 0.2 makes 60 s some 48 to 72 s.
        retry_after: longest wait that an endpoint may request by Retry-After, in seconds.
        ordered: send one message at a time, in the stream's order; a failed one blocks those behind it.
        order_by: block only messages with the same value of this key, ``value.PATH`` (JSON) or ``header.NAME``.
        rate: most requests of a second; None for no limit.
        concurrency: most requests at one time.
        timeout: seconds from the beginning of a request to the end of its response.
        max_response: bytes of a response that are read; the connection is closed if there are more.
        max_waiting: most messages that wait for an endpoint, failed ones included; further ones are dead letters.
        breaker_failures: consecutive failures that open the circuit breaker; 0 for no breaker.
        breaker_pause: seconds until an open breaker lets one request pass as a probe; doubles with each failed probe.
        format: form of the body.
        headers: additional headers of each request; no secrets, which belong to an endpoint.
        secrets: sign each request, each with its own signature, in place of the endpoint's; stores encrypt them.

    >>> DeliverySettings.from_mapping({"retry": ["1s", 60], "orderBy": "value.account"}).to_mapping()
    {'retry': [1.0, 60.0], 'orderBy': 'value.account'}
    >>> DeliverySettings(timeout=0)
    Traceback (most recent call last):
        ...
    turnout.errors.ConfigError: delivery settings: 1 mistake
      timeout: expected a duration from 0.001 to 3600 seconds, found 0
    """

    retry: tuple[float, ...] = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0, 86_400.0)
    jitter: float = 0.1
    retry_after: float = 3_600.0
    ordered: bool = False
    order_by: str | None = None
    rate: float | None = None
    concurrency: int = 8
    timeout: float = 15.0
    max_response: int = 65_536
    max_waiting: int = 10_000
    breaker_failures: int = 10
    breaker_pause: float = 30.0
    format: BodyFormat = "standard"
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[SigningSecret, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "retry", tuple(self.retry))
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))
        mistakes = []
        for name, option in _OPTIONS.items():
            try:
                object.__setattr__(self, name, option.read(getattr(self, name)))
            except ValueError as problem:
                mistakes.append(Mistake(option.key, str(problem)))
        mistakes = mistakes or list(_contradictions(self))
        if mistakes:
            raise ConfigError(mistakes, what="delivery settings")

    def __hash__(self) -> int:
        return hash((*(getattr(self, name) for name in _OPTIONS if name != "headers"), *sorted(self.headers.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_mapping, (self.to_mapping(plain=True),)

    @classmethod
    def from_mapping(cls, mapping: object) -> Self:
        """Read settings from plain values, as YAML or JSON has them; durations are seconds or texts such as ``"2m"``.

        Raises:
            ConfigError: lists every mistake with its key.
        """
        if not isinstance(mapping, Mapping):
            # Not the value: it may be a list of secrets.
            found = type(mapping).__name__
            raise ConfigError([Mistake("", f"expected an object, found {found}")], what="delivery settings")
        by_key = {option.key: name for name, option in _OPTIONS.items()}
        unknown = [str(key) for key in mapping if key not in by_key]
        mistakes = [Mistake(key, f"unknown setting{guess}") for key, guess in guesses(unknown, by_key)]
        values: JsonObject = {}
        for key, name in by_key.items():
            if key not in mapping:
                continue
            try:
                values[name] = _OPTIONS[name].read(mapping[key])
            except ValueError as problem:
                mistakes.append(Mistake(key, str(problem)))
        if mistakes:
            raise ConfigError(mistakes, what="delivery settings")
        return cls(**values)

    def to_mapping(self, *, plain: bool = False) -> JsonObject:
        """Return the settings that are not defaults as plain values, from which `from_mapping` restores them.

        Args:
            plain: with secrets that are not encrypted, for the way to a service that encrypts them.

        Raises:
            ConfigError: a secret is not encrypted, and *plain* is False.
        """
        values = {
            _OPTIONS[item.name].key: _plain(getattr(self, item.name))
            for item in fields(self)
            if item.name != "secrets" and getattr(self, item.name) != _default(item)
        }
        if self.secrets:
            values["secrets"] = [one.text for one in self.secrets] if plain else stored_texts(self.secrets)
        return values

    def hidden(self) -> Self:
        """Return the settings with markers in place of stored secrets."""
        shown = [HiddenSecret(one.name) if isinstance(one, SealedSecret) else one for one in self.secrets]
        return replace(self, secrets=tuple(shown))


@dataclass(frozen=True, slots=True)
class _Option:
    """Key of a setting, and the function that reads its value or raises ValueError."""

    key: str
    read: Callable[[object], Any]


def _unexpected(value: object, expected: str) -> ValueError:
    return ValueError(f"expected {expected}, found {value!r:.60}")


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _default(item: Any) -> object:
    return item.default if item.default is not MISSING else item.default_factory()


def _seconds(least: float, most: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        seconds = parse_duration(value) if isinstance(value, str) else _as_number(value)
        if seconds is None or not least <= seconds <= most:
            raise _unexpected(value, f"a duration from {least:g} to {most:g} seconds")
        return seconds

    return read


def _as_number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _number(least: float, most: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        number = _as_number(value)
        if number is None or not least <= number <= most:
            raise _unexpected(value, f"a number from {least:g} to {most:g}")
        return number

    return read


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _unexpected(value, f"a whole number from {least:,} to {most:,}")
        return value

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _unexpected(value, "true or false")
    return value


def _retry(value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise _unexpected(value, "a list of durations")
    if len(value) > MAX_RETRIES:
        raise ValueError(f"expected at most {MAX_RETRIES} durations, found {len(value):,}")
    return tuple(map(_seconds(0.001, MONTH), value))


def _order_key(value: object) -> str | None:
    if value is None or (isinstance(value, str) and _ORDER_KEY.fullmatch(value)):
        return value
    raise _unexpected(value, "value.PATH or header.NAME")


def _format(value: object) -> str:
    if isinstance(value, str) and value in get_args(BodyFormat):
        return value
    raise _unexpected(value, f"one of {', '.join(get_args(BodyFormat))}")


def _headers(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise _unexpected(value, "names and texts")
    if len(value) > MAX_HEADERS:
        raise ValueError(f"expected at most {MAX_HEADERS} headers, found {len(value):,}")
    for name, text in value.items():
        check_header(name, text)
        if is_secret(name):
            raise ValueError(f"{name} holds a secret: it belongs to an endpoint, where it is stored encrypted")
    check_header_names(value)
    return MappingProxyType(dict(value))


def check_header_names(names: Iterable[str]) -> None:
    """Refuse names of one header in two spellings, of which a receiver would see both, or one.

    Raises:
        ValueError: names both.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(f"{other} and {name} are one header: case does not matter in its name")


def check_header(name: object, text: object) -> None:
    """Refuse an additional header that cannot be sent, or that is set by the dispatcher.

    Raises:
        ValueError: says what was expected; without the text, which may be a secret.
    """
    if not isinstance(name, str) or not _TOKEN.fullmatch(name) or len(name) > 100:
        raise ValueError(f"expected the name of a header, found {name!r:.60}")
    if name.lower() in _CONNECTION_HEADERS or name.lower().startswith(_OWN_HEADERS):
        raise ValueError(f"{name} is set by turnout")
    if not isinstance(text, str) or len(text) > MAX_HEADER or not _VISIBLE.fullmatch(text):
        raise ValueError(f"{name}: expected a text of at most {MAX_HEADER:,} visible ASCII characters")


def _contradictions(settings: DeliverySettings) -> Iterator[Mistake]:
    if settings.ordered and settings.order_by is not None:
        yield Mistake("orderBy", "ordered puts all messages in one order already: one of the two has to go")


_OPTIONS: Final[Mapping[str, _Option]] = {
    "retry": _Option("retry", _retry),
    "jitter": _Option("jitter", _number(0, 1)),
    "retry_after": _Option("retryAfter", _seconds(0, MONTH)),
    "ordered": _Option("ordered", _flag),
    "order_by": _Option("orderBy", _order_key),
    "rate": _Option("rate", lambda value: None if value is None else _number(0.001, 1_000_000)(value)),
    "concurrency": _Option("concurrency", _whole(1, 1_000)),
    "timeout": _Option("timeout", _seconds(0.001, 3_600)),
    "max_response": _Option("maxResponse", _whole(0, 16 << 20)),
    "max_waiting": _Option("maxWaiting", _whole(1, 10_000_000)),
    "breaker_failures": _Option("breakerFailures", _whole(0, 1_000_000)),
    "breaker_pause": _Option("breakerPause", _seconds(0.001, MONTH)),
    "format": _Option("format", _format),
    "headers": _Option("headers", _headers),
    "secrets": _Option("secrets", read_secrets),
}
