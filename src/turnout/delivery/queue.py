"""Queue of deliveries, as every kind of server has it, with their failed attempts and their dead letters."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, Self, TypeVar

import msgspec

from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.clients import PartitionProgress
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PartitionRange, RangeReader, committed_progress
from turnout.nats.jetstream import JetStream, KeyValue, KeyValueConfig
from turnout.nats.jetstream.errors import MessageNotFoundError, WrongLastSequenceError
from turnout.nats.protocol.headers import HeaderInput, Headers
from turnout.routes.webhooks import WebhooksPart
from turnout.runtime.kafka.source import partitions_of
from turnout.subscriptions.destinations import delivery_address

_log = logging.getLogger(__name__)
_KEPT_SECONDS = 45 * 86_400.0
_MARKER_SECONDS = 60.0
_EARLY_SECONDS: Final = 0.05
_T = TypeVar("_T")

_DISABLED = "disabled"
_REASONS = "disabled-reasons"
_LASTING = (_DISABLED, _REASONS)
"""Keys that do not expire with the others of a bucket: an endpoint is disabled until it is enabled."""


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request that failed.

    Attributes:
        at: its time.
        status: status of the response; None without one.
        error: the failure.
        next: time of the next attempt; None if there is none, or if it follows as soon as possible.
    """

    at: datetime
    status: int | None
    error: str
    next: datetime | None = None


class Bucket(Protocol):
    """Values by keys, which outlive the dispatcher."""

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; None for a key without one."""

    async def put(self, key: str, value: bytes) -> None:
        """Store a value."""

    async def purge(self, key: str) -> None:
        """Remove a key."""


class JetStreamBucket:
    """Bucket of JetStream.

    Args:
        bucket: that has the values.
    """

    def __init__(self, bucket: KeyValue) -> None:
        self.bucket = bucket

    @classmethod
    async def open(cls, js: JetStream, name: str) -> Self:
        """Open the bucket of a name, or make it."""
        config = KeyValueConfig(bucket=name, ttl=_KEPT_SECONDS, limit_marker_ttl=_MARKER_SECONDS)
        opened = cls(await js.create_key_value(config))
        for key in _LASTING:
            await opened._keep(key)
        return opened

    async def _keep(self, key: str) -> None:
        """Take an age off a key that an earlier release has stored, unless it is changed at the same time."""
        with suppress(MessageNotFoundError, WrongLastSequenceError):
            entry = await self.bucket.get(key)
            await self.bucket.update(key, entry.value, entry.revision, ttl="never")

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; None for a key without one."""
        try:
            return (await self.bucket.get(key)).value
        except MessageNotFoundError:
            return None

    async def put(self, key: str, value: bytes) -> None:
        """Store a value."""
        await self.bucket.put(key, value, ttl="never" if key in _LASTING else None)

    async def purge(self, key: str) -> None:
        """Remove a key; the mark of it stays for a minute."""
        await self.bucket.purge(key, ttl=_MARKER_SECONDS)


class Failing(msgspec.Struct, omit_defaults=True):
    """Failures of an endpoint since its last success.

    Attributes:
        since: time of the first one, in seconds since 1970.
        failures: how many there are.
        stored_at: when they were stored last; 0 for never.
    """

    since: float
    failures: int = 0
    stored_at: float = 0.0


class DisabledReason(msgspec.Struct, frozen=True):
    """Why an endpoint is disabled, and since when, in seconds since 1970."""

    at: float
    reason: str


