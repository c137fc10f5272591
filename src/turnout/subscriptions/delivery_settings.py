"""Delivery settings of a subscription whose destinations are HTTP endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from types import MappingProxyType
from typing import Final, Literal, Self, get_args

from turnout.base.clocks import parse_duration
from turnout.base.options import Kind, option, options_of, read_options
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

_FORMATS: Final[tuple[BodyFormat, ...]] = get_args(BodyFormat)

MAX_RETRIES: Final = 50
MAX_HEADERS: Final = 32
MONTH: Final = 30 * 86_400.0
"""Longest accepted duration, in seconds."""

_ORDER_KEY: Final = re.compile(r"(?:value|header)\.\S{1,250}")


def _unexpected(value: object, expected: str) -> ValueError:
    return ValueError(f"expected {expected}, found {value!r:.60}")


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _seconds(least: float, most: float) -> Kind[float]:
    def read(value: object) -> float:
        seconds = parse_duration(value) if isinstance(value, str) else _as_number(value)
        if seconds is None or not least <= seconds <= most:
            raise _unexpected(value, f"a duration from {least:g} to {most:g} seconds")
        return seconds

    return Kind(read)


def _as_number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _number(least: float, most: float) -> Kind[float]:
    def read(value: object) -> float:
        number = _as_number(value)
        if number is None or not least <= number <= most:
            raise _unexpected(value, f"a number from {least:g} to {most:g}")
        return number

    return Kind(read)


def _whole(least: int, most: int) -> Kind[int]:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _unexpected(value, f"a whole number from {least:,} to {most:,}")
        return value

    return Kind(read)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _unexpected(value, "true or false")
    return value


def _retry(value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise _unexpected(value, "a list of durations")
    if len(value) > MAX_RETRIES:
        raise ValueError(f"expected at most {MAX_RETRIES} durations, found {len(value):,}")
    return tuple(map(_seconds(0.001, MONTH).read, value))


def _order_key(value: object) -> str | None:
    if value is None or (isinstance(value, str) and _ORDER_KEY.fullmatch(value)):
        return value
    raise _unexpected(value, "value.PATH or header.NAME")


def _format(value: object) -> BodyFormat:
    for form in _FORMATS:
        if form == value:
            return form
    raise _unexpected(value, f"one of {', '.join(_FORMATS)}")


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


def _or_none(kind: Kind[float]) -> Kind[float | None]:
    return Kind(lambda value: None if value is None else kind.read(value))


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

    retry: tuple[float, ...] = option(Kind(_retry), (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0, 86_400.0))
    jitter: float = option(_number(0, 1), 0.1)
    retry_after: float = option(_seconds(0, MONTH), 3_600.0)
    ordered: bool = option(Kind(_flag), False)
    order_by: str | None = option(Kind(_order_key), None)
    rate: float | None = option(_or_none(_number(0.001, 1_000_000)), None)
    concurrency: int = option(_whole(1, 1_000), 8)
    timeout: float = option(_seconds(0.001, 3_600), 15.0)
    max_response: int = option(_whole(0, 16 << 20), 65_536)
    max_waiting: int = option(_whole(1, 10_000_000), 10_000)
    breaker_failures: int = option(_whole(0, 1_000_000), 10)
    breaker_pause: float = option(_seconds(0.001, MONTH), 30.0)
    disable_after: float | None = option(_or_none(_seconds(0.001, MONTH)), 5 * 86_400.0)
    format: BodyFormat = option(Kind(_format), "standard")
    headers: Mapping[str, str] = option(Kind(_headers), {})
    header_names: Mapping[str, str] = option(Kind(read_header_names), {})
    secrets: tuple[SigningSecret, ...] = option(Kind(read_secrets), (), secret=True)
    credentials: SigningSecret | None = option(Kind(read_credentials), None, secret=True)

    def __post_init__(self) -> None:
        mistakes: list[Mistake] = []
        options = options_of(type(self))
        given = {one.name: getattr(self, name) for name, one in options.items()}
        for name, value in read_options(options, given, mistakes).items():
            object.__setattr__(self, name, value)
        mistakes = mistakes or list(_contradictions(self))
        if mistakes:
            raise ConfigError(mistakes, what="delivery settings")

    def __hash__(self) -> int:
        maps = ("headers", "header_names")
        values = [getattr(self, item.name) for item in fields(self) if item.name not in maps]
        return hash((*values, *(tuple(sorted(getattr(self, name).items())) for name in maps)))

    def __reduce__(self) -> tuple[Callable[[object], Self], tuple[JsonObject]]:
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
        options = options_of(cls)
        known = [one.name for one in options.values()]
        unknown = [str(key) for key in mapping if key not in known]
        mistakes = [Mistake(key, f"unknown setting{guess}") for key, guess in guesses(unknown, known)]
        values = read_options(options, mapping, mistakes)
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
        values: JsonObject = {
            one.name: _plain(value)
            for name, one in options_of(type(self)).items()
            if name not in ("secrets", "credentials") and (value := getattr(self, name)) != one.default
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


def _contradictions(settings: DeliverySettings) -> Iterator[Mistake]:
    if settings.ordered and settings.order_by is not None:
        yield Mistake("orderBy", "ordered puts all messages in one order already: one of the two has to go")
    own = {name.lower() for name in HeaderNames.of(settings.header_names)}
    for name in settings.headers:
        if name.lower() in own:
            yield Mistake("headers", f"{name} is the name of a header of headerNames: one of the two has to go")
