"""Loops over Avro values: the same interpreted and compiled, as the reference, and wherever the calls are divided."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs.avro.strategies import batches
from turnout.base.varint import zigzag_varint
from turnout.codecs.avro.reading import MalformedError, RecordReader, read_value, reader_of
from turnout.codecs.avro.types import AvroType, parse_schema
from turnout.loops import avro
from turnout.loops.compiled import Loop


def run(loop: Loop[Any, Any], compiled: bool, *arguments: Any) -> Any:
    return loop.dispatcher()(*arguments) if compiled else loop.interpreted(*arguments)


def found(reader: RecordReader, texts: list[bytes], compiled: bool) -> tuple[list[Any], list[int]]:
    """Return the offsets of the fields of each text in it, None for one that is no record, and how many are none."""
    content = np.frombuffer(b"".join(texts), np.uint8)
    sizes = np.array([len(text) for text in texts], np.int64)
    ends = np.cumsum(sizes)
    fields = reader._fields
    edges = np.zeros((len(fields) + 1, len(texts)), np.int64)
    failed = np.zeros(len(texts), np.uint8)
    stack = np.empty(reader._stack_size, np.int64)
    wrong = run(
        avro.find_fields, compiled, content, ends - sizes, ends, reader._nodes, reader._inner, fields, edges.ravel(),
        failed, stack,
    )  # fmt: skip
    assert wrong == failed.sum()
    within = (edges - (ends - sizes)).T.tolist()
    return [None if bad else own for own, bad in zip(within, failed.tolist(), strict=True)], failed.tolist()


def is_record(type_: AvroType, text: bytes) -> bool:
    try:
        read_value(reader_of(type_), text, 0)
    except MalformedError:
        return False
    return True


@st.composite
def _damaged(draw: st.DrawFn) -> tuple[AvroType, list[bytes]]:
    """Records of a type, some cut off, with other bytes, or with bytes behind them."""
    type_, _, texts = draw(batches())
    damaged = []
    for text in texts[:8]:
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 3))
        damaged.append(text[:at] + draw(st.binary(max_size=3)) + text[at + cut :])
    return type_, damaged


@given(_damaged())
def test_any_bytes_are_read_as_by_the_reference(case: tuple[AvroType, list[bytes]]) -> None:
    """Interpreted and compiled, in one call and each alone: what is no record, and where the fields of others are."""
    type_, texts = case
    if type_.kind != "record" or not type_.fields:
        return
    reader = RecordReader(type_)

    places, failed = found(reader, texts, compiled=True)

    assert (places, failed) == found(reader, texts, compiled=False)
    assert places == [found(reader, [text], compiled=True)[0][0] for text in texts]
    assert [not one for one in failed] == [is_record(type_, text) for text in texts]
    for own, text in zip(places, texts, strict=True):
        if own is not None:
            assert own == sorted(own)
            assert (own[0], own[-1]) == (0, len(text))


_OF_TEXT = RecordReader(parse_schema('{"type": "record", "name": "R", "fields": [{"name": "f", "type": "string"}]}'))


def is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=20))
def test_texts_are_those_of_python(contents: list[bytes]) -> None:
    """UTF-8 as Python decodes it: without surrogates, long forms and what is beyond Unicode."""
    texts = [zigzag_varint(len(content)) + content for content in contents]
    for compiled in (True, False):
        _, failed = found(_OF_TEXT, texts, compiled)
        assert [not one for one in failed] == list(map(is_text, contents))


def test_edges_of_unicode() -> None:
    """Every first byte with the smallest and the largest bytes behind it."""
    seconds = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    contents = [
        bytes([first, *[second, 0x80, 0xBF][:more]])
        for first in range(0x80, 0x100)
        for more in range(4)
        for second in seconds
    ]

    _, failed = found(_OF_TEXT, [zigzag_varint(len(content)) + content for content in contents], compiled=True)

    assert [not one for one in failed] == list(map(is_text, contents))


_numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, -1, 63, 64, -64, -65, 2**62, 2**63 - 1, -(2**63)]),
)


@given(st.lists(st.tuples(_numbers, st.booleans()), min_size=1, max_size=5))
def test_numbers(values: list[tuple[int, bool]]) -> None:
    """All of 64 bits, and nulls, before or behind them in the union."""
    for null in (-1, 0, 1):
        pieces = [
            (b"" if null < 0 else zigzag_varint(1 - null)) + zigzag_varint(number)
            if there or null < 0
            else zigzag_varint(null)
            for number, there in values
        ]
        ends = np.cumsum([len(piece) for piece in pieces])
        begins = ends - [len(piece) for piece in pieces]
        data = np.frombuffer(b"".join(pieces), np.uint8)
        for compiled in (True, False):
            numbers, present = np.empty(len(values), np.int64), np.empty(len(values), np.uint8)
            run(avro.read_values, compiled, data, begins, ends, null, avro.LONG, numbers, present)
            assert present.tolist() == [int(there or null < 0) for _, there in values]
            assert numbers.tolist() == [number if there or null < 0 else 0 for number, there in values]
