"""Tests of turnout.loops.times: the same interpreted, compiled and by the reference."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import example, given
from hypothesis import strategies as st

from turnout.base.varint import zigzag_varint
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


def read(pattern: str, texts: list[bytes], form: str, quotes: int = 1) -> list[int | None]:
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
        quotes,
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

    assert read(pattern, [text.encode() for text in texts], form, quotes=0) == times
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
    assert read(PATTERNS[0], [*texts, *close], form, quotes=0)[-len(close) :] == [None] * len(close)


def pieces(loop: Any, numbers: list[int], prefix: bytes, most: int, form: str) -> tuple[int | None, list[bytes]]:
    out = np.zeros(len(numbers) * (len(prefix) + most), np.uint8)
    offsets = np.zeros(len(numbers) + 1, np.int64)
    left = form_of(loop, form)(np.array(numbers, np.int64), np.frombuffer(prefix, np.uint8), out, offsets)
    return left, [bytes(out[begin:end]) for begin, end in pairwise(offsets.tolist())]


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)), st.binary(max_size=3))
@example([-(2**63), 2**63 - 1, -(2**62), 2**62 - 1, 2**62, -(2**62) - 1, 0, -1, 63, -64, 64, -65], b"\2")
def test_integers_of_avro_are_those_of_the_reference(form: str, numbers: list[int], prefix: bytes) -> None:
    _, written = pieces(loops.write_varints, numbers, prefix, loops.MAX_VARINT, form)

    assert written == [prefix + zigzag_varint(number) for number in numbers]


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(FOUR_DIGITS | st.integers(-2000, 2000)))
@example([-62_135_596_800_000, 253_402_300_799_999, 0, -1, 1000, 1001, -1000, 127_999])
def test_timestamps_of_protobuf_are_those_of_the_library(form: str, moments: list[int]) -> None:
    left, written = pieces(loops.write_timestamps, moments, b"\x0a", loops.MAX_TIMESTAMP, form)

    bodies = [
        Timestamp(seconds=moment // 1000, nanos=moment % 1000 * 1_000_000).SerializeToString() for moment in moments
    ]
    assert written == [b"\x0a" + bytes([len(body)]) + body for body in bodies]
    assert left == 0


@pytest.mark.parametrize("form", FORMS)
def test_times_of_other_years_are_left(form: str) -> None:
    moments = [-62_135_596_800_001, 0, 253_402_300_800_000]

    assert pieces(loops.write_timestamps, moments, b"", loops.MAX_TIMESTAMP, form) == (2, [b"", b"\0", b""])


def test_patterns_with_other_letters_have_no_template() -> None:
    assert [time_template(pattern) for pattern in ("dd MMM yyyy", "yy-MM-dd", "HH:mm", "yyyy\"MM'ä'dd", "")] == [
        None
    ] * 5
