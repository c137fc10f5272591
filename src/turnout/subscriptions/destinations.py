"""Destinations: their syntax, delivery times behind them, webhooks, and those that a caller may not use.

A destination is a subject without wildcards, ``sink:subject`` where a route has several named sinks, a webhook, or
``feed:`` for the subscription's feed alone. A subject may end with a time, as in ``orders.late?delay=15m``. Whether a
stream takes it is known only to the server.

A webhook is an ``https://`` or ``http://`` URL, or ``webhook:NAME`` for an endpoint of the route. Its deliveries are
stored as ``PREFIX.ENDPOINT.SUBSCRIPTION``, with both texts in base64url, so that a subject says where a message
goes and under which settings, and no header is needed for each copy of a record.

"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Literal, Self, cast
from urllib.parse import urlsplit

from turnout.errors import SubscriptionInvalidError
from turnout.records.field_paths import PathError, has_elements, is_prefix, parse_elements
from turnout.subjects import matches
from turnout.subjects.pattern import MAX_BYTES, Rights

if TYPE_CHECKING:
    from turnout.subscriptions.lines import PlainLine
    from turnout.subscriptions.model import Subscription


MICROSECONDS: Final = 1_000_000
MOST_SECONDS: Final = 30 * 86_400
"""The longest that a message waits, from the time of its record: 30 days."""

_UNITS: Final = {"ms": 1_000, "s": MICROSECONDS, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_PARTS = re.compile(r"(?:\d{1,12}(?:\.\d{1,9})?(?:ms|[smhd]))+")
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|[smhd])")
_ISO = re.compile(r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?")
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?")
"""A number as JSON has it, or as texts of floating-point numbers do."""

_PATH = re.compile(r"(?:value|key|header)\..+")
_SUFFIX = re.compile(r"(.+)\?(delay|deliverAt)=(.+)", re.DOTALL)
_NEAR_SUFFIX = re.compile(r"\?(delay|deliver[-_]?at)=", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{\{[^{}]*+\}\}|\$[0-9]+(?=[.?]|$)|\$\{[^{}]*\}")

_SCALES: Final = (
    (Decimal("1e11"), Decimal(1_000_000)),
    (Decimal("1e14"), Decimal(1_000)),
    (Decimal("1e17"), Decimal(1)),
    (Decimal("Infinity"), Decimal("0.001")),
)
"""Limits of numbers, and the microseconds that one is: of seconds, of milli-, of micro- and of nanoseconds."""

DURATION: Final = "a number of seconds, or a duration like 90s, 1h30m or PT15M"
MOMENT: Final = "an ISO 8601 time with its zone, or a number of seconds or milliseconds since 1970"


def duration_of(text: str) -> int | None:
    """Return the microseconds of a duration; None if the text is none.

    >>> [duration_of(text) for text in ("1.5", "1h30m", "PT15M", "250ms", "soon", "PT")]
    [1500000, 5400000000, 900000000, 250000, None, None]
    """
    if _NUMBER.fullmatch(text):
        return round(Decimal(text) * MICROSECONDS)
    if _PARTS.fullmatch(text):
        return round(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    found = _ISO.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    sizes = (86_400, 3_600, 60, 1)
    return round(sum(float(part or 0) * size for part, size in zip(found.groups(), sizes, strict=True)) * MICROSECONDS)


def moment_of(text: str) -> int | None:
    """Return the microseconds since 1970 of a time; None if the text is none, or has no zone.

    A number below 10^11 is in seconds, else in milli-, micro- or nanoseconds: others would be years away from a record.

    >>> [moment_of(text) for text in ("1970-01-01T00:00:01+00:00", "1800000000", "1800000000000", "2027-01-01")]
    [1000000, 1800000000000000, 1800000000000000, None]
    """
    if _NUMBER.fullmatch(text):
        number = Decimal(text)
        scale = next(scale for limit, scale in _SCALES if number < limit)
        return round(number * scale)
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            return None
        since = time - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of a message: after a delay from its record's time, or at a moment.

    Attributes:
        kind: ``delay`` or ``deliverAt``.
        text: as it is written: a constant, or a path.
        constant: the microseconds of a constant; None for a path.

    >>> Timing.parse("delay", "15m").constant, Timing.parse("deliverAt", "value.due").constant
    (900000000, None)
    """

    kind: Literal["delay", "deliverAt"]
    text: str
    constant: int | None = None

    @property
    def expected(self) -> str:
        """Description of a value."""
        return DURATION if self.kind == "delay" else MOMENT

    def read(self, text: str) -> int | None:
        """Return the microseconds of a value; None if it is none."""
        return duration_of(text) if self.kind == "delay" else moment_of(text)

    @classmethod
    def parse(cls, kind: Literal["delay", "deliverAt"], text: str) -> Self:
        """Return the timing that a text means.

        Raises:
            ValueError: it means none.
        """
        if _PATH.fullmatch(text):
            check_path(text)
            return cls(kind, text)
        timing = cls(kind, text)
        constant = timing.read(text)
        if constant is None:
            raise ValueError(
                f"found {text!r:.80}, expected {timing.expected}, or a path: value.FIELD, key.FIELD or header.NAME"
            )
        if kind == "delay" and constant > MOST_SECONDS * MICROSECONDS:
            raise ValueError(f"found {text!r:.80}, expected 30 days at most")
        return cls(kind, text, constant)


