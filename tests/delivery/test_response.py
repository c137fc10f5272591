"""Reading of responses, in any pieces."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from turnout.delivery.response import ResponseReader


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes(data: bytes, cuts: list[int]) -> None:
    """Any bytes, in any pieces, are a response, a failure, or incomplete."""
    reader = ResponseReader()
    reader.begin(100)
    places = [0, *sorted(cuts), len(data)]
    for begin, end in pairwise(places):
        response = reader.feed(b"HTTP/1.1 200 OK\r\n" + data[begin:end] if begin == 0 else data[begin:end])
        if response is not None:
            assert response.status is None or response.status >= 200
            return
