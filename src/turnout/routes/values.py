"""Checks of single option values; each error gives the value found and the value expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator

from turnout.base.clocks import parse_time
from turnout.base.terminal import did_you_mean, nearest
from turnout.base.untrusted import JsonObject, decimal, is_whole
from turnout.errors import SubjectError
from turnout.secrets import masked_url
from turnout.subjects import has_wildcard
from turnout.subjects.pattern import check_subject, is_name
from turnout.subscriptions.store_url import url_problem
from turnout.transforms.java.regex import check_java_regex
from turnout.transforms.java.regex_characters import JavaRegexError

Names = str | list[str]

_MAX_STREAM_NAME = 255
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NATS_SCHEMES = ("nats", "tls")
_LARGEST_PARTITION = (1 << 31) - 1
_PLACES = ("earliest", "latest")


def listed(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the names in a list, or in a text with commas, without the blanks around them.

    >>> listed("A, B") == listed(["A", "B"]) == ("A", "B")
    True
    """
    texts = [names] if isinstance(names, str) else names or ()
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def _each(check: Callable[[str], None]) -> Callable[[Names | None], Names | None]:
    """Return the check of one text, for a text with commas or a list of texts."""

    def checked(names: Names | None) -> Names | None:
        texts = [names] if isinstance(names, str) else names
        if texts is not None and not listed(texts):
            raise ValueError(f"found {names!r}, expected at least one")
        for text in texts or ():
            for name in text.split(","):
                check(name.strip())
        return names

    return checked


def _if_set(check: Callable[[str], None]) -> Callable[[str | None], str | None]:
    def checked(text: str | None) -> str | None:
        if text is not None:
            check(text)
        return text

    return checked


def _nats_server(url: str) -> None:
    shown = masked_url(url)
    parts = _split(url if "://" in url else f"nats://{url}", shown, "nats://host:4222")
    if parts.scheme not in _NATS_SCHEMES:
        guess = did_you_mean(parts.scheme, _NATS_SCHEMES)
        raise ValueError(f"found {shown!r}, expected nats://host:4222 or tls://host:4222{guess}")
    if parts.path.strip("/") or parts.query:
        raise ValueError(f"found {shown!r}, expected nothing behind the port")


def _broker(address: str) -> None:
    # Kafka's clients accept a protocol before the host, and use only host and port.
    parts = _split(address if "://" in address else f"kafka://{address}", masked_url(address), "host:9092")
    if parts.username is not None or parts.port is None or parts.path:
        raise ValueError(f"found {masked_url(address)!r}, expected host:port, as in broker:9092")