@lru_cache(maxsize=10_000)
def split_timing(destination: str) -> tuple[str, Timing | None, str | None]:
    """Return a destination without the time at its end, the time, and why that is none.

    >>> split_timing("late.orders?delay=1h")[0], split_timing("orders?limit=5")[1], split_timing("a?delay=soon")[2][:12]
    ('late.orders', None, '?delay=: fou')
    """
    found = _SUFFIX.fullmatch(destination)
    if found is None:
        return destination, None, None
    try:
        return found[1], Timing.parse(cast("Literal['delay', 'deliverAt']", found[2]), found[3]), None
    except ValueError as problem:
        return found[1], None, f"?{found[2]}=: {problem}"


def check_path(text: str) -> None:
    """Refuse a path that is not that of one header or one field.

    Raises:
        ValueError: it is none.
    """
    if not _PATH.fullmatch(text):
        raise ValueError(f"found {text!r:.80}, expected value.FIELD, key.FIELD or header.NAME")
    if text.startswith("header."):
        return
    try:
        steps = parse_elements(text)
    except PathError as problem:
        raise ValueError(f"found {text!r:.80}: {problem}") from None
    if is_prefix(text) or has_elements(steps):
        raise ValueError(f"found {text!r:.80}, expected the path of one field")


NAMED: Final = "webhook:"
"""Prefix of a destination that is an endpoint of the route by its name."""

MAX_URL: Final = 1_024
"""Longest URL in bytes: as base64 it leaves a subject room for the subscription."""

