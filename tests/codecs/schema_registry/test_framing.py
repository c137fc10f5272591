from __future__ import annotations

import struct

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from turnout.codecs.schema_registry.framing import frame, ids_of, unframe


def _reference(text: bytes) -> int:
    if len(text) < 5 or text[0] != 0:
        return -1
    (number,) = struct.unpack(">i", text[1:5])
    return number if number >= 0 else -1


@given(st.lists(st.binary(max_size=8) | st.binary(max_size=8).map(lambda rest: b"\0\0\0" + rest)))
def test_ids_equal_the_reference(texts: list[bytes]) -> None:
    expected = [_reference(text) for text in texts]
    framed = unframe(texts)
    assert framed.ids.tolist() == expected
    assert sorted(framed.errors) == [index for index, number in enumerate(expected) if number < 0]
    column = pa.array([b"before", *texts, None], pa.binary())[1:]
    assert ids_of(column).tolist() == [*expected, -1]


@given(st.integers(0, 2**31 - 1), st.lists(st.binary(max_size=5)))
def test_frames_are_read_again(number: int, payloads: list[bytes]) -> None:
    texts = frame(number, payloads)
    assert unframe(texts).ids.tolist() == [number] * len(payloads)
    assert [text[5:] for text in texts] == payloads
