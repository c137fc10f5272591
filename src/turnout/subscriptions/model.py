"""Subscriptions, and the results of store queries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from turnout.conditions import Condition, parse, with_ids
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.expiry import Expiry
from turnout.subscriptions.start import Start

T = TypeVar("T")


def new_id() -> str:
    """Return a new random id.

    >>> len(new_id()), new_id() != new_id()
    (36, True)
    """
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Subscription:
    """Stored subscription: the destinations to send a message to when the condition is true of it.

    Attributes:
        destinations: destinations of matching messages, free-form.
        condition: condition on a message's metadata; a text is parsed.
        metadata: the subscription's own metadata; it has no part in matching.
        id: its name in a store, which gives it one when it is created.
        revision: the store's revision of this version, 0 if it is not stored. It is of the store, and has
            no part in equality.
        enabled: False for one that matches nothing for now.
        expires: time from which on it matches nothing; None for never.
        delivery: settings of requests to HTTP destinations; None for the defaults.
        start: first of the earlier records to deliver; None to deliver none of them.
        keep: whether a route delivers what passes while it is disabled when it is enabled again.
        project: expression of CEL that gives the body of its messages; empty for the record's value.
        deliveries: quota of its tenant when this version was stored, in requests of a second to HTTP destinations;
            None for none. The newest of the tenant's subscriptions that has one counts.

    >>> from turnout.conditions import parse
    >>> wants = Subscription(["orders.oulu"], parse("city:Oulu"), metadata={"owner": "depot"})
    >>> wants.id, wants.destinations, wants == Subscription(["orders.oulu"], "city:Oulu", {"owner": "depot"})
    ('', ('orders.oulu',), True)
    """

    destinations: Sequence[str]
    condition: Condition
    metadata: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    revision: int = field(default=0, compare=False)
    enabled: bool = True
    expires: Expiry | None = None
    delivery: DeliverySettings | None = None
    start: Start | None = None
    keep: bool = False
    project: str = ""
    deliveries: int | None = None

    def __post_init__(self) -> None:
        # A single text is a sequence of texts, too, and never intended.
        if isinstance(self.destinations, str):
            raise TypeError(f"destinations is a list of texts, found the one text {self.destinations!r}")
        object.__setattr__(self, "destinations", tuple(self.destinations))
        condition: object = self.condition
        if isinstance(condition, str):
            object.__setattr__(self, "condition", parse(condition))

    if TYPE_CHECKING:
        # The field itself never holds a text.
        def __init__(
            self,
            destinations: Sequence[str],
            condition: Condition | str,
            metadata: Mapping[str, str] = ...,
            id: str = ...,  # noqa: A002 - the field's own name
            revision: int = ...,
            enabled: bool = ...,
            expires: Expiry | None = ...,
            delivery: DeliverySettings | None = ...,
            start: Start | None = ...,
            keep: bool = ...,
            project: str = ...,
            deliveries: int | None = ...,
        ) -> None: ...

    def identified(self, make: Callable[[], str] = new_id) -> Subscription:
        """Return a copy with ids on itself and on each node of its condition; existing ids stay."""
        return replace(self, id=self.id or make(), condition=with_ids(self.condition, make))

    def hidden(self) -> Subscription:
        """Return it with markers in place of stored secrets, as all callers see it who do not deliver its messages."""
        if self.delivery is None or not self.delivery.secrets:
            return self
        return replace(self, delivery=self.delivery.hidden())

    def inactive(self, record: int, now: int) -> str:
        """Return the reason that it matches no record of a time now, both in milliseconds since 1970; "" if it may.

        >>> Subscription(["d"], "a:1", enabled=False).inactive(0, 0)
        'is disabled'
        """
        if not self.enabled:
            return "is disabled"
        if self.expires is not None and self.expires.is_over(record, now):
            clock = "the record's time" if self.expires.by == "record" else "the clock"
            return f"expired at {self.expires.at.isoformat()} by {clock}"
        return ""

    def __hash__(self) -> int:
        return hash((self.destinations, self.condition, self.id))


@dataclass(frozen=True, slots=True)
class ConditionMatch:
    """Subscription with a leaf that was searched for, and the leaf's id.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import open_store
    >>> store = open_store("memory://leaves")
    >>> id_ = store.create(Subscription(["d"], parse("city:Oulu AND total>5"), id="one"))
    >>> [item.subscription_id for item in store.search_by_condition("city", "Oulu", partial=False).items]
    ['one']
    """

    subscription_id: str
    condition_id: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some results, in the order of their subscription ids.

    Attributes:
        items: the results.
        cursor: cursor of the next page; "" if this was the last.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import open_store
    >>> store = open_store("memory://pages")
    >>> ids = [store.create(Subscription(["d"], parse("a:1"), id=name)) for name in "abc"]
    >>> first = store.search_by_metadata({}, limit=2)
    >>> [item.id for item in first.items], first.cursor
    (['a', 'b'], 'b')
    >>> [item.id for item in store.search_by_metadata({}, limit=2, cursor=first.cursor).items]
    ['c']
    """

    items: tuple[T, ...]
    cursor: str = ""

    @classmethod
    def of(cls, matches: Iterable[T], limit: int, key: Callable[[T], str]) -> Page[T]:
        """Return the first *limit* matches; another page follows if *matches* has more than *limit*."""
        items = tuple(matches)
        return cls(items[:limit], key(items[limit - 1]) if len(items) > limit else "")


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a store between two revisions.

    Attributes:
        revision: the revision that these changes lead to.
        created: new subscriptions, and new versions of existing ones.
        deleted_ids: deleted subscriptions, and those with a new version: apply deletions first.
        reset: the store no longer knows the requested revision: *created* has all its subscriptions, and followers
            start again from them.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import open_store
    >>> store = open_store("memory://changes")
    >>> before = store.revision()
    >>> id_ = store.create(Subscription(["d"], parse("a:1"), id="one"))
    >>> [item.id for item in store.changes(before).created]
    ['one']
    >>> store.delete("one")
    >>> store.changes(store.revision() - 1).deleted_ids
    ('one',)
    """

    revision: int
    created: tuple[Subscription, ...] = ()
    deleted_ids: tuple[str, ...] = ()
    reset: bool = False

    def __bool__(self) -> bool:
        return bool(self.created or self.deleted_ids or self.reset)
