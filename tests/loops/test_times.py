"""Tests of turnout.loops.times: the same interpreted, compiled and by the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.loops import times as loops
from turnout.records.text import iso_of
from turnout.transforms.java.times import time_parser, time_template

PATTERNS = ("yyyy-MM-dd'T'HH:mm:ssX", "yyyyMMddHHmmssSSS", "dd.MM.yyyy", "yyyy'MM'MM-dd")
FORMS = ("interpreted", "compiled")
FOUR_DIGITS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-1000, 1000)
PARTS = st.tuples(
    st.integers(0, 9999), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99),
    st.integers(0, 99), st.integers(0, 999),
)  # fmt: skip


def form_of(loop: Any, form: str) -> Any:
    return loop.interpreted if form == "interpreted" else loop.dispatcher()


def written(numbers: list[int], *, are_times: bool, form: str) -> list[str] | None:
    count = len(numbers)
    out, spans = np.zeros(count * loops.MAX_NUMBER, np.uint8), np.zeros(2 * count, np.int64)
    write = form_of(loops.write_numbers, form)
    if write(np.array(numbers, np.int64), are_times, out, spans) < 0:
        return None
    return [bytes(out[spans[index] : spans[count + index]]).decode() for index in range(count)]


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(NUMBERS), st.lists(FOUR_DIGITS))
def test_numbers_and_times_are_written(form: str, numbers: list[int], times: list[int]) -> None:
    assert written(numbers, are_times=False, form=form) == list(map(str, numbers))
    assert written(times, are_times=True, form=form) == [f'"{iso_of(time)}"' for time in times]


@pytest.mark.parametrize("form", FORMS)
def test_what_has_another_form_is_left_to_the_reference(form: str) -> None:
    assert written([0, -(2**63)], are_times=False, form=form) is None
    assert written([-62_135_596_800_001], are_times=True, form=form) is None
    assert written([0, 253_402_300_800_000], are_times=True, form=form) is None


def read(pattern: str, texts: list[bytes], form: str) -> list[int | None]:
    template, data = time_template(pattern), b" ".join(texts)
    assert template is not None
    sizes = np.array(list(map(len, texts)), np.int64)
    begins = np.cumsum(sizes + 1) - sizes - 1
    times, undecided = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.uint8)
    reader = form_of(loops.read_times, form)
    left = reader(
        np.frombuffer(data + b" ", np.uint8),
        begins,
        begins + sizes,
        np.frombuffer(template, np.uint8),
        times,
        undecided,
    )
    assert left == np.count_nonzero(undecided)
    return [None if is_left else time for time, is_left in zip(times.tolist(), undecided.tolist(), strict=True)]


@pytest.mark.parametrize("form", FORMS)
@given(st.sampled_from(PATTERNS), st.lists(PARTS))
def test_times_are_those_of_the_reference(form: str, pattern: str, parts: list[tuple[int, ...]]) -> None:
    """Months that are none, and years of the old calendar, are left; days and hours may be more than there are."""
    texts = [text_of(pattern, own) for own in parts]
    times = read(pattern, [f'"{text}"'.encode() for text in texts], form)

    assert [time is not None for time in times] == [own[0] >= 1583 and 1 <= own[1] <= 12 for own in parts]
    assert [time or parse(pattern, text) for time, text in zip(times, texts, strict=True)] == [
        parse(pattern, text) for text in texts
    ]


def text_of(pattern: str, parts: tuple[int, ...]) -> str:
    template = time_template(pattern)
    assert template is not None
    text = template.decode()
    for number, (part, width) in enumerate(zip(parts, (4, 2, 2, 2, 2, 2, 3), strict=True), 1):
        text = text.replace(chr(number) * width, f"{part:0{width}}")
    return text


def parse(pattern: str, text: str) -> int | None:
    return time_parser(pattern)(text)


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(st.binary(max_size=30)))
def test_any_bytes_are_read(form: str, texts: list[bytes]) -> None:
    """What is no string of the pattern is left, also a number or a part of a string."""
    close = [b"", b'"', b"null", b'"2013-01-01T05:00:00Z', b'"2013-01-01T05:00:00+"', b'"2013-01-01T05:00:0\xff"']

    assert read(PATTERNS[0], [*texts, *close], form)[-len(close) :] == [None] * len(close)


def test_patterns_with_other_letters_have_no_template() -> None:
    assert [time_template(pattern) for pattern in ("dd MMM yyyy", "yy-MM-dd", "HH:mm", "yyyy\"MM'ä'dd", "")] == [
        None
    ] * 5
