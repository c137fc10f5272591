"""Lines of the NATS protocol."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from turnout.errors import StreamError
from turnout.nats.protocol.errors import BrokenFrameError
from turnout.nats.protocol.frames import (
    ErrorLine,
    MessageLine,
    PullStatus,
    ephemeral_config,
    largest_message,
    number_in,
    object_in,
    pull_body,
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


@pytest.mark.parametrize(
    ("code", "text", "meaning"),
    [
        (100, "Idle Heartbeat", PullStatus.HEARTBEAT),
        (404, "No Messages", PullStatus.EXPIRED),
        (408, "Request Timeout", PullStatus.EXPIRED),
        (409, "Batch Completed", PullStatus.COMPLETED),
        (409, "Message Size Exceeds MaxBytes", PullStatus.TOO_LARGE),
        (409, "Leadership Change", PullStatus.MOVED),
        (409, "Server Shutdown", PullStatus.MOVED),
        (409, "Exceeded MaxWaiting", PullStatus.TOO_MANY_REQUESTS),
        (409, "Consumer Deleted", PullStatus.DELETED),
        (409, "Stream Deleted", PullStatus.DELETED),
        (409, "Exceeded MaxRequestBatch of 10", PullStatus.REFUSED),
        (503, "", PullStatus.NO_RESPONDERS),
        (400, "Bad Request", PullStatus.REFUSED),
    ],
)
def test_statuses(code: int, text: str, meaning: PullStatus) -> None:
    """Each status of a server has one meaning for both clients."""
    assert PullStatus.of(code, text) is meaning
    assert meaning.ends_request == (meaning in (PullStatus.EXPIRED, PullStatus.COMPLETED, PullStatus.TOO_LARGE))


def test_body() -> None:
    """Durations are nanoseconds, and what is not given is left out."""
    assert json.loads(pull_body(5, expires=1.5, max_bytes=10)) == {
        "batch": 5,
        "expires": 1_500_000_000,
        "max_bytes": 10,
    }
    assert json.loads(pull_body(1, no_wait=True)) == {"batch": 1, "no_wait": True}


def test_ephemeral_config() -> None:
    """The start decides the deliver policy, the number of filters their field."""
    start = datetime(2026, 11, 23, tzinfo=UTC)

    assert ephemeral_config(None)["deliver_policy"] == "new"
    assert ephemeral_config(start)["opt_start_time"] == start.isoformat()
    by_sequence = ephemeral_config(7, ["a"], idle_seconds=2, max_waiting=8)
    assert (by_sequence["opt_start_seq"], by_sequence["filter_subject"]) == (7, "a")
    assert (by_sequence["inactive_threshold"], by_sequence["max_waiting"]) == (2_000_000_000, 8)
    assert ephemeral_config(7, ["a", "b"])["filter_subjects"] == ["a", "b"]
