"""Past states of subscriptions, at a revision or at a time, as far back as a store remembers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from turnout.base.clocks import EPOCH, TrustedClock, microseconds_since_epoch, parse_duration
from turnout.errors import HistoryForgottenError, SubscriptionNotFoundError

if TYPE_CHECKING:
    from turnout.subscriptions.model import Subscription


class _Actor(threading.local):
    """Actor of the call on this thread; see `turnout.subscriptions.store` for why it is of the thread."""

    name: str = ""


_actor = _Actor()


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Record *name* with all changes of stores inside of the block.

    >>> with acting_as("token depot"):
    ...     current_actor()
    ...
    'token depot'
    >>> current_actor()
    ''
    """
    before, _actor.name = _actor.name, name
    try:
        yield
    finally:
        _actor.name = before


def current_actor() -> str:
    """Return the actor of this thread; "" where none is known."""
    return _actor.name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Content of a store at *revision*. A snapshot made by hand has revision 0.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import Subscription
    >>> snapshot = Snapshot((Subscription(["d"], parse("a:1"), id="one"),))
    >>> [item.id for item in snapshot], snapshot.revision
    (['one'], 0)
    """

    subscriptions: tuple[Subscription, ...]
    revision: int = 0

    def __len__(self) -> int:
        return len(self.subscriptions)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self.subscriptions)


class Action(StrEnum):
    """Kind of a change."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change of a subscription.

    Attributes:
        revision: revision of the store, that the change led to.
        at: time of the change; None where it is not known.
        actor: name that the change was made under; "" where it is not known.
        before: the version before; None for a creation.
        after: the version after; None for a deletion.
    """

    revision: int
    at: datetime | None
    actor: str
    before: Subscription | None
    after: Subscription | None

    @property
    def action(self) -> Action:
        """Kind of the change."""
        if self.before is None:
            return Action.CREATED
        return Action.UPDATED if self.after is not None else Action.DELETED

    def with_id(self, id_: str) -> AuditEntry:
        """Return the entry with another id on both versions."""
        return self._with(lambda version: replace(version, id=id_))

    def hidden(self) -> AuditEntry:
        """Return the entry with markers in place of the secrets of both versions."""
        return self._with(lambda subscription: subscription.hidden())

    def _with(self, change: Callable[[Subscription], Subscription]) -> AuditEntry:
        before, after = (None if one is None else change(one) for one in (self.before, self.after))
        return replace(self, before=before, after=after)


class Version(NamedTuple):
    """Version of a subscription, with the revisions of its beginning and end; None for the present one."""

    subscription: Subscription
    born: int
    died: int | None


class RecordedMoment(NamedTuple):
    """Time of a revision in microseconds since 1970, and its actor."""

    at: int
    actor: str


def audit_entries(
    versions: Iterable[Version], remembered: int, moment_of: Callable[[int], RecordedMoment | None]
) -> tuple[AuditEntry, ...]:
    """Return the changes that led from version to version, oldest first.

    Args:
        versions: of one subscription, in any order.
        remembered: the oldest revision whose state the store knows; the changes that led to it are not listed.
        moment_of: returns the record of a revision, or None.
    """
    entries: list[AuditEntry] = []

    def add(revision: int, before: Subscription | None, after: Subscription | None) -> None:
        if revision > remembered:
            at, actor = moment_of(revision) or (None, "")
            entries.append(AuditEntry(revision, None if at is None else time_of(at), actor, before, after))

    last: Version | None = None
    for version in sorted(versions, key=lambda version: version.born):
        if last is not None and last.died is not None and last.died != version.born:
            add(last.died, last.subscription, None)
        is_update = last is not None and last.died == version.born
        add(version.born, last.subscription if last is not None and is_update else None, version.subscription)
        last = version
    if last is not None and last.died is not None:
        add(last.died, last.subscription, None)
    return tuple(entries)


Moment: TypeAlias = int | datetime
"""A revision, or a time; a time without a zone is UTC."""

DEFAULT_RETENTION: Final = 30 * 86_400.0
"""Default seconds for which a store keeps deleted subscriptions."""


def retention_of(text: str) -> float | None:
    """Return the seconds of a retention: ``45s``, ``30m``, ``12h``, ``30d``, 0 or ``forever``; None if invalid.

    >>> retention_of("12h"), retention_of("0"), retention_of("forever"), retention_of("soon")
    (43200.0, 0.0, inf, None)
    """
    if text in ("0", "forever"):
        return 0.0 if text == "0" else float("inf")
    return parse_duration(text)


def time_of(at: int) -> datetime:
    """Return the time at microseconds since 1970, clamped to the range of dates."""
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return (datetime.max if at > 0 else datetime.min).replace(tzinfo=UTC)


def now() -> int:
    """Return the present in microseconds since 1970."""
    return time.time_ns() // 1_000


def due_before(clock: TrustedClock, retention: float, recorded: int | None) -> int:
    """Return the time before which deleted subscriptions expire, in microseconds since 1970.

    Args:
        clock: clock of the process, so that one wrong reading of it deletes nothing.
        retention: in seconds.
        recorded: the time of the previous revision, possibly of another clock.
    """
    believed = clock.now(None if recorded is None else recorded / 1e6)
    return int((believed - min(retention, 1e9)) * 1e6)


@dataclass(frozen=True, slots=True)
class Creation:
    """Revision and time of a subscription's creation.

    Attributes:
        revision: its revision.
        at: when that was; None if the store has forgotten it.
    """

    revision: int
    at: datetime | None

    @classmethod
    def of(cls, revision: int, at: int | None) -> Creation:
        """Return the creation at a revision, at microseconds since 1970."""
        return cls(revision, None if at is None else time_of(at))


class Span(NamedTuple):
    """Revisions that a store remembers, and the time of the oldest.

    Attributes:
        first: the oldest.
        last: the present one.
        since: when the oldest became the present one, in microseconds since 1970; 0 if there was none before it.
    """

    first: int
    last: int
    since: int

    def revision(self, moment: Moment, last_until: Callable[[int], int | None]) -> int:
        """Return the revision of a moment.

        A time is that of the last revision whose own recorded time is not later. So a revision whose clock was ahead
        hides none of the later ones, and a wrong reading shows between itself and the true time alone.

        Args:
            moment: a revision or a time.
            last_until: gives the last remembered revision that was recorded at or before some microseconds since 1970.

        Raises:
            HistoryForgottenError: names what is remembered.
        """
        if isinstance(moment, int):
            if self.first <= moment <= self.last:
                return moment
            raise self._forgotten(f"revision {moment}")
        revision = last_until(microseconds_since_epoch(moment))
        if revision is not None:
            return revision
        if self.first:
            raise self._forgotten(moment.isoformat())
        return 0

    def _forgotten(self, moment: str) -> HistoryForgottenError:
        since = f" (since {time_of(self.since).isoformat()})" if self.since else ""
        return HistoryForgottenError(
            f"the store does not know what it held at {moment}: it remembers revisions "
            f"{self.first}{since} to {self.last}"
        )


class Remembering(Protocol):
    """Store that returns its content at any revision that it remembers."""

    def read_at(self, revision: int, id: str) -> Subscription | None:
        """Return the subscription with this id at a revision; None if it did not exist."""
        ...

    def snapshot_at(self, revision: int, prefix: str = "") -> tuple[Subscription, ...]:
        """Return the subscriptions with ids that begin with the prefix at a revision, sorted by id."""
        ...


class PastStore:
    """Read-only view of a store at one revision.

    A revision older than the store's retention raises `HistoryForgottenError`.

    Attributes:
        revision: revision that it shows.
    """

    def __init__(self, store: Remembering, revision: int, prefix: str = "") -> None:
        self._store = store
        self._prefix = prefix
        self.revision = revision

    def read(self, id: str) -> Subscription:
        """Return the subscription of this id, as it was.

        Raises:
            SubscriptionNotFoundError: there was none at this revision.
        """
        subscription = self._store.read_at(self.revision, self._prefix + id)
        if subscription is None:
            raise SubscriptionNotFoundError(id)
        return self._bare(subscription)

    def snapshot(self) -> Snapshot:
        """Return all past subscriptions, in the order of ids."""
        former = self._store.snapshot_at(self.revision, self._prefix)
        return Snapshot(tuple(map(self._bare, former)) if self._prefix else former, self.revision)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self.snapshot())

    def _bare(self, subscription: Subscription) -> Subscription:
        if not self._prefix:
            return subscription
        return replace(subscription.hidden(), id=subscription.id.removeprefix(self._prefix))


class SeenRevision:
    """The newest revision that a store's followers have seen, with its time: its identity, as no other history has it.

    A database that is restored, or failed over to a machine that was behind, counts the same revisions again with other
    changes. Its followers would keep subscriptions that are no more. Thread-safe.
    """

    def __init__(self) -> None:
        self._seen: tuple[int, int | None] = (0, None)

    @property
    def revision(self) -> int:
        """The revision; 0 if none was seen."""
        return self._seen[0]

    def is_missing(self, revision: int, horizon: int, remembered: int, time: int | None) -> bool:
        """Return True if a store was never at the seen revision, and would not have its followers begin again.

        Args:
            revision: the store's present revision.
            horizon: the first revision since which it knows all changes: earlier followers begin again.
            remembered: the oldest revision whose time it has not forgotten.
            time: time that it has for the seen revision; None for none.
        """
        seen, own = self._seen
        if horizon > seen:
            return False
        if revision < seen:
            return True
        return own is not None and (time != own if time is not None else seen >= remembered)

    def note(self, revision: int, time: int | None) -> None:
        """Remember the revision that a follower gets."""
        self._seen = revision, time
