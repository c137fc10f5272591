"""Subscriptions, and the results of store queries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, Self, TypeVar, get_args

from turnout.base.clocks import microseconds_since_epoch, parse_time, with_zone
from turnout.base.untrusted import JsonMapping, JsonObject, decimal, is_whole
from turnout.conditions import Condition, parse, with_ids
from turnout.errors import ConfigError, SubscriptionInvalidError
from turnout.subscriptions.delivery_settings import DeliverySettings

ExpiryClock = Literal["record", "wall"]
"""Clock that an expiry is by: the record's own time, or that of the machine that matches."""

_CLOCKS: Final = get_args(ExpiryClock)
_NAMES: Final = ("at", "by")


@dataclass(frozen=True, slots=True)
class Expiry:
    """Time from which on a subscription matches nothing.

    Attributes:
        at: the time; one without a zone is UTC.
        by: ``record`` compares it with a record's time, so that matching the record again gives the same; ``wall``
            with the clock of the machine at the moment of matching.

    >>> Expiry.from_mapping({"at": "2026-12-01T00:00:00Z"}).to_mapping()
    {'at': '2026-12-01T00:00:00+00:00', 'by': 'record'}
    >>> Expiry.from_mapping({"at": "soon"})
    Traceback (most recent call last):
        ...
    turnout.errors.SubscriptionInvalidError: expires.at: expected an ISO 8601 time, found 'soon'
    """

    at: datetime
    by: ExpiryClock = "record"

    def __post_init__(self) -> None:
        if self.by not in _CLOCKS:
            raise SubscriptionInvalidError(f"expires.by: expected {' or '.join(_CLOCKS)}, found {self.by!r:.60}")
        object.__setattr__(self, "at", with_zone(self.at).astimezone(UTC))

    @classmethod
    def from_mapping(cls, mapping: object) -> Self:
        """Return the expiry of plain values, as JSON has them.

        Raises:
            SubscriptionInvalidError: they mean nothing; the message names the field, the value and the expectation.
        """
        if not isinstance(mapping, Mapping):
            raise SubscriptionInvalidError(f"expires: expected an object, found {mapping!r:.60}")
        for name in mapping:
            if name not in _NAMES:
                raise SubscriptionInvalidError(f"expires.{name}: unknown field; there are {', '.join(_NAMES)}")
        if "at" not in mapping:
            raise SubscriptionInvalidError("expires.at: is required and missing")
        return cls(expiry_time(mapping["at"]), mapping.get("by", "record"))

    def to_mapping(self) -> dict[str, object]:
        """Return plain values, from which `from_mapping` restores the expiry."""
        return {"at": self.at.isoformat(), "by": self.by}

    @property
    def milliseconds(self) -> int:
        """First millisecond since 1970 at which it is over."""
        return -(-microseconds_since_epoch(self.at) // 1_000)

    def is_over(self, record: int, now: int) -> bool:
        """Return True if a record of a time is no longer matched at another; both in milliseconds since 1970.

        >>> expiry = Expiry(datetime(1970, 1, 1, 0, 0, 1))
        >>> expiry.is_over(1_000, 0), expiry.is_over(999, 0)
        (True, False)
        """
        return (record if self.by == "record" else now) >= self.milliseconds


def expiry_time(written: object) -> datetime:
    """Return the time of an expiry, in UTC.

    Args:
        written: a text in ISO 8601, or a date or time as YAML has it. A number is none, whatever its digits.

    Raises:
        SubscriptionInvalidError: it is no time, or has none in UTC, as some at the calendar's edge.
    """
    if isinstance(written, str | date):
        with suppress(ValueError, OverflowError):
            return parse_time(str(written)).astimezone(UTC)
    raise SubscriptionInvalidError(f"expires.at: expected an ISO 8601 time, found {written!r:.60}")


_EXPECTED = "expected latest, earliest, an ISO 8601 time or a sequence from 1 on"


@dataclass(frozen=True, slots=True)
class Start:
    """Position in a route's source from which a subscription gets earlier records.

    Attributes:
        position: ``earliest``, the sequence of a NATS stream, or a time in UTC.

    >>> Start.from_plain("2026-12-01T00:00:00Z").to_plain(), Start.from_plain("17").to_plain()
    ('2026-12-01T00:00:00+00:00', 17)
    >>> Start.from_plain("latest") is None
    True
    """

    position: Literal["earliest"] | int | datetime

    @classmethod
    def from_plain(cls, written: object) -> Self | None:
        """Return the start of a plain value, as JSON has it; None for ``latest``, which is the default.

        Raises:
            SubscriptionInvalidError: it means nothing.
        """
        if written in (None, "latest"):
            return None
        if written == "earliest":
            return cls("earliest")
        number = decimal(written) if isinstance(written, str) else written
        if is_whole(number, 1):
            return cls(number)
        try:
            return cls(parse_time(str(written)).astimezone(UTC))
        except (ValueError, OverflowError):
            raise SubscriptionInvalidError(f"from: {_EXPECTED}, found {written!r:.60}") from None

    def to_plain(self) -> str | int:
        """Return the plain value from which `from_plain` restores the start."""
        return self.position.isoformat() if isinstance(self.position, datetime) else self.position


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
            id: str = ...,
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
        if self.delivery is None or not self.delivery.has_secrets:
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


MAX_DELIVERIES: Final = 1_000_000
"""Largest quota of deliveries, in requests of a second."""


class _Setting(NamedTuple):
    """Setting of a subscription in JSON.

    Attributes:
        field: field of a `Subscription` that holds it.
        read: makes its value of plain JSON, or raises `SubscriptionInvalidError`.
        write: makes plain JSON of its value.
    """

    field: str
    read: Callable[[object], object]
    write: Callable[..., object]


def _enabled(value: object) -> bool:
    if not isinstance(value, bool):
        raise SubscriptionInvalidError(f"enabled: expected true or false, found {value!r:.60}")
    return value


def _delivery(value: object) -> DeliverySettings:
    try:
        return DeliverySettings.from_mapping(value)
    except ConfigError as problem:
        mistakes = (f"{'.'.join(filter(None, ('delivery', one.path)))}: {one.problem}" for one in problem.mistakes)
        raise SubscriptionInvalidError("; ".join(mistakes)) from problem


def _keep(pause: object) -> bool:
    """Return the one setting of pauses."""
    keep = pause.get("keep", False) if isinstance(pause, Mapping) and set(pause) <= {"keep"} else None
    if not isinstance(keep, bool):
        raise SubscriptionInvalidError(f"pause: expected {{'keep': true}} or {{'keep': false}}, found {pause!r:.60}")
    return keep


def _project(value: object) -> str:
    if not isinstance(value, str):
        raise SubscriptionInvalidError(f"project: expected an expression of CEL as a text, found {value!r:.60}")
    return value


def _deliveries(quota: object) -> int:
    """Return the one quota that is recorded with a subscription."""
    value = quota.get("deliveries") if isinstance(quota, Mapping) and set(quota) == {"deliveries"} else None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_DELIVERIES:
        raise SubscriptionInvalidError(
            f"quota: expected {{'deliveries': 1 to {MAX_DELIVERIES:,}}}, found {quota!r:.60}"
        )
    return value


SETTINGS: Final[Mapping[str, _Setting]] = {
    "enabled": _Setting("enabled", _enabled, bool),
    "expires": _Setting("expires", Expiry.from_mapping, Expiry.to_mapping),
    "delivery": _Setting("delivery", _delivery, DeliverySettings.to_mapping),
    "from": _Setting("start", Start.from_plain, Start.to_plain),
    "pause": _Setting("keep", _keep, lambda keep: {"keep": keep}),
    "project": _Setting("project", _project, str),
    "quota": _Setting("deliveries", _deliveries, lambda number: {"deliveries": number}),
}
"""By their names in the JSON of a subscription. Null stands for the default, but for ``enabled``."""

_DEFAULTS: Final = {item.name: item.default for item in fields(Subscription)}


def settings_to_mapping(subscription: Subscription, *, plain: bool = False) -> JsonObject:
    """Return the settings that are not defaults, from which `settings_from_mapping` restores them.

    Args:
        subscription: has them.
        plain: with secrets that are not encrypted; see `DeliverySettings.to_mapping`.
    """
    settings: JsonObject = {}
    for name, setting in SETTINGS.items():
        value = getattr(subscription, setting.field)
        if value != _DEFAULTS[setting.field]:
            settings[name] = value.to_mapping(plain=plain) if name == "delivery" else setting.write(value)
    return settings


def settings_from_mapping(mapping: JsonMapping) -> JsonObject:
    """Return the settings in a mapping, which may hold other names, as arguments of a `Subscription`.

    Raises:
        SubscriptionInvalidError: one means nothing; the message names the field, the value and the expectation.
    """
    return {
        setting.field: setting.read(mapping[name])
        if mapping[name] is not None or name == "enabled"
        else _DEFAULTS[setting.field]
        for name, setting in SETTINGS.items()
        if name in mapping
    }