class Consent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer of an endpoint to the question whether it wants messages.

    Attributes:
        is_granted: whether it does.
        kind: how it was asked.
        at: time of the answer, in seconds since 1970.
        problem: why it does not; "" if it does.
        rate: requests of a second that it allows; None for no limit.
    """

    is_granted: bool
    kind: str
    at: float
    problem: str = ""
    rate: float | None = None


def endpoint_key(destination: str, tenant: str = "") -> str:
    """Return the name of an endpoint for a tenant; *destination* itself is the endpoint for all.

    >>> endpoint_key("https://a.example/"), endpoint_key("https://a.example/", "acme")
    ('https://a.example/', '@acme https://a.example/')
    """
    return f"@{tenant} {destination}" if tenant else destination


class AttemptLog:
    """Failed attempts by the delivery's sequence, and the state of endpoints.

    Args:
        bucket: bucket that has them.
        label: stream or topic of the deliveries with its identity: one that is made anew has the same sequences again.
        disabled: endpoints that are disabled, by their `endpoint_key`.

    Attributes:
        reasons: why they are, as far as it is known.
        consents: answers of endpoints that were asked, by their `endpoint_key`.
    """

    def __init__(self, bucket: Bucket, label: str, disabled: set[str]) -> None:
        self._bucket = bucket
        self._label = label
        self.disabled = disabled
        self.reasons: dict[str, DisabledReason] = {}
        self.consents: dict[str, Consent] = {}

    @classmethod
    async def open(cls, bucket: Bucket, label: str) -> Self:
        """Return the log that a bucket has of a stream or topic."""
        log = cls(bucket, label, set())
        await log.refresh()
        return log

    async def refresh(self) -> None:
        """Look which endpoints are disabled now: others disable and enable them too."""
        stored = await self._bucket.get(_DISABLED)
        try:
            disabled = set() if stored is None else set(msgspec.json.decode(stored, type=list[str]))
            if disabled - self.reasons.keys():
                reasons = await self._bucket.get(_REASONS)
                self.reasons = {} if reasons is None else msgspec.json.decode(reasons, type=dict[str, DisabledReason])
        except ValueError as problem:
            # The endpoints that were disabled before stay so.
            _log.warning("the list of disabled endpoints cannot be read, and will be replaced: %s", problem)
        else:
            self.disabled = disabled

    async def of(self, sequence: int) -> list[Attempt]:
        """Return the failed attempts of a delivery."""
        return attempts_of(await self._bucket.get(attempts_key(self._label, sequence)))

    async def keep(self, sequence: int, attempts: list[Attempt]) -> None:
        """Store the failed attempts of a delivery."""
        await self._bucket.put(attempts_key(self._label, sequence), msgspec.json.encode(attempts))

    async def forget(self, sequence: int) -> None:
        """Remove the attempts of a delivery that is done."""
        await self._bucket.purge(attempts_key(self._label, sequence))

    def is_disabled(self, destination: str, tenant: str) -> bool:
        """Return True if an endpoint gets no requests, for all or for this tenant."""
        return destination in self.disabled or endpoint_key(destination, tenant) in self.disabled

    def reason(self, destination: str, tenant: str) -> str:
        """Return why an endpoint is disabled, as in "disabled by 410"."""
        keys = (key for key in (destination, endpoint_key(destination, tenant)) if key in self.disabled)
        known = self.reasons.get(next(keys, ""))
        # What an earlier release has disabled has answered 410.
        return "410" if known is None else known.reason

    async def disable(self, destination: str, tenant: str = "", reason: str = "410") -> None:
        """Keep an endpoint from further requests, also after a restart.

        Args:
            destination: as subscriptions have it.
            tenant: the tenant whose requests are meant; "" for all.
            reason: why, as in "disabled by 410".
        """
        key = endpoint_key(destination, tenant)
        reasons = {one: known for one, known in self.reasons.items() if one in self.disabled}
        reasons[key] = DisabledReason(datetime.now(UTC).timestamp(), reason)
        # Only what is stored counts as known: a failure here is repeated.
        await self._bucket.put(_REASONS, msgspec.json.encode(reasons))
        await self._bucket.put(_DISABLED, msgspec.json.encode(sorted({*self.disabled, key})))
        self.reasons = reasons
        self.disabled.add(key)

    async def enable(self, destination: str) -> bool:
        """Let a disabled endpoint have requests, of all tenants; return False if it was not disabled."""
        keys = {key for key in self.disabled if key == destination or key.endswith(f" {destination}")}
        if not keys:
            return False
        await self._bucket.put(_DISABLED, msgspec.json.encode(sorted(self.disabled - keys)))
        self.disabled -= keys
        return True

    async def consent(self, key: str) -> Consent | None:
        """Return the stored answer of an endpoint by its `endpoint_key`; None for none."""
        return await self._stored("consent", key, Consent, ("the consent", "is asked for again"))

    async def keep_consent(self, key: str, consent: Consent) -> None:
        """Store the answer of an endpoint."""
        await self._bucket.put(_hashed("consent", key), msgspec.json.encode(consent))

    async def failing(self, key: str) -> Failing | None:
        """Return the stored failures of an endpoint by its `endpoint_key`; None for none."""
        return await self._stored("failing", key, Failing, ("failures", "are not counted"))

    async def keep_failing(self, key: str, failing: Failing) -> None:
        """Store the failures of an endpoint."""
        await self._bucket.put(_hashed("failing", key), msgspec.json.encode(failing))

    async def _stored(self, kind: str, key: str, type_: type[_T], words: tuple[str, str]) -> _T | None:
        """Return what is stored of an endpoint; None for nothing, and with a warning for what cannot be read."""
        stored = await self._bucket.get(_hashed(kind, key))
        try:
            return None if stored is None else msgspec.json.decode(stored, type=type_)
        except ValueError as problem:
            _log.warning("%s of the endpoint %s cannot be read, and %s: %s", words[0], key, words[1], problem)
            return None

    async def forget_failing(self, key: str) -> None:
        """Remove the stored failures of an endpoint."""
        await self._bucket.purge(_hashed("failing", key))


def _hashed(kind: str, key: str) -> str:
    """Return a bucket's key for a text of any characters."""
    return f"{kind}.{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def attempts_key(label: str, sequence: int) -> str:
    """Return the key of a delivery's attempts; *label* is the stream or topic with its identity."""
    return f"{label}.{sequence}"


