"""Errors by a server's answers."""

from __future__ import annotations

import pytest

from turnout.errors import StreamError
from turnout.nats.protocol.errors import BrokenFrameError, StreamNotFoundError, WrongLastSequenceError, api_error


@pytest.mark.parametrize(
    ("err_code", "kind"), [(10059, StreamNotFoundError), (10071, WrongLastSequenceError), (1, StreamError)]
)
def test_the_code_chooses_the_class(err_code: int, kind: type[StreamError]) -> None:
    """Unknown ones are the common class; the message names request, description and both codes."""
    error = api_error({"code": 404, "err_code": err_code, "description": "no"}, request="STREAM.INFO.S")

    assert type(error) is kind
    assert (error.code, error.err_code) == (404, err_code)
    assert str(error) == f"STREAM.INFO.S: no (404, err_code {err_code})"


@pytest.mark.parametrize("error", [None, "x" * 10_000, [], {"code": "404", "err_code": True}])
def test_an_error_of_another_form_is_named_as_it_is(error: object) -> None:
    """In a bounded text."""
    found = api_error(error)

    assert (found.code, found.err_code) == (0, 0)
    assert len(str(found)) < 200


def test_a_broken_frame_shows_its_beginning() -> None:
    """The error also names the server, once it is known."""
    error = BrokenFrameError("MSG", "it has 1 field", b"x" * 1000).sent_by("nats://a:4222")

    assert str(error).startswith("nats://a:4222 sent a broken MSG frame: it has 1 field")
    assert len(error.head) < 100
