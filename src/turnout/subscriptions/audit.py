"""Audit log of a subscription: every change with its actor, its time, and the versions before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import time_of


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
        return self._with(Subscription.hidden)

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
