"""Text from outside is read in a time that grows as its length does."""

from __future__ import annotations

import asyncio
import difflib
import re
import signal
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path as Folder
from types import FrameType
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import settings
from nats.errors import ProtocolError

from tests.regexes import Found, collected, files, hostile
from turnout import Route
from turnout.base.startup import paused_gc
from turnout.base.terminal import guesses, nearest
from turnout.codecs import Format, codec_of
from turnout.codecs.ddl import parse_ddl
from turnout.conditions import parse as parse_condition
from turnout.conditions.pattern import lexemes, parse_pattern, pattern_matcher
from turnout.errors import ConfigError, RecordError, RouteError, SubjectError
from turnout.nats.jetstream._client import FrameParser
from turnout.nats.protocol.errors import BrokenFrameError
from turnout.nats.protocol.headers import parse_table, read_status
from turnout.nats.wire.records import locate
from turnout.routes.reader import RouteReader
from turnout.routes.values import interval
from turnout.routes.variables import properties
from turnout.routes.yaml_text import Path
from turnout.runtime.java import in_one_line
from turnout.secrets import masked_url
from turnout.server import security
from turnout.server.config import ServerConfig
from turnout.server.security import Gate
from turnout.subjects import MappingTable, SubjectTransform
from turnout.subjects.functions import FUNCTIONS, parse_call
from turnout.subjects.pattern import check_subject
from turnout.transforms.java.times import time_parser
from turnout.transforms.java.values import low_bits, parsed_integer
from turnout.transforms.kafka.cast import caster
from turnout.transforms.kafka.headers import parse_literal

pytestmark = pytest.mark.minutes