def _split(url: str, shown: str, example: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or re.search(r"\s", url):
        raise ValueError(f"found {shown!r}, expected an address like {example}")
    return parts


def _stream(name: str) -> None:
    if not is_name(name) or len(name) > _MAX_STREAM_NAME:
        expected = "the name of a stream: no space, dot, '*', '>', '/' or '\\' in it"
        raise ValueError(f"found {name!r}, expected {expected}")


def _topic(name: str) -> None:
    if not _TOPIC.fullmatch(name):
        raise ValueError(f"found {name!r}, expected a topic: at most 249 letters, digits, '.', '_' and '-'")


def _filter(subject: str) -> None:
    try:
        check_subject(subject)
    except SubjectError as failure:
        raise ValueError(f"found {subject!r}, expected a subject filter: {failure}") from None


def _prefix(subject: str) -> None:
    _filter(subject.removesuffix("."))
    if has_wildcard(subject):
        raise ValueError(f"found {subject!r}, expected a subject without wildcards")


def _pattern(text: str) -> None:
    try:
        check_java_regex(text)
    except JavaRegexError as failure:
        raise ValueError(f"found {text!r}, expected a Java regular expression: {failure}") from None


def _store(url: str) -> None:
    problem = url_problem(url)
    if problem:
        raise ValueError(problem)


def _stream_start(start: str | int | dict[str, int]) -> str | int | dict[str, int]:
    """Check the starting point in a stream; the format ``nats`` reads the same values."""
    if isinstance(start, dict):
        for name, sequence in start.items():
            _stream(name)
            _sequence(sequence)
    elif isinstance(start, int):
        _sequence(start)
    elif start.strip().lower() not in _PLACES and decimal(start.strip()) is None:
        _moment(start)
    return start


def _sequence(number: int) -> None:
    if isinstance(number, bool) or number < 0:
        raise ValueError(f"found {number!r}, expected a sequence, which counts from 1")


def _moment(text: str) -> None:
    try:
        parse_time(text.strip())
    except ValueError:
        expected = "earliest, latest, a sequence, an ISO time or a block of a sequence for each stream"
        raise ValueError(f"found {text!r}, expected {expected}{did_you_mean(text, _PLACES)}") from None


def _kafka_start(start: str | JsonObject) -> str | JsonObject:
    if isinstance(start, dict):
        for topic, offsets in start.items():
            if not isinstance(offsets, dict) or not all(_is_offset(*pair) for pair in offsets.items()):
                raise ValueError(f"{topic}: found {offsets!r}, expected an offset for each partition, -2 for earliest")
    elif start not in _PLACES:
        try:
            parse_time(start.strip())
        except ValueError:
            expected = "earliest, latest, an ISO time or a block of offsets by topic and partition"
            raise ValueError(f"found {start!r}, expected {expected}{did_you_mean(start, _PLACES)}") from None
    return start


def _is_offset(partition: object, offset: object) -> bool:
    return decimal(str(partition), _LARGEST_PARTITION) is not None and is_whole(offset, -2)


NatsServers = Annotated[Names, AfterValidator(_each(_nats_server))]
Brokers = Annotated[Names, AfterValidator(_each(_broker))]
StreamName = Annotated[str | None, AfterValidator(_if_set(_stream))]
StreamNames = Annotated[Names, AfterValidator(_each(_stream))]
StreamStart = Annotated[str | int | dict[str, int], AfterValidator(_stream_start)]
Filters = Annotated[Names | None, AfterValidator(_each(_filter))]
Prefix = Annotated[str | None, AfterValidator(_if_set(_prefix))]
KafkaTopics = Annotated[Names | None, AfterValidator(_each(_topic))]
KafkaStart = Annotated[str | JsonObject, AfterValidator(_kafka_start)]
JavaPattern = Annotated[str | None, AfterValidator(_if_set(_pattern))]
StoreUrl = Annotated[str, AfterValidator(_if_set(_store))]


# --- Spark's intervals ------------------------------------------------------------------------------------------------

_UNITS = ("week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_INTERVAL = re.compile(
    rf"(?:interval\s++)?+"
    rf"(?:[+-]?\s*+(?:\d++\s++(?:{'|'.join(_UNITS)})s?|(?:\d++\.\d{{0,9}}|\.\d{{1,9}})\s++seconds?)(?:\s++|$))+",
    re.IGNORECASE,
)
_SHORT = {"ms": "milliseconds", "us": "microseconds", "s": "seconds", "sec": "seconds", "secs": "seconds",
          "m": "minutes", "min": "minutes", "mins": "minutes", "h": "hours", "hr": "hours", "d": "days"}  # fmt: skip


def interval(text: str) -> str:
    """Return an interval of Spark as a trigger takes it: ``1 second``, ``500 milliseconds``, ``1 minute 30 seconds``.

    What Spark's ``SparkIntervalUtils.stringToInterval`` reads: a number, space and a unit, several of them one behind
    the other; only seconds have fractions. Months and years are not accepted, because a trigger refuses them.

    Raises:
        ValueError: it is none.
    """
    if not _INTERVAL.fullmatch(text.strip()):
        unit = re.sub(r"[\d.\s+-]", "", text).lower()
        unit_name = _SHORT.get(unit) or nearest(unit, [f"{unit}s" for unit in _UNITS])
        amount = re.search(r"[\d.]+", text)
        guess = f'; did you mean "{amount[0]} {unit_name}"?' if unit_name and amount else ""
        raise ValueError(f'found {text!r}, expected an interval like "1 second" or "500 milliseconds"{guess}')
    return text
