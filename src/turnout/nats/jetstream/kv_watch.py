"""Entries of a bucket, and watching them change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from turnout.errors import ConfigError, Mistake
from turnout.nats.jetstream.consumer_config import ConsumerConfig, DeliverPolicy
from turnout.nats.jetstream.message import Message
from turnout.nats.jetstream.ordered import OrderedSubscription, Watching


class Operation(StrEnum):
    """Operation that an entry records for its key.

    >>> Operation("DEL"), Operation.PUT == "PUT"
    (<Operation.DELETE: 'DEL'>, True)
    """

    PUT = "PUT"
    DELETE = "DEL"
    PURGE = "PURGE"


@dataclass(frozen=True, slots=True)
class Entry:
    """Revision of a key in a bucket.

    Attributes:
        bucket: the bucket's name.
        key: the key; never with an API prefix.
        value: the value, empty for a marker.
        revision: the stream sequence.
        created: when it was stored.
        delta: number of later entries for the watcher when it was sent.
        operation: put, delete or purge.
    """

    bucket: str
    key: str
    value: bytes
    revision: int
    created: datetime | None
    delta: int
    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Selection of entries that a watcher receives.

    Attributes:
        history: every entry that is kept, not only the last of each key.
        updates_only: only later updates.
        resume_from: everything from this revision on.
        ignore_deletes: no markers.
        keys_only: no values.
        flow_control: off where ``$JS.FC.>`` is not imported; it is noticed by itself, but slowly.
        heartbeat: seconds between signs of life.
        fail_on_data_loss: whether a bucket that was deleted and made again, or restored to an older state, ends the
            watch with a `StreamReplacedError`; otherwise that is reported, and the new bucket is watched from its
            first entry.

    >>> WatchOptions(updates_only=True, keys_only=True).to_consumer().deliver_policy.value
    'new'
    >>> WatchOptions(history=True).to_consumer().deliver_policy.value
    'all'
    """

    history: bool = False
    updates_only: bool = False
    resume_from: int | None = None
    ignore_deletes: bool = False
    keys_only: bool = False
    flow_control: bool = True
    heartbeat: float = 5.0
    fail_on_data_loss: bool = True

    def to_consumer(self) -> ConsumerConfig:
        """Return the consumer configuration for these options.

        Raises:
            ConfigError: options that exclude each other.
        """
        chosen = [self.history, self.updates_only, self.resume_from is not None]
        if sum(chosen) > 1:
            raise ConfigError([Mistake("watch", "history, updates_only and resume_from exclude each other")])
        policy = DeliverPolicy.LAST_PER_SUBJECT
        if self.history:
            policy = DeliverPolicy.ALL
        elif self.updates_only:
            policy = DeliverPolicy.NEW
        elif self.resume_from is not None:
            policy = DeliverPolicy.BY_START_SEQUENCE
        return ConsumerConfig(
            deliver_policy=policy,
            opt_start_seq=self.resume_from,
            headers_only=True if self.keys_only else None,
            idle_heartbeat=self.heartbeat,
        )


def operation_of(header: str, marker: str) -> Operation:
    """Return an entry's operation: its own header, or the reason of a marker that the server stored."""
    if header in (Operation.DELETE.value, Operation.PURGE.value):
        return Operation(header)
    if marker in ("MaxAge", "Purge"):
        return Operation.PURGE
    return Operation.DELETE if marker == "Remove" else Operation.PUT


class Watcher(Watching[Entry]):
    """Entries as they change."""

    def __init__(self, bucket: str, prefix: str, subscription: OrderedSubscription, options: WatchOptions) -> None:
        super().__init__(subscription)
        self._bucket = bucket
        self._prefix = prefix
        self._options = options
        self._initial = subscription.initial_pending
        self._received = 0
        self._initial_reported = options.updates_only
        self._reached_end = False

    def _entry(self, message: Message) -> Entry:
        metadata = message.metadata
        return Entry(
            bucket=self._bucket,
            key=message.subject.removeprefix(self._prefix),
            value=message.data,
            revision=metadata.stream_seq,
            created=metadata.timestamp,
            delta=metadata.num_pending,
            operation=operation_of(message.header("KV-Operation"), message.header("Nats-Marker-Reason")),
        )

    async def next(self, timeout: float | None = 5.0) -> Entry | None:
        """See `Watching.next`."""
        if self._is_initial_over():
            self._initial_reported = True
            return None
        while True:
            entry = self._entry(await self._subscription.next(timeout))
            self._received += 1
            self._reached_end = self._reached_end or entry.delta == 0
            if entry.operation is Operation.PUT or not self._options.ignore_deletes:
                return entry
            if self._is_initial_over():
                self._initial_reported = True
                return None

    def _is_initial_over(self) -> bool:
        """True if the last initial entry was read and its end was not reported yet.

        A watcher that began again may see entries that its first consumer would have passed over: then only an entry
        with nothing after it marks the end.
        """
        if self._initial_reported:
            return False
        counted = self._received >= self._initial and not self._subscription.resets
        return counted or self._reached_end
