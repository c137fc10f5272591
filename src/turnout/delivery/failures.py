"""Failed deliveries: attempts, the delay until the next one, dead letters, and endpoints that are disabled (410)."""

from __future__ import annotations

import contextlib
import logging
import random
from datetime import UTC, datetime, timedelta

import msgspec

from turnout.delivery.attempts import Attempt, AttemptLog
from turnout.delivery.counts import DeliveryCounts
from turnout.delivery.lane import Delivery, Lane
from turnout.delivery.letters import ATTEMPTS, REASON, WEBHOOK_ID
from turnout.delivery.queue import DeliveryQueue, QueuedMessage
from turnout.delivery.requests import message_id
from turnout.delivery.response import GONE, Response
from turnout.delivery.retry import delay_of, seconds_of
from turnout.errors import StreamError, TurnoutError
from turnout.nats.protocol.headers import MESSAGE_ID

_log = logging.getLogger(__name__)
_UNANSWERED = (408, 503)
"""Codes of requests to a server that does not answer: a smaller message would not help."""


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
        await self._store_dead(message, headers, attempts, identity)
        self._counts.dead += 1
        # The letter is stored: what follows is repeated after a redelivery, and forgotten by the bucket.
        with contextlib.suppress(TurnoutError, OSError):
            await message.double_ack()
        if attempts:
            with contextlib.suppress(TurnoutError, OSError):
                await self._log.forget(delivery.sequence)

    async def _store_dead(
        self, message: QueuedMessage, headers: dict[str, list[str]], attempts: list[Attempt], identity: str
    ) -> None:
        """Store a dead letter, with less about its end if it would be larger than the queue takes.

        The message itself did fit, so the last form does: without any header of ours.
        """
        own = {name: values for name, values in headers.items() if name not in (REASON, ATTEMPTS, WEBHOOK_ID)}
        last = [msgspec.structs.replace(attempt, error="") for attempt in attempts[-1:]]
        forms = (
            (headers, identity),
            ({**headers, ATTEMPTS: [msgspec.json.encode(last).decode()]}, identity),
            ({**own, WEBHOOK_ID: headers[WEBHOOK_ID], REASON: headers[REASON]}, identity),
            ({**own, WEBHOOK_ID: headers[WEBHOOK_ID]}, ""),
            (own, ""),
        )
        refused: StreamError | None = None
        for form, msg_id in forms:
            try:
                await self._queue.store_dead(message.subject, message.data, form, msg_id)
            except StreamError as failure:
                if failure.code in _UNANSWERED:
                    raise
                refused = refused or failure
            else:
                if refused is not None:
                    what = f"{self._queue.name}: the dead letter of the message {message.sequence}"
                    _log.warning("%s has no room for its attempts (%s): %s", what, refused, headers[REASON][0])
                return
        assert refused is not None
        raise refused
