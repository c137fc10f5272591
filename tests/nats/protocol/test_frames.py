"""Lines of the NATS protocol."""

from __future__ import annotations

import pytest

from turnout.nats.protocol.errors import BrokenFrameError
from turnout.nats.protocol.frames import ErrorLine, MessageLine, largest_message, read_info


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
