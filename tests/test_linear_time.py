"""Text from outside is read in a time that grows as its length does."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.regexes import Found, collected, files, hostile
from turnout.conditions.pattern import lexemes, parse_pattern, pattern_matcher
from turnout.subjects.functions import FUNCTIONS, parse_call
from turnout.transforms.java_time_parse import time_parser

SIZES: Final = (10_000, 20_000, 40_000)
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

    def stop(*_: object) -> None:
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
        with stopped_after(LIMIT * times):
            for _ in range(times):
                work()
    except _StoppedError:
        return float("inf")
    return time.process_time() - start


def grows_too_fast(work: Callable[[Any], object], text_of: Callable[[int], Any]) -> bool:
    """Whether four times the text takes more than `GROWTH` squared of the time, in each of several attempts."""
    small, large = text_of(SIZES[0]), text_of(SIZES[-1])
    most = GROWTH ** (len(SIZES) - 1)
    times = SIZES[-1] // SIZES[0]
    for _ in range(4):
        taken = seconds_of(lambda: work(large))
        if taken == float("inf"):
            return True
        if taken < FLOOR or taken <= most * seconds_of(lambda: work(small), times) / times:
            return False
    return True


# --- regular expressions ----------------------------------------------------------------------------------------------


def applied(found: Found, method: str) -> Callable[[Any], object]:
    """What the sources do with the pattern; all matches where they go through the text."""
    if method == "finditer":
        return lambda text: [None for _ in found.pattern.finditer(text)]
    return getattr(found.pattern, method)  # type: ignore[no-any-return]


def slow(found: Found) -> Iterator[str]:
    """Name the first text for each method of the pattern that takes too long."""
    for method in sorted(found.methods):
        work = applied(found, method)
        for place, text in enumerate(hostile(found.pattern, SIZES[-1])):
            if seconds_of(lambda: work(text)) < FLOOR:
                continue
            texts = {
                size: next(text for at, text in enumerate(hostile(found.pattern, size)) if at == place)
                for size in SIZES
            }
            if grows_too_fast(work, texts.__getitem__):
                yield f"{found.place}: {method} of {found.pattern.pattern!r} on {text[:60]!r}…{text[-3:]!r}"
                break


AT_RUN_TIME: Final = {
    # One class of characters, repeated; and a part of a glob without stars, which matches in one way: tested below.
    "conditions/pattern.py": {"_words", "_part_regex"},
    # The names of functions of a table, and fields of fixed length: tested below.
    "subjects/functions.py": {"opening"},
    "transforms/java_time_parse.py": {"_quickened"},
    # Written by the author of a route.
    "transforms/java_regex.py": {"_compiled"},
    "transforms/java_regex_classes.py": {"_known"},
    "transforms/properties.py": {"sink_mistakes"},
}
"""Functions that compile what depends on data; all other expressions are read from the sources and tested."""


@pytest.mark.parametrize("file", files())
def test_regular_expressions_are_linear(file: str) -> None:
    """No repetition of what a pattern is made of takes more than 2.5 times as long when it is twice as long."""
    regexes, unknown = collected(file)

    assert AT_RUN_TIME.get(file, set()) == unknown
    assert [] == [problem for found in regexes for problem in slow(found)]


@pytest.mark.parametrize("bad", [r"(a+)+b", r"\s*x", r'"(?:[^"\\]|\\.)*"|y', r"a[ \t]+b?[ \t]*\r?\n"])
def test_bad_regular_expressions_are_found(bad: str) -> None:
    """An exponential one and three quadratic ones are found by the texts made of them."""
    assert list(slow(Found("here", re.compile(bad), frozenset({"finditer"}))))


# --- functions --------------------------------------------------------------------------------------------------------


def repeated(unit: str, head: str = "", tail: str = "") -> Callable[[int], str]:
    """Texts of any length."""
    return lambda size: head + unit * (size // len(unit)) + tail


TEXTS: Final[dict[str, tuple[Callable[[Any], object], Callable[[int], Any]]]] = {
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


def without_errors(work: Callable[[Any], object]) -> Callable[[Any], object]:
    """The same, where a refusal is an answer like others."""

    def tried(text: Any) -> object:
        try:
            return work(text)
        except ValueError as refused:
            return refused

    return tried


@pytest.mark.parametrize(("work", "text_of"), TEXTS.values(), ids=TEXTS)
def test_functions_are_linear(work: Callable[[Any], object], text_of: Callable[[int], Any]) -> None:
    """Twice the text takes at most 2.5 times as long, whether it is read or refused."""
    assert not grows_too_fast(without_errors(work), text_of)
