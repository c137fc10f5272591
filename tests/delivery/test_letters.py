"""Dead letters of deliveries, read from headers that others may have written."""

from __future__ import annotations

import json

import pytest

from turnout.delivery.letters import ATTEMPTS, REASON, WEBHOOK_ID, DeadDelivery


def test_a_letter_says_what_was_tried() -> None:
    """Its attempts are in order, with status and error."""
    tried = [{"at": "2026-01-02T03:04:05Z", "status": 500, "error": "no"}]
    written = json.dumps([*tried, {"at": "2026-01-02T03:04:06Z", "status": None, "error": "x"}])
    headers = {REASON: ["the last of 2 attempts failed"], WEBHOOK_ID: ["msg_1"], ATTEMPTS: [written]}
    letter = DeadDelivery.of("7", ("webhook:e", "oulu"), None, headers, 5)

    assert [(attempt.status, attempt.error) for attempt in letter.attempts] == [(500, "no"), (None, "x")]
    assert (letter.destination, letter.subscription, letter.webhook_id) == ("webhook:e", "oulu", "msg_1")


@pytest.mark.parametrize("written", ["", "[", "{}", '[{"at": 1}]', '[{"at":"2026-01-02T03:04:05Z"}]', "\ud800"])
def test_damaged_attempts_are_none(written: str) -> None:
    """The letter is shown nevertheless."""
    letter = DeadDelivery.of("7", None, None, {ATTEMPTS: [written]}, 0)

    assert letter.attempts == ()
    assert (letter.destination, letter.reason) == ("", "")
