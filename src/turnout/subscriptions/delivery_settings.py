"""Delivery settings of a subscription whose destinations are HTTP endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, Literal, Self, get_args

from turnout.base.clocks import parse_duration
from turnout.base.terminal import guesses
from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, Mistake
from turnout.secrets import is_secret
from turnout.subscriptions.credentials import (
    HeaderNames,
    HiddenSecret,
    PlainSecret,
    SealedSecret,
    SigningSecret,
    check_header,
    check_header_names,
    hidden_credentials,
    plain_credentials,
    read_credentials,
    read_header_names,
    read_secrets,
    stored_texts,
)

BodyFormat = Literal["standard", "cloudevents-binary", "cloudevents-structured", "cloudevents-batched"]
"""Form of a request: the message's bytes as they are, or a CloudEvent in one of three modes; a batch has one event."""

MAX_RETRIES: Final = 50
MAX_HEADERS: Final = 32
MONTH: Final = 30 * 86_400.0
"""Longest accepted duration, in seconds."""

_ORDER_KEY: Final = re.compile(r"(?:value|header)\.\S{1,250}")


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
        disable_after: seconds of failures alone after which the endpoint is disabled, at the earliest after ten of
            them; None for never.
        format: form of the body.
        headers: additional headers of each request; no secrets, which belong into the credentials.
        header_names: names of the headers that identify and sign a request, by the keys id, timestamp, signature,
            receiver and receiverSignature; those of Standard Webhooks for others.
        secrets: sign each request, each with its own signature, in place of the endpoint's; stores encrypt them.
        credentials: secret headers, basic authentication, OAuth 2 or a client's certificate
            (`turnout.subscriptions.credentials`), in place of the endpoint's; stores encrypt them.

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
    disable_after: float | None = 5 * 86_400.0
    format: BodyFormat = "standard"
    headers: Mapping[str, str] = field(default_factory=dict)
    header_names: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[SigningSecret, ...] = ()
    credentials: SigningSecret | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "retry", tuple(self.retry))
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))
        object.__setattr__(self, "header_names", MappingProxyType(dict(self.header_names)))
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
        maps = ("headers", "header_names")
        values = [getattr(self, name) for name in _OPTIONS if name not in maps]
        return hash((*values, *(tuple(sorted(getattr(self, name).items())) for name in maps)))

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
            if item.name not in ("secrets", "credentials") and getattr(self, item.name) != _default(item)
        }
        if self.secrets:
            values["secrets"] = [one.text for one in self.secrets] if plain else stored_texts(self.secrets)
        if self.credentials is not None:
            if isinstance(self.credentials, PlainSecret) and not plain:
                raise ConfigError([Mistake("credentials", "they are not encrypted, and no store keeps them")])
            values["credentials"] = plain_credentials(self.credentials)
        return values

    @property
    def has_secrets(self) -> bool:
        """True with secrets or credentials, which stores encrypt."""
        return bool(self.secrets) or self.credentials is not None

    def hidden(self) -> Self:
        """Return the settings with markers in place of stored secrets."""
        shown = [HiddenSecret(one.name) if isinstance(one, SealedSecret) else one for one in self.secrets]
        return replace(self, secrets=tuple(shown), credentials=hidden_credentials(self.credentials))


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
            raise ValueError(f"{name} holds a secret: it belongs into credentials.headers, which are stored encrypted")
    check_header_names(value)
    return MappingProxyType(dict(value))


def _contradictions(settings: DeliverySettings) -> Iterator[Mistake]:
    if settings.ordered and settings.order_by is not None:
        yield Mistake("orderBy", "ordered puts all messages in one order already: one of the two has to go")
    own = {name.lower() for name in HeaderNames.of(settings.header_names)}
    for name in settings.headers:
        if name.lower() in own:
            yield Mistake("headers", f"{name} is the name of a header of headerNames: one of the two has to go")


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
    "disable_after": _Option("disableAfter", lambda value: None if value is None else _seconds(0.001, MONTH)(value)),
    "format": _Option("format", _format),
    "headers": _Option("headers", _headers),
    "header_names": _Option("headerNames", read_header_names),
    "secrets": _Option("secrets", read_secrets),
    "credentials": _Option("credentials", read_credentials),
}
