"""Numbers of thousands of digits, from every side: each place says in its own words what it expects."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import pytest
from nats.errors import ProtocolError

from tests.test_linear_time import ROUTE, parsed_frames
from turnout import Route
from turnout.cli import jetstream
from turnout.cli.options import moment_of
from turnout.codecs.ddl import parse_ddl
from turnout.console.pages.sandbox import _record
from turnout.console.previews import position_of
from turnout.engine.sample_records import SampleRecord
from turnout.errors import ConfigError, RouteError, StreamError
from turnout.nats.jetstream.publish import read_ack
from turnout.nats.protocol.errors import NotJetStreamMessageError
from turnout.nats.protocol.options import ConnectionOptions
from turnout.nats.protocol.positions import JSAck, sequences
from turnout.nats.wire.streams import parse_position
from turnout.routes.endpoints import KafkaSink
from turnout.runtime.kafka.publisher import KafkaLimits
from turnout.runtime.nats.sink import SinkOptions
from turnout.runtime.nats.source import SourceOptions
from turnout.server.config import seconds_of
from turnout.subscriptions.store_url import url_problem
from turnout.transforms.java.regex import check_java_regex
from turnout.transforms.java.regex_characters import JavaRegexError
from turnout.transforms.java.times import time_parser

DIGITS: Final = "9" * 5000
NATS: Final = {"servers": "nats://h:1"}
REPLY: Final = f"$JS.ACK.S.C.1.{DIGITS}.1.1.1".encode()


def source(**options: str) -> object:
    return SourceOptions.from_mapping({**NATS, "stream": "S", **options}, streaming=True)


def kafka(size: str) -> object:
    sink = {"format": "kafka", "servers": "h:1", "options": {"kafka.max.request.size": size}}
    return KafkaLimits.of(KafkaSink.model_validate(sink))


REFUSED: Final[dict[str, tuple[Callable[[str], object], type[Exception]]]] = {
    "option of a source": (lambda text: source(maxRecordsPerTrigger=text), ConfigError),
    "offset of a source": (lambda text: source(startingOffsets=text), ConfigError),
    "offsets of a source": (lambda text: source(startingOffsets=f'{{"S": {text}}}'), ConfigError),
    "option of a sink": (lambda text: SinkOptions.from_mapping({**NATS, "window": text}), ConfigError),
    "seconds of a connection": (lambda text: ConnectionOptions.from_mapping({**NATS, "timeout": text}), ConfigError),
    "port of a server": (lambda text: ConnectionOptions.from_mapping({"servers": f"nats://h:{text}"}), ConfigError),
    "size of a request": (kafka, ConfigError),
    "start of a route": (lambda text: Route.parse(ROUTE.replace("stream: S", f"stream: S, start: {text}")), RouteError),
    "start in quotes": (
        lambda text: Route.parse(ROUTE.replace("stream: S", f"stream: S, start: '{text}'")),
        RouteError,
    ),
    "place in a name": (
        lambda text: Route.parse(f"{ROUTE}transforms:\n  '\"x\"[{text}]': b\n", {}),
        RouteError,
    ),
    "Java's regex": (lambda text: check_java_regex(f"a{{{text}}}"), JavaRegexError),
    "Java's regex, a range": (lambda text: check_java_regex(f"a{{1,{text}}}"), JavaRegexError),
    "Java's regex, hexadecimal": (lambda text: check_java_regex(f"\\x{{{text}}}"), JavaRegexError),
    "type": (lambda text: parse_ddl(f"a DECIMAL({text})"), ValueError),
    "duration": (seconds_of, ValueError),
    "revision": (lambda text: moment_of(text, "--subscriptions-as-of"), ConfigError),
    "start of a tail": (lambda text: jetstream.start(text, datetime.now(UTC)), ConfigError),
    "age of a tail": (lambda text: jetstream.start(f"{text}d", datetime.now(UTC)), ConfigError),
    "offset of a record": (lambda text: SampleRecord.of({"topic": "a", "offset": 10**4000}), ConfigError),
    "number in a record": (lambda text: _record(f'{{"offset": {text}}}'), ConfigError),
    "record nested too deep": (lambda text: _record("[" * 100_000), ConfigError),
    "answer to a publish": (lambda text: read_ack(f'{{"stream":"S","seq":{text}}}'.encode(), b"", "a"), StreamError),
    "place in a reply": (lambda text: JSAck.parse(REPLY.decode()), NotJetStreamMessageError),
    "places in a reply": (lambda text: sequences(REPLY), NotJetStreamMessageError),
    "frame": (lambda text: parsed_frames([f"MSG a 1 {text}\r\n".encode()]), ProtocolError),
    "headers of a frame": (lambda text: parsed_frames([f"HMSG a 1 {text} 5\r\n".encode()]), ProtocolError),
}


@pytest.mark.parametrize(("read", "error"), REFUSED.values(), ids=REFUSED)
def test_numbers_of_thousands_of_digits_are_refused(read: Callable[[str], object], error: type[Exception]) -> None:
    """They are refused immediately, with the parser's own error instead of Python's error about the length."""
    begin = time.process_time()
    with pytest.raises(error) as refused:
        read(DIGITS)

    assert time.process_time() - begin < 1
    assert "Exceeds the limit" not in str(refused.value)


def test_numbers_that_are_none_are_read_as_something_else() -> None:
    """Values that may also be texts remain texts; a URL is refused without being opened."""
    assert parse_position(DIGITS) is None
    assert parse_position(f'{{"S": {DIGITS}}}') is None
    assert parse_position("{" * 100_000) is None
    assert position_of(DIGITS) == DIGITS
    assert "timeout" in (url_problem("sqlite:///a.db?timeout=nan") or "")


@pytest.mark.parametrize("sign", ["", "-"])
def test_zeros_before_an_exponent_are_none(sign: str) -> None:
    """Thousands of them change nothing in a time, as in Java."""
    read = time_parser("yyyy")

    assert read(f"2E{sign}{'0' * 5000}3") == read(f"2E{sign}3")


@pytest.mark.parametrize("text", ["²", "1_0", "+5", "٣", ""])
def test_other_digits_are_no_numbers(text: str) -> None:
    """int() takes some of these, and raises for others that str.isdigit takes."""
    for read in (lambda: source(maxRecordsPerTrigger=text), lambda: SinkOptions.from_mapping({**NATS, "window": text})):
        with pytest.raises(ConfigError):
            read()
