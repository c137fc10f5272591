"""Failed deliveries: attempts, the delay until the next one, dead letters, and endpoints that are disabled (410)."""

from __future__ import annotations

import contextlib
import random
from datetime import UTC, datetime, timedelta

import msgspec

from turnout.delivery.attempts import Attempt, AttemptLog
from turnout.delivery.counts import DeliveryCounts
from turnout.delivery.lane import Delivery, Lane
from turnout.delivery.letters import ATTEMPTS, REASON, WEBHOOK_ID
from turnout.delivery.queue import DeliveryQueue
from turnout.delivery.requests import message_id
from turnout.delivery.response import GONE, Response
from turnout.delivery.retry import delay_of, seconds_of
from turnout.errors import TurnoutError
from turnout.nats.protocol.headers import MESSAGE_ID


class Failures:
    """Decides on failed deliveries, and stores the decision before anything else is done with the message.

    Args:
        queue: stores dead letters.
        log: log of failed attempts, and of disabled endpoints.
        counts: counts of the dispatcher.
    """

    def __init__(self, queue: DeliveryQueue, log: AttemptLog, counts: DeliveryCounts) -> None:
        self._queue = queue
        self._log = log
        self._counts = counts

    def identity(self, delivery: Delivery) -> str:
        """Return the ``webhook-id`` of a delivery."""
        message = delivery.message
        known = message.header(WEBHOOK_ID)
        if known:
            return known
        own = message.header(MESSAGE_ID)
        return message_id(own, "" if own else f"{self._queue.label}:{delivery.sequence}")

    async def next_attempt(self, lane: Lane, delivery: Delivery, response: Response) -> float | None:
        """Store a failed attempt; return the seconds until the next one, None if the delivery is given up.

        Raises:
            TurnoutError: the server of the queue does not answer.
        """
        attempts = await self._log.of(delivery.sequence) if delivery.has_failed else []
        now = datetime.now(UTC)
        attempts.append(Attempt(now, response.status, response.error))
        self._counts.failed += 1
        if response.status == GONE:
            # A 410 that this dispatcher has caused itself must not disable an endpoint that was enabled again.
            if lane.endpoint.destination not in self._log.disabled:
                await self._log.disable(lane.endpoint.destination)
            await self.give_up(delivery, attempts, "the endpoint answered 410, and is disabled")
            return None
        asked = seconds_of(response.retry_after, now) if response.retry_after else None
        delay = delay_of(lane.settings, len(attempts), asked, random.random())  # noqa: S311 - spreads load
        if delay is None:
            await self.give_up(delivery, attempts, f"the last of {len(attempts):,} attempts failed")
            return None
        attempts[-1] = msgspec.structs.replace(attempts[-1], next=now + timedelta(seconds=delay))
        await self._log.keep(delivery.sequence, attempts)
        delivery.has_failed = True
        return delay

    async def discard(self, lane: Lane, delivery: Delivery) -> None:
        """Store a dead letter of a delivery for which there is no space."""
        # Without an answer of the server the message is redelivered.
        with contextlib.suppress(TurnoutError, OSError):
            attempts = await self._log.of(delivery.sequence)
            lane.parked.pop(delivery.sequence, None)
            await self.give_up(delivery, attempts, f"{lane.settings.max_waiting:,} messages wait for the endpoint")

    async def give_up(self, delivery: Delivery, attempts: list[Attempt], reason: str) -> None:
        """Store a dead letter, then acknowledge the delivery."""
        message = delivery.message
        headers = {name: values for name, values in message.headers.items() if not name.lower().startswith("nats-")}
        headers[REASON] = [reason]
        headers[WEBHOOK_ID] = [self.identity(delivery)]
        headers[ATTEMPTS] = [msgspec.json.encode(attempts).decode()]
        identity = f"dead:{self._queue.label}:{delivery.sequence}"
        await self._queue.store_dead(message.subject, message.data, headers, identity)
        self._counts.dead += 1
        with contextlib.suppress(TurnoutError):
            await message.double_ack()
        if attempts:
            await self._log.forget(delivery.sequence)