def attempts_of(value: bytes | None) -> list[Attempt]:
    """Return the attempts that a bucket has for a delivery; none if others have written something else there."""
    try:
        return [] if value is None else msgspec.json.decode(value, type=list[Attempt])
    except (ValueError, RecursionError) as problem:
        _log.warning("failed attempts of a delivery cannot be read, and are not counted: %s", problem)
        return []


def wait_after(attempts: Sequence[Attempt]) -> float:
    """Return the seconds until the next attempt after those that failed; 0 if it is due."""
    if not attempts or attempts[-1].next is None:
        return 0.0
    seconds = (attempts[-1].next - datetime.now(UTC)).total_seconds()
    return seconds if seconds > _EARLY_SECONDS else 0.0


ATTEMPTS: Final = "Turnout-Attempts"
"""Header of a dead letter: its failed attempts as JSON, each with time, status and error."""

REASON: Final = "Turnout-Reason"
"""Header of a dead letter: why it was given up."""

WEBHOOK_ID: Final = "Turnout-Webhook-Id"
"""Header of a dead letter, and of redriven messages: the ``webhook-id`` of its requests."""


@dataclass(frozen=True, slots=True)
class DeadDelivery:
    """Delivery that was given up.

    Attributes:
        position: sequence in its stream, or ``partition:offset``.
        destination: as the subscription has it; "" if its subject names none.
        subscription: its id, empty for none.
        at: time at which it was given up; None if unknown.
        reason: why.
        webhook_id: ``webhook-id`` of its requests.
        attempts: the failed ones, the oldest first; errors are the beginnings of responses.
        size: bytes of the message.
    """

    position: str
    destination: str
    subscription: str
    at: datetime | None
    reason: str
    webhook_id: str
    attempts: tuple[Attempt, ...]
    size: int

    @classmethod
    def of(
        cls, position: str, address: tuple[str, str] | None, at: datetime | None, headers: Headers, size: int
    ) -> Self:
        """Return a dead letter by its headers, which others may have written: attempts that cannot be read are none."""
        reason, webhook_id, written = (headers.get(name, [""])[0] for name in (REASON, WEBHOOK_ID, ATTEMPTS))
        attempts = attempts_of(written.encode(errors="replace") or None)
        destination, subscription = address or ("", "")
        return cls(position, destination, subscription, at, reason, webhook_id, tuple(attempts), size)


def kafka_letters(options: KafkaOptions, webhooks: WebhooksPart, count: int) -> list[DeadDelivery]:
    """Return the last dead letters of each partition that no redrive has moved, the newest first.

    Raises:
        StreamError: a broker refuses the topic.
        ConnectionLostError: no broker answers.
    """
    topic = webhooks.topics[1]
    found: list[DeadDelivery] = []
    with KafkaAdmin(options) as admin:
        ends = admin.ends(partitions_of(admin.describe([topic])))
    moved = committed_progress(options, topic, f"{webhooks.group}.redrive", [number for _, number in ends])
    for (_, number), end in ends.items():
        progress = moved.get(number) or PartitionProgress(end.first)
        start = max(end.first, progress.next, end.next - count)
        span = PartitionRange(topic, number, start, end.next)
        for batch in RangeReader(options, span, fail_on_data_loss=False).batches():
            rows = [row for row in batch.to_pylist() if progress.begin(row["offset"])]
            found += _letters_of(rows, webhooks)
    return sorted(found, key=lambda one: (one.at.timestamp() if one.at else 0.0, one.position), reverse=True)[:count]


