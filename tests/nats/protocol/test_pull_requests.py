"""Pull requests and the statuses that answer them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from turnout.nats.protocol.pull_requests import PullStatus, ephemeral_config, pull_body


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
