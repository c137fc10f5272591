"""Failed attempts of deliveries, as a bucket has them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from turnout.delivery.attempts import Attempt, AttemptLog

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