_ENDPOINT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URL_CHARACTERS: Final = re.compile(r"[\x21-\x7e]+")
_HOST_NAME: Final = re.compile(r"(?=.{1,254}$)(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
"""Name that a resolver takes; IPv4 addresses in any form have its characters, too."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")
_NO_SUBSCRIPTION: Final = "-"


def is_url(destination: str) -> bool:
    """Return True for a destination that is an HTTP URL.

    >>> is_url("https://hooks.example/in"), is_url("sink:orders.new")
    (True, False)
    """
    return destination.startswith(("https://", "http://"))


def is_webhook(destination: str) -> bool:
    """Return True for a URL, or an endpoint by its name."""
    return destination.startswith(("https://", "http://", NAMED))


def webhook_problem(destination: str) -> str | None:
    """Return the reason that no request can be sent to a webhook; None for a valid one.

    >>> webhook_problem("https://hooks.example/in?x=1"), webhook_problem("webhook:billing")
    (None, None)
    >>> webhook_problem("https:///in")
    'is no URL of a webhook: it has no host'
    """
    if destination.startswith(NAMED):
        name = destination.removeprefix(NAMED)
        return None if _ENDPOINT_NAME.fullmatch(name) else f"names no endpoint: found {name!r:.60}"
    problem = _url_problem(destination)
    return None if problem is None else f"is no URL of a webhook: {problem}"


def _url_problem(url: str) -> str | None:
    if len(url) > MAX_URL:
        return f"it has {len(url):,} characters, at most {MAX_URL:,} are taken"
    if not _URL_CHARACTERS.fullmatch(url):
        return "it has spaces, control characters or others beyond ASCII, which a URL has percent-encoded"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        return str(problem)
    if not parts.hostname:
        return "it has no host"
    if not _is_host(parts.hostname, is_literal="[" in parts.netloc):
        return f"its host is no name and no address: found {parts.hostname!r:.60}"
    if port == 0:
        return "no server has the port 0"
    if parts.username is not None or parts.password is not None:
        return "it has a login, which belongs to a named endpoint"
    return "it has a fragment, which is never sent" if parts.fragment else None


def _is_host(host: str, *, is_literal: bool) -> bool:
    if not is_literal:
        return _HOST_NAME.fullmatch(host) is not None
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


def delivery_subject(prefix: str, destination: str, subscription: str) -> str:
    """Return the subject of a delivery; ``""`` stands for no subscription.

    >>> delivery_subject("deliver", "webhook:a", "s1")
    'deliver.d2ViaG9vazph.czE'
    """
    return f"{prefix}.{_encoded(destination)}.{_encoded(subscription) if subscription else _NO_SUBSCRIPTION}"


def delivery_address(prefix: str, subject: str) -> tuple[str, str] | None:
    """Return the destination and the subscription of a delivery's subject; None for another subject.

    In a stream the number of the endpoint's share may precede them.

    >>> [delivery_address("deliver", f"deliver.{rest}") for rest in ("d2ViaG9vazph.czE", "3.d2ViaG9vazph.czE", "3.3")]
    [('webhook:a', 's1'), ('webhook:a', 's1'), None]
    """
    tokens = subject.removeprefix(f"{prefix}.").split(".")
    if len(tokens) == 3 and tokens[0].isdecimal():
        del tokens[0]
    if not subject.startswith(f"{prefix}.") or len(tokens) != 2 or not all(map(_TOKEN.fullmatch, tokens)):
        return None
    try:
        return _decoded(tokens[0]), "" if tokens[1] == _NO_SUBSCRIPTION else _decoded(tokens[1])
    except ValueError:
        return None


@lru_cache(100_000)
def _encoded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _decoded(token: str) -> str:
    return urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


FEED = "feed:"
"""Destination of a subscription whose messages are read from its feed, and sent nowhere."""

_SURELY_SHORT = MAX_BYTES // 4
_UNFIT = re.compile("[\\s\x00-\x1f\x7f\ud800-\udfff]")
_PIECE = "[^\\s.*>\x00-\x1f\x7f\ud800-\udfff][^\\s.\x00-\x1f\x7f\ud800-\udfff]*"
_SUBJECT = re.compile(rf"{_PIECE}(?:\.{_PIECE})*")
_SHOWN_CHARACTERS = 80


@lru_cache(maxsize=4_096)
def problem_of(destination: str) -> str | None:
    """Return the reason that no message can be published to a destination; None for a valid one.

    >>> problem_of("deliver.desk.7")
    >>> problem_of("deliver..desk")
    'cannot be published to: an empty token at position 8'
    >>> problem_of("sink:deliver.>")
    "cannot be published to: a token cannot begin with the wildcard '>' (at position 13)"
    """
    if len(destination) > _SURELY_SHORT:
        size = len(destination.encode("utf-8", "replace"))
        if size > MAX_BYTES:
            return f"cannot be published to: it has {size:,} bytes, at most {MAX_BYTES:,} are taken"
    if "?d" in destination and not is_url(destination):
        destination, _, problem = split_timing(destination)
        if problem is not None:
            return f"cannot be delivered later: {problem}"
    if destination == FEED or (_SUBJECT.fullmatch(destination) and ":" not in destination):
        return None
    if is_url(destination):
        return webhook_problem(destination)
    head, colon, rest = destination.partition(":")
    problem = _problem(destination, 0)
    if problem is None and colon:
        # The part behind a sink's name is a subject of its own.
        problem = _problem(rest, len(head) + 1)
    return None if problem is None else f"cannot be published to: {problem}"


def _problem(subject: str, begun: int) -> str | None:
    if not subject.strip():
        return f"there is no subject behind position {begun}" if begun else "it is blank"
    unfit = _UNFIT.search(subject)
    if unfit is not None:
        return f"no subject can hold {unfit[0]!r} (at position {begun + unfit.start()})"
    for token in subject.split("."):
        if not token:
            return f"an empty token at position {begun}"
        if token[0] in "*>":
            return f"a token cannot begin with the wildcard {token[0]!r} (at position {begun})"
        begun += len(token) + 1
    return None


def describe_destination(destination: str) -> str:
    """Return a destination as errors show it: control characters escaped, and not all of a very long one."""
    if len(destination) <= _SHOWN_CHARACTERS:
        return repr(destination)
    return f"{destination[:_SHOWN_CHARACTERS]!r}… ({len(destination):,} characters)"


@lru_cache(maxsize=4_096)
def unfilled(destination: str) -> str | None:
    """Return the reason that a new destination means something else than its text; None for another one.

    Stored ones are published as they are written.

    >>> unfilled("orders.$1")
    "would be published to as it is written: only mappings of routes fill in '$1'"
    >>> unfilled("late?Delay=5m")
    "would be published to as it is written: a time begins with ?delay= or ?deliverAt= and follows, found '?Delay='"
    >>> unfilled("$KV.bucket.key"), unfilled("https://hooks.example/in?delay=5m")
    (None, None)
    """
    # Most have none of the characters, and need no search.
    if not ("$" in destination or "{" in destination or "?" in destination) or is_url(destination):
        return None
    if (found := _PLACEHOLDER.search(destination)) is not None:
        return f"would be published to as it is written: only mappings of routes fill in {found[0]!r:.80}"
    if (found := _NEAR_SUFFIX.search(destination)) is not None and not _SUFFIX.fullmatch(destination):
        return (
            "would be published to as it is written: a time begins with ?delay= or ?deliverAt= and follows, found "
            f"{found[0]!r}"
        )
    return None


def problems_of(subscription: Subscription) -> Iterator[str]:
    """Yield the problems of a subscription's destinations, with their indices."""
    for number, destination in enumerate(subscription.destinations):
        problem = problem_of(destination)
        if problem is not None:
            yield f"route.destinations[{number}]: {describe_destination(destination)} {problem}"


def checked(subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
    """Yield the same subscriptions, one after the other: what every store does before it keeps any.

    Raises:
        SubscriptionInvalidError: nothing can be published to a destination; names it and the fault.
    """
    for subscription in subscriptions:
        problems = list(problems_of(subscription))
        if problems:
            raise SubscriptionInvalidError("; ".join(problems))
        yield subscription


def checked_version(id: str, subscription: Subscription) -> Subscription:
    """Return a new version of a subscription under its id: what every store does before an update.

    Raises:
        SubscriptionInvalidError: it has another id, or nothing can be published to a destination.
    """
    if subscription.id not in ("", id):
        raise SubscriptionInvalidError(f"id: expected {id!r}, found {subscription.id!r}: an update keeps the id")
    (version,) = checked([subscription])
    return replace(version, id=id)


def refusals_of(rights: Rights, subscription: Subscription | PlainLine) -> Iterator[str]:
    """Yield the refusal of each destination of a subscription that is not allowed, with its path.

    A destination with a sink's name is checked as a whole, and so is the subject behind the name: a pattern for
    it has the name too (``archive:deliver.>``).
    """
    for number, destination in enumerate(subscription.destinations):
        target = destination if is_url(destination) else split_timing(destination)[0]
        refusal = rights.refusal(target) or _refusal_behind_name(rights, target)
        if refusal is not None:
            yield f"route.destinations[{number}]: {describe_destination(destination)} {refusal}"


def _refusal_behind_name(rights: Rights, destination: str) -> str | None:
    protected = rights.protection(destination.partition(":")[2])
    if protected is None:
        return None
    named = (pattern for pattern in rights.allow or () if pattern.partition(":")[2][:1] not in ("", "*", ">"))
    if any(matches(pattern, destination) for pattern in named):
        return None
    return f"is not allowed: {protected}"
