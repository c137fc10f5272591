"""Large answers in parts that stay below a message's size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from turnout.base.clocks import microseconds_since_epoch
from turnout.rpc.convert import changes_from, subscription_from, subscription_to
from turnout.rpc.v1 import matching_pb2 as pb
from turnout.rpc.v1 import subscriptions_pb2
from turnout.subscriptions import Changes, Subscription
from turnout.subscriptions.audit import AuditEntry
from turnout.subscriptions.past import Creation, time_of

_BYTES = 1 << 20
_DELETED = 10_000
_BIRTHS = 10_000


def batches(subscriptions: Sequence[Subscription]) -> Iterator[list[subscriptions_pb2.Subscription]]:
    """The messages in lists of about a megabyte; one empty list for none."""
    batch: list[subscriptions_pb2.Subscription] = []
    size = 0
    for subscription in subscriptions:
        message = subscription_to(subscription)
        batch.append(message)
        size += message.ByteSize()
        if size >= _BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def line_parts(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to texts of about a megabyte."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and size + len(line) > _BYTES:
            yield b"\n".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    if part:
        yield b"\n".join(part)


def changes_parts(changes: Changes) -> Iterator[pb.Changes]:
    """The changes as messages: deletions first, *more* on all but the last."""
    starts = range(0, len(changes.deleted_ids), _DELETED)
    reset = changes.reset
    for start in starts:
        deleted = changes.deleted_ids[start : start + _DELETED]
        yield pb.Changes(revision=changes.revision, deleted_ids=deleted, reset=reset, more=True)
        reset = False
    previous: pb.Changes | None = None
    for batch in batches(changes.created):
        if previous is not None:
            yield previous
        previous = pb.Changes(revision=changes.revision, created=batch, reset=reset, more=True)
        reset = False
    assert previous is not None
    previous.more = False
    yield previous


def births_parts(births: Mapping[str, Creation]) -> Iterator[pb.BirthsPart]:
    """The births as messages."""
    messages = (
        pb.Birth(id=id_, revision=birth.revision, time=None if birth.at is None else microseconds_since_epoch(birth.at))
        for id_, birth in births.items()
    )
    while part := list(islice(messages, _BIRTHS)):
        yield pb.BirthsPart(births=part)


def births_of(parts: Iterable[pb.BirthsPart]) -> dict[str, Creation]:
    """Convert messages to births."""
    return {
        birth.id: Creation.of(birth.revision, birth.time if birth.HasField("time") else None)
        for part in parts
        for birth in part.births
    }


def audit_message(entry: AuditEntry) -> pb.AuditEntry:
    """Convert an entry of the audit log to its message."""
    return pb.AuditEntry(
        revision=entry.revision,
        time=None if entry.at is None else microseconds_since_epoch(entry.at),
        actor=entry.actor,
        before=None if entry.before is None else subscription_to(entry.before),
        after=None if entry.after is None else subscription_to(entry.after),
    )


def audit_entry(message: pb.AuditEntry) -> AuditEntry:
    """Convert a message to an entry of the audit log."""
    before, after = (
        subscription_from(getattr(message, name)) if message.HasField(name) else None for name in ("before", "after")
    )
    at = time_of(message.time) if message.HasField("time") else None
    return AuditEntry(message.revision, at, message.actor, before, after)


def changes_of(parts: Iterator[pb.Changes]) -> Iterator[Changes]:
    """Reassemble changes from the messages with their parts."""
    created: list[Subscription] = []
    deleted: list[str] = []
    reset = False
    for message in parts:
        part = changes_from(message)
        created += part.created
        deleted += part.deleted_ids
        reset = reset or part.reset
        if not message.more:
            yield Changes(part.revision, tuple(created), tuple(deleted), reset)
            created, deleted, reset = [], [], False
