"""Failed deliveries: attempts, the delay until the next one, dead letters, and endpoints that are disabled (410)."""

from __future__ import annotations

import contextlib
import logging
import random
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from turnout.delivery.client import GONE, Response
from turnout.delivery.lane import Delivery, Lane
from turnout.delivery.queue import ATTEMPTS, REASON, WEBHOOK_ID, Attempt, AttemptLog, DeliveryQueue, QueuedMessage
from turnout.delivery.requests import message_id
from turnout.errors import StreamError, TurnoutError
from turnout.nats.protocol.headers import MESSAGE_ID
from turnout.subscriptions.delivery_settings import DeliverySettings

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


_MAX_SECONDS: Final = 10**9
"""Seconds of the longest wait that is read; a longer one is this one."""

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_FIXED_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, (?P<day>[0-9]{{2}}) (?P<month>[A-Z][a-z]{{2}}) (?P<year>[0-9]{{4}}) {_TIME} (?:GMT|UTC|\+0000)"
)
_RFC850_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{5,8}}, (?P<day>[0-9]{{2}})-(?P<month>[A-Z][a-z]{{2}})-(?P<year>[0-9]{{2}}) {_TIME} GMT"
)
_ASCTIME_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})"
)
_DATES: Final = (_FIXED_DATE, _RFC850_DATE, _ASCTIME_DATE)
"""The forms of a date in HTTP (RFC 9110, 5.6.7): IMF-fixdate, and the obsolete ones of RFC 850 and of asctime."""


def delay_of(settings: DeliverySettings, failures: int, retry_after: float | None, draw: float) -> float | None:
    """Return the seconds until the next attempt; None if there is none.

    Args:
        settings: have the schedule.
        failures: number of attempts so far, from 1.
        retry_after: seconds requested by the endpoint; None for none.
        draw: random number from 0 to 1.

    >>> settings = DeliverySettings(retry=(5.0, 60.0), jitter=0.2)
    >>> delay_of(settings, 1, None, 0.5), delay_of(settings, 2, None, 1.0), delay_of(settings, 3, None, 0.5)
    (5.0, 72.0, None)
    >>> delay_of(settings, 1, 30.0, 0.5)
    30.0
    """
    if failures > len(settings.retry):
        return None
    delay = settings.retry[failures - 1] * (1 + settings.jitter * (2 * draw - 1))
    return delay if retry_after is None else max(delay, min(retry_after, settings.retry_after))


def seconds_of(retry_after: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After, as a number or as a date (RFC 9110, 10.2.3); None for any other text.

    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> seconds_of("120", now), seconds_of("Thu, 01 Jan 2026 00:01:00 GMT", now), seconds_of("soon", now)
    (120.0, 60.0, None)
    """
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        # Digits beyond the longest wait are not converted: int() refuses thousands of them.
        return float(
            _MAX_SECONDS
            if len(text.lstrip("0")) > len(str(_MAX_SECONDS))
            else min(int(text.lstrip("0") or "0"), _MAX_SECONDS)
        )
    moment = _date(text, now)
    return None if moment is None else min(max(0.0, (moment - now).total_seconds()), float(_MAX_SECONDS))


def _date(text: str, now: datetime) -> datetime | None:
    """Return the time of an HTTP date; None for a text that is none, and for a date that no calendar has."""
    match = next(filter(None, (form.fullmatch(text) for form in _DATES)), None)
    if match is None or match["month"] not in _MONTHS:
        return None
    year, second = int(match["year"]), int(match["second"])
    # The 61st second of a minute is a leap second.
    leap = second == 60
    fields = (int(match["day"]), int(match["hour"]), int(match["minute"]), 59 if leap else second)
    try:
        if len(match["year"]) == 2:
            # Two digits mean the last such year that is not more than 50 years ahead.
            year += (now.year + 50 - year) // 100 * 100
        moment = datetime(year, _MONTHS.index(match["month"]) + 1, *fields, tzinfo=UTC)
        return moment + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        return None


@dataclass(slots=True)
class DeliveryCounts:
    """Counts of a dispatcher.

    Attributes:
        delivered: messages that an endpoint has taken.
        requests: requests that were sent.
        failed: requests without a 2xx.
        dead: messages that were given up.
        parked: messages given back to the queue, as their endpoint is slow.
        unstored: outcomes of requests, as dead letters, that the queue's server did not store at the first attempt.
        stored_late: those of them that it has stored since.
    """

    delivered: int = 0
    requests: int = 0
    failed: int = 0
    dead: int = 0
    parked: int = 0
    unstored: int = 0
    stored_late: int = 0
