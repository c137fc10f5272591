"""Lines of the NATS protocol."""

from __future__ import annotations

import pytest

from turnout.errors import StreamError
from turnout.nats.protocol.errors import BrokenFrameError
from turnout.nats.protocol.frames import (
    ErrorLine,
    MessageLine,
    largest_message,
    number_in,
    object_in,
    read_info,
    read_object,
)


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


def test_message_lines() -> None:
    """With and without a reply, with and without headers."""
    assert MessageLine.parse(b"MSG a.b 7 11") == MessageLine("a.b", "", 0, 11)
    assert MessageLine.parse(b"MSG a.b 7 _INBOX.1 11") == MessageLine("a.b", "_INBOX.1", 0, 11)
    assert MessageLine.parse(b"HMSG a.b 7 12 23") == MessageLine("a.b", "", 12, 23)
    assert MessageLine.parse(b"HMSG a.b 7 r 12 23") == MessageLine("a.b", "r", 12, 23)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"PING",
        b"MSG a",
        b"MSG a 1 -1",
        b"MSG a 1 9999999999999",
        b"HMSG a 1 5 4",
        b"MSG a 1 b c 5",
        b"MSG a 1 200",
    ],
)
def test_broken_lines(line: bytes) -> None:
    """This includes a message above the limit: the parser does not wait for its bytes."""
    with pytest.raises(BrokenFrameError):
        MessageLine.parse(line, 100)


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"max_payload": "1"}', b'{"max_payload": 0}', b'{"nonce": 1}'])
def test_a_broken_info(raw: bytes) -> None:
    """Fields that clients use have their form."""
    with pytest.raises(BrokenFrameError, match="INFO"):
        read_info(raw)


def test_the_largest_message_follows_the_servers_limit() -> None:
    """With room for the headers that it adds."""
    large = read_info(b'{"max_payload": 134217728}')

    assert largest_message(large) > 134_217_728
    assert largest_message({}) > 0


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b" 'Stale Connection'", ErrorLine("Stale Connection", passing=True, closes=True)),
        (b" 'Authorization Violation'", ErrorLine("Authorization Violation", passing=False, closes=True)),
        (
            b" 'Permissions Violation for Publish to \"a\"'",
            ErrorLine('Permissions Violation for Publish to "a"', passing=False, closes=False),
        ),
    ],
)
def test_error_lines(raw: bytes, line: ErrorLine) -> None:
    """Those that pass, those that end the connection, and those that do not."""
    assert ErrorLine.parse(raw) == line
    assert line.code == (400 if line.passing else 403)
