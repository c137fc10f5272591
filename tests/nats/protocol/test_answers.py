"""Fields of a server's answers."""

from __future__ import annotations

import pytest

from turnout.errors import StreamError
from turnout.nats.protocol.answers import number_in, object_in, read_object


def test_fields_are_read() -> None:
    """Objects and numbers; a default stands for a number that is missing."""
    answer = read_object(b'{"state": {"messages": 3}}', request="STREAM.INFO")
    state = object_in(answer, "state", request="STREAM.INFO")

    assert number_in(state, "messages", request="STREAM.INFO") == 3
    assert number_in(state, "lost", request="STREAM.INFO", default=0) == 0


@pytest.mark.parametrize("raw", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_an_error_of_the_request(raw: bytes) -> None:
    """It names the request."""
    with pytest.raises(StreamError, match=r"STREAM\.INFO"):
        read_object(raw, request="STREAM.INFO")


@pytest.mark.parametrize("value", ["3", True, 1.5, -1, 1 << 70, None, []])
def test_what_is_no_number_is_an_error(value: object) -> None:
    """Whole numbers of a stream are from 0 to the largest sequence."""
    with pytest.raises(StreamError, match="messages"):
        number_in({"messages": value}, "messages", request="STREAM.INFO")