_LARGEST: Final = 40_000 if settings().max_examples >= 100 else 20_000
"""Half of it in `make test`: a quadratic time is seen there too, unless its steps are among the shortest."""
SIZES: Final = (_LARGEST // 4, _LARGEST // 2, _LARGEST)
GROWTH: Final = 2.5
"""For twice the text."""
FLOOR: Final = 0.03
"""Seconds of processor time at the largest size that are never too much: clocks may count in steps of 4 ms."""
LIMIT: Final = 0.5
"""Seconds of processor time after which work is stopped."""


class _StoppedError(Exception):
    """Raised where something takes far too long."""


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Stop what takes more processor time; the engine of `re` looks for signals while it works."""

    def stop(_signal: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename == weakref.__file__:
            # An error in the callback of a weak reference is dropped: a moment later the work is stopped.
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
            return
        raise _StoppedError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def seconds_of(work: Callable[[], object], times: int = 1) -> float:
    """The processor time of doing the work so often; infinite where it was stopped."""
    start = time.process_time()
    try:
        # An error in a callback of the garbage collector, as Hypothesis has one, would be dropped too.
        with paused_gc(), stopped_after(LIMIT * times):
            for _ in range(times):
                work()
    except _StoppedError:
        return float("inf")
    return time.process_time() - start


def grows_too_fast(work: Callable[[Any], object], text_of: Callable[[int], Any]) -> bool:
    """Whether twice the text takes more than `GROWTH` times as long, by the shortest times of several attempts."""
    texts = {size: text_of(size) for size in SIZES}
    shortest = dict.fromkeys(SIZES, float("inf"))
    for _ in range(6):
        for size in reversed(SIZES):
            times = SIZES[-1] // size
            shortest[size] = min(shortest[size], seconds_of(partial(work, texts[size]), times) / times)
            if size == SIZES[-1] and (shortest[size] == float("inf") or shortest[size] < FLOOR):
                return shortest[size] > FLOOR
        if all(shortest[large] <= max(FLOOR, GROWTH * shortest[small]) for small, large in pairwise(SIZES)):
            return False
    return True


# --- regular expressions ----------------------------------------------------------------------------------------------


def applied(found: Found, method: str) -> Callable[[Any], object]:
    """Apply the pattern as the sources do; all matches if they iterate over the text."""
    if method == "finditer":
        return lambda text: [None for _ in found.pattern.finditer(text)]
    return getattr(found.pattern, method)


def slow(found: Found) -> Iterator[str]:
    """Name the first text for each method of the pattern that takes too long."""
    for method in sorted(found.methods):
        work = applied(found, method)
        for place, text in enumerate(hostile(found.pattern, SIZES[-1])):
            if seconds_of(partial(work, text)) < FLOOR:
                continue
            texts = {
                size: next(text for at, text in enumerate(hostile(found.pattern, size)) if at == place)
                for size in SIZES
            }
            if grows_too_fast(work, texts.__getitem__):
                yield f"{found.place}: {method} of {found.pattern.pattern!r} on {text[:60]!r}…{text[-3:]!r}"
                break


AT_RUN_TIME: Final = {
    # A pattern with stars as `fnmatch` writes it: each star is an atomic group.
    "subscriptions/search.py": {"_destinations"},
    # Colours of a command's own lines.
    "cli/exits.py": {"echo_lines"},
    # Parts of the grammar: a leaf's own text, and its operators.
    "conditions/text.py": {"inner_key"},
    "conditions/leaves/compare_fields.py": {"_ahead"},
    # One class of characters, repeated; and a part of a glob without stars, which matches in one way: tested below.
    "conditions/pattern.py": {"_regex_of"},
    # The names of functions of a table, and fields of fixed length: tested below.
    "subjects/functions.py": {"opening"},
    "transforms/java/times.py": {"_quick_parser"},
    # Written by the author of a route.
    "transforms/java/regex.py": {"_compiled"},
    "transforms/java/regex_characters.py": {"_named_set"},
    "transforms/config.py": {"sink_mistakes"},
}
"""Functions that compile what depends on data; all other expressions are read from the sources and tested."""


@pytest.mark.parametrize("file", files())
def test_regular_expressions_are_linear(file: str) -> None:
    """No repetition of what a pattern is made of takes more than 2.5 times as long when it is twice as long."""
    regexes, unknown = collected(file)

    assert AT_RUN_TIME.get(file, set()) == unknown
    assert [problem for found in regexes for problem in slow(found)] == []


@pytest.mark.parametrize("bad", [r"(a+)+b", r"\s*x", r'"(?:[^"\\]|\\.)*"|y', r"a[ \t]+b?[ \t]*\r?\n"])
def test_bad_regular_expressions_are_found(bad: str) -> None:
    """An exponential one and three quadratic ones are found by the texts made of them."""
    assert list(slow(Found("here", re.compile(bad), frozenset({"finditer"}))))


# --- functions --------------------------------------------------------------------------------------------------------


def repeated(unit: str, head: str = "", tail: str = "") -> Callable[[int], str]:
    """Texts of any length."""
    return lambda size: head + unit * (size // len(unit)) + tail


def row(head: str, unit: str, tail: str) -> Callable[[int], bytes]:
    """The same, as a value of a record."""
    text_of = repeated(unit, head, tail)
    return lambda size: text_of(size).encode()


def decoder(name: str, **settings: str) -> Callable[[bytes], object]:
    """Reads one value of a format."""
    codec = codec_of(Format.from_config({"format": name, **settings}))
    return lambda text: codec.decode(np.arange(1), [text])


TEXTS: Final[dict[str, tuple[Callable[[Any], object], Callable[[int], Any]]]] = {
    "typed JSON": (decoder("json", schema="a STRING, b DOUBLE"), row('{"a": "' + "\\" + '"', '\\"', " NaN")),
    "typed JSON, numbers": (decoder("json", schema="a BIGINT"), row('{"a": ', "9", "}")),
    "typed JSON, decimals": (decoder("json", schema="a DECIMAL(9, 2)"), row('{"a": ', "9", "}")),
    "typed JSON, nested": (decoder("json", schema="a STRING"), row('{"a": ', "[", "")),
    "typed JSON, NaN": (decoder("json", schema="a ARRAY<DOUBLE>"), row('{"a": [', "NaN,", "NaN]}")),
    "JSON": (decoder("json"), row("", '{"a":', "")),
    "JSON, numbers": (decoder("json"), row('{"a": ', "9", "}")),
    "JSON, fields": (decoder("json"), row("{", '"a":1,', '"b":1}')),
    "Connect's JSON": (decoder("connect-json"), row('{"schema": ', '{"type":', ', "payload": 1}')),
    "Connect's JSON, names": (decoder("connect-json"), row('{"schema": {"type": "', "int", '"}, "payload": 1}')),
    "cast of a text": (lambda text: caster(None, "int64")(text), repeated("9")),
    "cast of a text with zeros": (lambda text: caster(None, "int32")(text), repeated("0", tail="7")),
    "cast of a text to a real": (lambda text: caster(None, "float32")(text), repeated("9", "1.")),
    "cast of a text to a single": (
        lambda text: caster(None, "float32")(text),
        repeated("0", "1.000000059604644775390625"),
    ),
    "cast of a text to a truth": (lambda text: caster(None, "boolean")(text), repeated("t")),
    "cast of hexadecimals": (lambda text: caster(None, "float64")(text), repeated("f", "0x", "p1")),
    "cast of a decimal": (lambda digits: low_bits(Decimal(digits), 64), repeated("9")),
    "an integer": (parsed_integer, repeated("9")),
    "a literal": (parse_literal, repeated("9")),
    "a literal array": (parse_literal, repeated("[9,")),
    "condition": (parse_condition, repeated("a:b AND ", tail="c:d")),
    "condition, parentheses": (parse_condition, repeated("(", tail="a:b")),
    "condition, NOT": (parse_condition, repeated("NOT ", tail="a:b")),
    "condition, quotes": (parse_condition, repeated('"', "a:")),
    "condition, range": (parse_condition, repeated("1 ", "a:[")),
    "subject": (check_subject, repeated("a.", tail="b")),
    "subject, stars": (check_subject, repeated("*.", tail=">")),
    "transform": (lambda text: SubjectTransform.parse("*", text), repeated("{{wildcard(1)}}.", tail="a")),
    "transform, literals": (lambda text: SubjectTransform.parse(">", text), repeated("a.", tail=">")),
    "mapping": (lambda text: MappingTable.from_config({">": text}), repeated("a.", tail=">")),
    "weight": (lambda text: MappingTable.from_config({"a": [{"destination": "b", "weight": text}]}), repeated("9")),
    "headers": (lambda text: parse_table(text.encode()), repeated("A: b\r\n", "NATS/1.0\r\n")),
    "headers, colons": (lambda text: parse_table(text.encode()), repeated(":", "NATS/1.0\r\n")),
    "headers without an end": (lambda text: parse_table(text.encode()), repeated("a", "NATS/1.0\r\n")),
    "cookies": (lambda text: security.cookie_of(text, "turnout"), repeated("a=b; ")),
    "cookies, quotes": (lambda text: security.cookie_of(text, "turnout"), repeated('\\"', 'turnout="', '"')),
    "cookies, semicolons": (lambda text: security.cookie_of(text, "turnout"), repeated(";")),
    "host": (lambda text: security._name(f"//{text}"), repeated("[")),
    "host, colons": (lambda text: security._name(f"//{text}"), repeated("a:")),
    "host, logins": (lambda text: security._name(f"//{text}"), repeated("a@")),
    "origin": (lambda text: Gate._is_own(text, text), repeated("a", "http://")),
    "status": (lambda text: read_status(text.encode()), repeated(" ", "NATS/1.0 404", "\rx")),
    "login": (masked_url, repeated("a://")),
    "logins": (masked_url, repeated("a:b@c ")),
    "login, colons": (masked_url, repeated("a:")),
    "login, scheme": (masked_url, repeated("a", tail="://b@c")),
    "login, query": (masked_url, repeated("?a")),
    "Spark's error": (lambda text: in_one_line(ValueError(text)), repeated("SQLSTATE: 42 ", "x ")),
    "a Python error": (lambda text: in_one_line(ValueError(text)), repeated("turnout.")),
    "interval": (interval, repeated("1 ")),
    "types": (parse_ddl, repeated("a INT, ", tail="b INT")),
    "types, nested": (parse_ddl, repeated("ARRAY<", "a ")),
    "properties": (properties, repeated("a\\ ")),
    "glob": (lambda text: pattern_matcher("*a?b*c?d*")(text), repeated("aab", tail="c")),
    "pattern": (parse_pattern, repeated("a*?")),
    "lexemes": (lexemes, repeated("ä ")),
    "time": (time_parser("yyyy-MM-dd'T'HH:mm:ss"), repeated("1", "2026-01-01T00:00:0")),
} | {
    f"function {function.name}": (
        lambda text: parse_call("{{left(1,1)" + text + "}}"),
        repeated("{{" + function.name + "("),
    )
    for function in FUNCTIONS
}


def wire_frames(pieces: Sequence[bytes]) -> int:
    """Feed bytes to the blocking client's parser; return the number of its frames and other lines."""
    memory, filled, found = bytearray(sum(map(len, pieces)) + 8), 0, 0
    for piece in pieces:
        memory[filled : filled + len(piece)] = piece
        filled += len(piece)
        frames = locate(memory, filled)
        found += len(frames) + len(frames.lines)
        filled -= frames.consumed
        if frames.consumed:
            memory[:filled] = memory[frames.consumed : frames.consumed + filled]
    return found


class Client:
    """Client with the attributes that a parser of frames needs."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.stats = {"in_msgs": 0, "in_bytes": 0}

    async def _process_pong(self) -> None:
        """Count nothing."""


def parsed_frames(pieces: Sequence[bytes]) -> int:
    """Feed bytes to the asynchronous client's parser; return the number of messages."""
    client = Client()

    async def feed() -> None:
        parser = FrameParser(client, {b"1": lambda *_: None})
        for piece in pieces:
            await parser.parse(piece)

    asyncio.run(feed())
    return client.stats["in_msgs"]


def stream(size: int, count: int) -> bytes:
    """Return this many messages of the size, with headers."""
    return b"".join(b"HMSG a.b 1 12 %d\r\nNATS/1.0\r\n\r\n%s\r\n" % (12 + size, b"x" * size) for _ in range(count))


WIRE: Final[dict[str, Callable[[int], bytes]]] = {
    "one message": lambda size: stream(size, 1),
    "a message without an end": lambda size: stream(2 * size, 1)[:size],
    "small messages": lambda size: stream(16, size // 50),
    "messages without a line between": lambda size: b"MSG a 1 0\r\n\r\n" * (size // 13),
    "tiny lines": lambda size: b"PONG\r\n" * (size // 6),
    "a line without an end": lambda size: b"x" * size,
    "headers without an end": lambda size: b"HMSG a 1 %d %d\r\n" % (2 * size, 2 * size) + b"A: b\r\n" * (size // 6),
    "payload like lines": lambda size: b"MSG a 1 %d\r\n" % (2 * size) + b"MSG a 1 5\r\n" * (size // 11),
}


@pytest.mark.parametrize("reader", [wire_frames, parsed_frames])
@pytest.mark.parametrize("piece", [7, 1 << 20])
@pytest.mark.parametrize("text_of", WIRE.values(), ids=WIRE)
def test_frames_are_read_in_linear_time(
    reader: Callable[[Sequence[bytes]], int], piece: int, text_of: Callable[[int], bytes]
) -> None:
    """This holds for any bytes, and for pieces of any size."""

    def pieces(size: int) -> list[bytes]:
        text = text_of(size)
        return [text[at : at + piece] for at in range(0, len(text), piece)]

    assert not grows_too_fast(without_errors(reader), pieces)


def test_frames_are_the_same_wherever_the_bytes_are_cut() -> None:
    """Two pieces, cut at every position."""
    text = stream(0, 2) + b"PONG\r\n" + stream(40, 2) + b"MSG a 1 0\r\n\r\n"
    cuts = range(len(text) + 1)

    assert {wire_frames([text[:cut], text[cut:]]) for cut in cuts} == {6}
    assert {parsed_frames([text[:cut], text[cut:]]) for cut in cuts} == {5}


@pytest.mark.parametrize(
    "frame", [b"MSG a 1 -14\r\n", b"HMSG a 1 -20 5\r\n", b"HMSG a 1 9 5\r\n", b"MSG a 1 99999999999\r\n"]
)
def test_sizes_that_are_none_end_the_connection(frame: bytes) -> None:
    """A negative one led back to its own frame, for ever; a huge one would be waited for and kept in memory."""
    for reader, wrong in ((wire_frames, BrokenFrameError), (parsed_frames, ProtocolError)):
        with pytest.raises(wrong), stopped_after(5):
            reader([frame + b"x" * 20 + b"\r\n"])


def without_errors(work: Callable[[Any], object]) -> Callable[[Any], object]:
    """The same, where a refusal is an answer like others."""

    def tried(text: Any) -> object:
        try:
            return work(text)
        except (ValueError, RecordError) as refused:
            return refused

    return tried


@pytest.mark.parametrize(("work", "text_of"), TEXTS.values(), ids=TEXTS)
def test_functions_are_linear(work: Callable[[Any], object], text_of: Callable[[int], Any]) -> None:
    """Twice the text takes at most 2.5 times as long, whether it is read or refused."""
    tried = without_errors(work)
    # What is made once is not the text's.
    tried(text_of(100))

    assert not grows_too_fast(tried, text_of)


@pytest.mark.parametrize(("end", "expected"), [("", 1.0), ("1", 1.0000001192092896)])
def test_numbers_of_thousands_of_digits_are_rounded_once(end: str, expected: float) -> None:
    """A text in the middle between two singles, however long it is, becomes the even one, and the next one above it."""
    assert caster(None, "float32")("1.000000059604644775390625" + "0" * 5000 + end) == expected


def test_low_bits_of_a_long_decimal() -> None:
    """They are those of the whole number, which is not made."""
    assert low_bits(Decimal("9" * 20_000 + ".5"), 64) == low_bits(Decimal(10**20_000 - 1), 64) == -1
    assert low_bits(Decimal("-1" + "0" * 20_000), 8) == 0


@pytest.mark.parametrize(
    "work",
    [
        lambda digits: SubjectTransform.parse("*", f"{{{{wildcard({digits})}}}}"),
        lambda digits: MappingTable.from_config({"a": [{"destination": "b", "weight": digits}]}),
    ],
    ids=["argument", "weight"],
)
def test_numbers_of_thousands_of_digits_are_mistakes(work: Callable[[str], object]) -> None:
    """Numbers that Python refuses to convert are refused like other wrong numbers."""
    with pytest.raises(SubjectError):
        work("9" * 5000)


# --- numbers of mistakes, and what is shown of them -------------------------------------------------------------------


ROUTE: Final = """
name: a
source: {format: nats, servers: "nats://h:1", stream: S}
sink: {format: nats, servers: "nats://h:1"}
"""


@pytest.mark.parametrize(
    ("more", "unit"),
    [
        ("", "unknwn{}: 1\n"),
        ("transforms:\n - type: InsertField$Value\n", "   stat{}: 1\n"),
        ("transforms:\n  transforms: a\n", "  trans{}: 1\n"),
        ("mappings:\n", "  a..b{}: c\n"),
        ("spark:\n", "  spark.drivr.{}: c\n"),
    ],
    ids=["names", "options", "connector", "mappings", "spark"],
)
def test_thousands_of_mistakes(more: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error lists fifty mistakes and says how many more there are; guesses are made for hundreds at most."""
    guesses = 0
    close_matches = difflib.get_close_matches

    def counted(*arguments: Any, **options: Any) -> list[str]:
        nonlocal guesses
        guesses += 1
        return close_matches(*arguments, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    with pytest.raises(RouteError) as wrong:
        Route.parse(ROUTE + more + "".join(unit.format(place) for place in range(3000)), {})

    assert len(wrong.value.mistakes) == 51
    assert "more mistakes" in wrong.value.mistakes[-1].problem
    assert len(str(wrong.value)) < 51 * 800
    assert guesses <= 2000


def test_guesses_of_many_unknown_names_are_few() -> None:
    """Twice the names take at most 2.5 times as long."""

    def names(size: int) -> list[str]:
        return [f"unknwn{number}" for number in range(2 * size)]

    assert not grows_too_fast(lambda unknown: list(guesses(unknown, [f"unknown{n}" for n in range(500)])), names)


def test_a_configuration_with_many_unknown_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fifty are shown with a guess, the others are counted."""
    guessed: list[str] = []
    monkeypatch.setattr("turnout.server.config.did_you_mean", lambda name, _: guessed.append(name) or "")
    with pytest.raises(ConfigError, match="2,000 mistakes") as wrong:
        ServerConfig.load(None, {}, **{f"unknwn{number}": 1 for number in range(2000)})

    assert len(guessed) == 51
    assert wrong.value.mistakes[-1].problem == "and 1,950 more mistakes"


def test_lines_of_mistakes_are_found_at_once() -> None:
    """The names of a long file are put in order once, not for each of its mistakes."""

    def lines(size: int) -> dict[Path, int]:
        return {("mappings", f"a{number}.b"): number for number in range(size)}

    def work(known: dict[Path, int]) -> None:
        reader = RouteReader({}, known, Folder())
        assert [reader._line("mappings", f'"a{number}.b"]: odd') for number in range(50)] == [None] * 50

    assert not grows_too_fast(work, lines)
    reader = RouteReader({}, lines(100) | {("mappings",): 1}, Folder())
    assert reader._line("mappings", "a7.b") == 7
    assert reader._line("mappings", "nothing") == 1


def test_no_guess_for_what_is_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long words are compared with nothing, and of many names the first are looked at."""
    compared: list[int] = []
    monkeypatch.setattr(
        difflib, "get_close_matches", lambda _word, names, **_options: compared.append(len(names)) or []
    )
    nearest("x" * 100_000, ["stream"])
    nearest("strem", [f"name{place}" for place in range(100_000)])

    assert compared == [500]


@pytest.mark.parametrize(
    ("before", "after"),
    [("stream: S", "stream: '" + "x" * 100_000 + "'"), ('"nats://h:1"', "'u:PW@" + "x" * 100_000 + ":x'")],
    ids=["stream", "login"],
)
def test_found_values_are_shortened(before: str, after: str) -> None:
    """A mistake shows a part of a long value, and nothing of a login in it."""
    with pytest.raises(RouteError) as wrong:
        Route.parse(ROUTE.replace(before, after, 1), {})

    assert len(str(wrong.value)) < 1000
    assert max(len(mistake.problem) for mistake in wrong.value.mistakes) <= 500
    assert "PW" not in str(wrong.value)


def test_a_login_without_a_scheme_is_not_shown() -> None:
    """Neither of a block that is written as a text nor of a server."""
    with pytest.raises(RouteError) as wrong:
        Route.parse(ROUTE.partition("sink")[0] + "sink: u:PW@h:x\n", {})

    assert "found '***@h:x'" in str(wrong.value)


def test_slips_in_names_of_spark() -> None:
    """A property that is one letter beside one of Spark is a mistake; libraries have names of their own."""
    with pytest.raises(RouteError) as wrong:
        Route.parse(ROUTE + "spark: {spark.drivr.memory: 2g, spark.acme.memory: 1, fs.s3a.path: x}", {})

    assert [mistake.path for mistake in wrong.value.mistakes] == ['spark["spark.drivr.memory"]']
    assert "did you mean 'spark.driver.memory'" in wrong.value.mistakes[0].problem
