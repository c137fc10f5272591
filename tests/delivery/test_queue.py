"""Failed attempts of deliveries, as a bucket has them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest

from turnout.delivery.queue import ATTEMPTS, REASON, WEBHOOK_ID, Attempt, AttemptLog, DeadDelivery

FAILED = Attempt(datetime(2026, 11, 28, tzinfo=UTC), 500, "no")


class DictBucket:
    """Bucket in memory."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    async def put(self, key: str, value: bytes) -> None:
        self.values[key] = value

    async def purge(self, key: str) -> None:
        self.values.pop(key, None)


def test_attempts_belong_to_one_stream() -> None:
    """A stream that is made anew has its sequences for others, which have not failed; endpoints stay."""

    async def work() -> None:
        bucket = DictBucket()
        before = await AttemptLog.open(bucket, "HOOKS.1")
        await before.keep(7, [FAILED])
        await before.disable("webhook:e")

        now = await AttemptLog.open(bucket, "HOOKS.2")

        assert (await before.of(7), await now.of(7), now.disabled) == ([FAILED], [], {"webhook:e"})
        await now.forget(7)
        assert await before.of(7) == [FAILED]
        await before.forget(7)
        assert await before.of(7) == []

    asyncio.run(work())


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