def _letters_of(rows: list[dict[str, object]], webhooks: WebhooksPart) -> Iterator[DeadDelivery]:
    for row in rows:
        headers: Headers = {}
        pairs: object = row["headers"]
        for pair in pairs if isinstance(pairs, list) else ():
            headers.setdefault(pair["key"], []).append((pair["value"] or b"").decode("utf-8", "replace"))
        key, value, at = row["key"], row["value"], row["timestamp"]
        subject = f"{webhooks.subject}.{key.decode('utf-8', 'replace')}" if isinstance(key, bytes) else ""
        yield DeadDelivery.of(
            f"{row['partition']}:{row['offset']}",
            delivery_address(webhooks.subject, subject),
            at if isinstance(at, datetime) else None,
            headers,
            len(value) if isinstance(value, bytes) else 0,
        )


OF_LETTERS = ("nats-", "turnout-attempts", "turnout-reason")
"""Beginnings of the headers that a redriven delivery does not have."""


class QueuedMessage(Protocol):
    """Message of a queue, with its acknowledgements; `turnout.nats.jetstream.Message` is one."""

    data: bytes

    @property
    def subject(self) -> str:
        """The subject under which it is stored."""

    @property
    def headers(self) -> Headers:
        """All headers with their values in order."""

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if the header is missing."""

    @property
    def sequence(self) -> int:
        """Its number in the queue, ascending with its age among those that have an order."""

    @property
    def is_redelivered(self) -> bool:
        """True if this queue has delivered it before."""

    @property
    def timestamp(self) -> datetime:
        """Time at which the message was stored."""

    def ack_now(self) -> None:
        """Acknowledge the message without waiting."""

    async def ack(self) -> None:
        """Acknowledge the message."""

    async def double_ack(self) -> None:
        """Acknowledge the message, and wait until that is certain if the queue can tell."""

    async def nak(self, delay: float | None = None) -> None:
        """Give the message back for *delay* seconds."""

    def nak_now(self) -> None:
        """Give the message back while the dispatcher ends."""

    async def in_progress(self) -> None:
        """Report work in progress."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Deliveries that wait, for all dispatchers of a queue.

    Attributes:
        waiting: how many are not finished, those under way and those that failed included.
        oldest: when the oldest of them was stored; None without any, or if it is unknown.
    """

    waiting: int
    oldest: datetime | None


class DeliveryQueue(Protocol):
    """Deliveries that wait, and those that were given up."""

    @property
    def name(self) -> str:
        """Name of the stream or topic."""

    @property
    def label(self) -> str:
        """The stream with its identity, or the topic: ids of its messages begin with it."""

    def messages(
        self, under_way: Callable[[], Iterable[QueuedMessage]]
    ) -> AbstractAsyncContextManager[AsyncIterator[QueuedMessage]]:
        """Fetch deliveries without an end.

        Args:
            under_way: returns the messages whose outcome is not known or not stored; another dispatcher does not get
                others for their endpoints before.
        """

    def claim(self) -> Hashable:
        """Return what this dispatcher may deliver now, which equals only itself; None for nothing."""

    async def history_of(self, message: QueuedMessage) -> tuple[bool, float]:
        """Return whether there may be failed attempts of a message, and the seconds until the next one.

        They are 0 if the queue has held the message back itself.
        """

    def is_ours(self, message: QueuedMessage, *, begins: bool = False) -> bool:
        """Return False if the message went to another dispatcher meanwhile; also if it will, when a request begins."""

    async def attempts(self) -> AttemptLog:
        """Open the log of failed attempts."""

    async def store_dead(self, subject: str, body: bytes, headers: HeaderInput, identity: str) -> None:
        """Store a delivery that is given up; without an identity nothing is added to its headers."""

    async def store_notice(self, body: bytes, identity: str) -> None:
        """Store a notice for the operator where the route says; nothing if it does not."""

    async def is_drained(self) -> bool:
        """Return True if no delivery waits."""

    async def backlog(self) -> Backlog:
        """Return the deliveries that wait, and the age of the oldest."""

    async def letters(self, count: int) -> list[DeadDelivery]:
        """Return the last dead letters that were not moved, the newest first."""

    async def redrive(self, positions: Collection[str] | None = None) -> int:
        """Move dead letters back among the deliveries; return their number.

        Args:
            positions: positions of the letters, as `letters` gives them; None for all.
        """
