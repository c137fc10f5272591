"""Failed deliveries: attempts, the delay until the next one, dead letters, and endpoints that are disabled (410)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from turnout.base.background import spread
from turnout.delivery.client import GONE, Response
from turnout.delivery.lane import Delivery, Lane
from turnout.delivery.queue import (
    ATTEMPTS,
    REASON,
    WEBHOOK_ID,
    Attempt,
    AttemptLog,
    DeliveryQueue,
    Failing,
    QueuedMessage,
    endpoint_key,
)
from turnout.delivery.requests import message_id
from turnout.errors import StreamError, TurnoutError, message_of
from turnout.nats.protocol.headers import MESSAGE_ID
from turnout.runtime.leases import LeaseLostError
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.tenants import tenant_of

_log = logging.getLogger(__name__)
_LEAST_FAILURES: Final = 10
"""Failures in a row that an endpoint has at least before it is disabled: a few messages in a week say little."""

_KEPT_SECONDS: Final = 60.0
"""Failures are stored when they have lasted for so long, and so often: short ones cost nothing."""

_REMEMBERED: Final = 100_000
_UNANSWERED = (408, 503)
"""Codes of requests to a server that does not answer: a smaller message would not help."""


class Failures:
    """Decides on failed deliveries, and stores the decision before anything else is done with the message.

    Args:
        queue: stores dead letters.
        log: log of failed attempts, and of disabled endpoints.
        counts: counts of the dispatcher.
        report: called with each change of an endpoint's state.

    Attributes:
        failing: failures of endpoints since their last success, by `endpoint_key`.
    """

    def __init__(
        self,
        queue: DeliveryQueue,
        log: AttemptLog,
        counts: DeliveryCounts,
        report: Callable[[DeliveryEvent], None] = lambda _: None,
    ) -> None:
        self._queue = queue
        self._log = log
        self._counts = counts
        self._report = report
        self._known: set[str] = set()
        self._disabling = asyncio.Lock()
        self.failing: dict[str, Failing] = {}

    def identity(self, delivery: Delivery) -> str:
        """Return the ``webhook-id`` of a delivery."""
        message = delivery.message
        known = message.header(WEBHOOK_ID)
        if known:
            return known
        own = message.header(MESSAGE_ID)
        return message_id(own, "" if own else f"{self._queue.label}:{delivery.sequence}")

    def _check(self, delivery: Delivery) -> None:
        """Refuse to write for a delivery that is another dispatcher's.

        Raises:
            LeaseLostError: it is.
        """
        if not self._queue.is_ours(delivery.message):
            raise LeaseLostError("another dispatcher has its endpoint now")

    def forget(self) -> None:
        """Read the failures of endpoints again, which other dispatchers may have had meanwhile."""
        self._known.clear()
        self.failing.clear()

    async def know(self, destination: str, tenant: str) -> None:
        """Read the stored failures of an endpoint before its first request.

        Raises:
            TurnoutError: the server of the queue does not answer.
        """
        key = endpoint_key(destination, tenant)
        if key in self._known:
            return
        if (failing := await self._log.failing(key)) is not None:
            self.failing.setdefault(key, failing)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known.add(key)

    def failed(self, destination: str, tenant: str) -> None:
        """Count a failed request of an endpoint."""
        failing = self.failing.setdefault(endpoint_key(destination, tenant), Failing(time.time()))
        failing.failures += 1

    async def recovered(self, key: str) -> None:
        """Forget the failures of an endpoint that has taken a message; without an answer they are kept for a while."""
        failing = self.failing.pop(key, None)
        if failing is not None and failing.stored_at:
            try:
                await self._log.forget_failing(key)
            except (TurnoutError, OSError) as away:
                _log.warning(
                    "%s: failures of an endpoint that works stay stored: %s", self._queue.name, message_of(away)
                )

    async def _is_too_long(self, lane: Lane, tenant: str) -> bool:
        """Return True, and disable the endpoint, if it has failed for longer than the settings allow."""
        destination, limit = lane.endpoint.destination, lane.settings.disable_after
        key, now = endpoint_key(destination, tenant), time.time()
        failing = self.failing.get(key)
        if failing is None or self._log.is_disabled(destination, tenant):
            return False
        if limit is not None and failing.failures >= _LEAST_FAILURES and now - failing.since >= limit:
            since = datetime.fromtimestamp(failing.since, UTC)
            await self._disable(destination, tenant, f"failures since {since:%Y-%m-%d %H:%M} UTC")
            await self.recovered(key)
            return True
        if now - max(failing.since, failing.stored_at) >= _KEPT_SECONDS:
            failing.stored_at = now
            await self._log.keep_failing(key, failing)
        return False

    async def _disable(self, destination: str, tenant: str, reason: str) -> None:
        """Disable an endpoint, and tell about it: in the log, by an event and by a notice.

        Raises:
            TurnoutError: the server of the queue does not store it.
        """
        async with self._disabling:
            if self._log.is_disabled(destination, tenant):
                # By another of its messages, just now.
                return
            await self._log.disable(destination, tenant, reason)
        for_whom = f" for the tenant {tenant}" if tenant else ""
        text = "%s: %s is disabled%s by %s: its messages become dead letters until it is enabled"
        _log.error(text, self._queue.name, destination, for_whom, reason)
        self._report(DeliveryEvent("endpoint.disabled", destination, tenant, reason))
        notice = {
            "type": "endpoint.disabled",
            "stream": self._queue.name,
            "destination": destination,
            "tenant": tenant,
            "reason": f"disabled by {reason}",
            "time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        }
        identity = f"notice:{self._queue.label}:{endpoint_key(destination, tenant)}:{notice['time']}"
        try:
            await self._queue.store_notice(msgspec.json.encode(notice), identity)
        except (TurnoutError, OSError) as failure:
            # The endpoint is disabled in any case, and the log has said it.
            _log.error("%s: the notice about %s is not stored: %s", self._queue.name, destination, message_of(failure))

    async def next_attempt(self, lane: Lane, delivery: Delivery, response: Response) -> float | None:
        """Store a failed attempt; return the seconds until the next one, None if the delivery is given up.

        Raises:
            TurnoutError: the server of the queue does not answer.
        """
        self._check(delivery)
        attempts = await self._log.of(delivery.sequence) if delivery.has_failed else []
        now = datetime.now(UTC)
        attempts.append(Attempt(now, response.status, response.error))
        destination, tenant = lane.endpoint.destination, tenant_of(delivery.subscription)
        if response.is_disabled:
            await self.give_up(delivery, attempts, response.error.removeprefix("not sent: "))
            return None
        if response.status == GONE:
            await self._disable(destination, "", "410")
            await self.give_up(delivery, attempts, "the endpoint answered 410, and is disabled")
            return None
        if await self._is_too_long(lane, tenant):
            reason = self._log.reason(destination, tenant)
            await self.give_up(delivery, attempts, f"the endpoint is disabled by {reason}")
            return None
        asked = seconds_of(response.retry_after, now) if response.retry_after else None
        delay = delay_of(lane.settings, len(attempts), asked, spread(1.0, 0.0))
        if delay is None:
            await self.give_up(delivery, attempts, f"the last of {len(attempts):,} attempts failed")
            return None
        attempts[-1] = msgspec.structs.replace(attempts[-1], next=now + timedelta(seconds=delay))
        await self._log.keep(delivery.sequence, attempts)
        delivery.has_failed = True
        self._counts.retried += 1
        return delay

    async def discard(self, lane: Lane, delivery: Delivery) -> None:
        """Store a dead letter of a delivery for which there is no space."""
        # Without an answer of the server the message is redelivered.
        with contextlib.suppress(TurnoutError, OSError):
            attempts = await self._log.of(delivery.sequence)
            lane.parked.pop(delivery.sequence, None)
            reason = f"{lane.settings.max_waiting:,} messages wait for the endpoint"
            await self.give_up(delivery, attempts, reason, is_attempt=False)

    async def give_up(
        self, delivery: Delivery, attempts: list[Attempt], reason: str, *, is_attempt: bool = True
    ) -> None:
        """Store a dead letter, then acknowledge the delivery.

        Args:
            delivery: the delivery.
            attempts: its failed attempts.
            reason: why it is given up.
            is_attempt: whether an attempt that failed just now is the cause.
        """
        self._check(delivery)
        message = delivery.message
        headers = {name: values for name, values in message.headers.items() if not name.lower().startswith("nats-")}
        headers[REASON] = [reason]
        headers[WEBHOOK_ID] = [self.identity(delivery)]
        headers[ATTEMPTS] = [msgspec.json.encode(attempts).decode()]
        identity = f"dead:{self._queue.label}:{delivery.sequence}"
        await self._store_dead(message, headers, attempts, identity)
        self._counts.dead += 1
        self._counts.discarded += not is_attempt
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


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """Change of the state of an endpoint.

    Attributes:
        kind: ``endpoint.disabled``.
        destination: as subscriptions have it.
        tenant: the tenant whose requests are meant; "" for all.
        reason: why.
    """

    kind: str
    destination: str
    tenant: str
    reason: str


@dataclass(slots=True)
class DeliveryCounts:
    """Counts of a dispatcher.

    Attributes:
        delivered: messages that an endpoint has taken.
        requests: requests that were sent; at rest, requests + not_sent = delivered + failed + unfinished.
        failed: attempts without a 2xx.
        not_sent: those of them without a request, as the endpoint is disabled, or no request can be made.
        retried: those of them after which another follows; at rest, failed = retried + dead - discarded.
        dead: messages that were given up.
        discarded: those of them that were given up without an attempt of their own, as too many wait or no endpoint is
            named.
        unfinished: requests whose outcome was not awaited any longer when the dispatcher ended.
        parked: messages given back to the queue, as their endpoint is slow.
        unstored: outcomes of requests, as dead letters, that the queue's server did not store at the first attempt.
        stored_late: those of them that it has stored since.
    """

    delivered: int = 0
    requests: int = 0
    failed: int = 0
    not_sent: int = 0
    retried: int = 0
    dead: int = 0
    discarded: int = 0
    unfinished: int = 0
    parked: int = 0
    unstored: int = 0
    stored_late: int = 0
