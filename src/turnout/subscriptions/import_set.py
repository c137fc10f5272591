"""Import of a whole set of subscriptions: what is new, changed and gone, and nothing that another import owns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from turnout.base.terminal import first_names
from turnout.errors import (
    SubscriptionConflictError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import Snapshot
from turnout.subscriptions.search import Applying
from turnout.subscriptions.store import ChangeSet, Store, apply
from turnout.subscriptions.tenants import tenant_of

SET_NAME: Final = "import-set"
"""Name in the metadata of a subscription whose value is the set that owns it."""

_MAX_NAME = 200
_ATTEMPTS = 5
_SHOWN_NAMES = 5
_COMPARED: Final = tuple(part.name for part in fields(Subscription) if part.compare)


@dataclass(frozen=True, slots=True)
class ImportSet:
    """The subscriptions that an import owns: those of a named set, or those of a prefix of ids that no set has.

    Attributes:
        name: name of the set, recorded in the metadata of each as `SET_NAME`; "" for none.
        prefix: beginning of their ids, for imports without a name; an empty text owns all that no set owns. None for an
            import that owns nothing, and so removes nothing.
        prune: remove what it owns and the import does not have.
        prune_all: remove all that it owns, if the import has none of it.

    Raises:
        SubscriptionInvalidError: the parts do not fit together; the message says which.
    """

    name: str = ""
    prefix: str | None = None
    prune: bool = False
    prune_all: bool = False

    def __post_init__(self) -> None:
        if self.name and self.prefix is not None:
            raise SubscriptionInvalidError("set and prefix: an import owns a named set or a prefix of ids, not both")
        if len(self.name) > _MAX_NAME:
            raise SubscriptionInvalidError(f"set: {len(self.name)} characters, at most {_MAX_NAME} are taken")
        if (self.prune or self.prune_all) and not self.name and self.prefix is None:
            raise SubscriptionInvalidError(
                "prune: it removes what the import owns and does not have: name its set, or the prefix of its ids"
            )

    def owns(self, stored: Subscription) -> bool:
        """Return True if the import may remove a stored subscription."""
        owner = stored.metadata.get(SET_NAME, "")
        if tenant_of(stored.id) != tenant_of(self.prefix or ""):
            return False
        if self.name:
            return owner == self.name
        return self.prefix is not None and not owner and stored.id.startswith(self.prefix)

    def labelled(self, new: Subscription, where: str) -> Subscription:
        """Return a subscription of the import as it is stored.

        Raises:
            SubscriptionInvalidError: it has no id, an id without the prefix, or belongs to another set.
        """
        if not new.id:
            raise SubscriptionInvalidError(f"{where}: id: it is what a stored subscription is found by: give it one")
        if self.prefix is not None and not new.id.startswith(self.prefix):
            raise SubscriptionInvalidError(f"{where}: id: expected the prefix {self.prefix!r}, found {new.id!r:.80}")
        if self.name and tenant_of(new.id):
            raise SubscriptionInvalidError(
                f"{where}: id: {new.id!r:.80} is of a tenant: import into the tenant's store"
            )
        owner = new.metadata.get(SET_NAME, "")
        if owner not in ("", self.name):
            cure = f"expected {self.name!r}" if self.name else "name the set of the import"
            raise SubscriptionInvalidError(f"{where}: metadata.{SET_NAME}: {cure}, found {owner!r:.80}")
        return replace(new, metadata={**new.metadata, SET_NAME: self.name}) if self.name else new


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """Changes of an import.

    Attributes:
        changes: the changes.
        fields: of each new version, by id, what differs from the stored one: names of `Subscription`'s fields.
        unchanged: number of those that are stored like this already; they keep their revision.
        kept: number of others in the store that stay.
        adopted: ids of changed ones that no set has owned before.
        revision: of the store that the plan was made from; after the import, that it led to.
    """

    changes: ChangeSet = field(default_factory=ChangeSet)
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unchanged: int = 0
    kept: int = 0
    adopted: tuple[str, ...] = ()
    revision: int = 0

    @property
    def added(self) -> tuple[str, ...]:
        """Ids of new subscriptions."""
        return tuple(one.id for one in self.changes.created)

    @property
    def changed(self) -> tuple[str, ...]:
        """Ids of subscriptions with a new version."""
        return tuple(one.id for one in self.changes.updated)

    @property
    def removed(self) -> tuple[str, ...]:
        """Ids of subscriptions that the import does not have any more."""
        return tuple(self.changes.deleted)

    def after(self, before: Snapshot) -> Snapshot:
        """Return the subscriptions after the import."""
        gone = {*self.changed, *self.removed}
        rest = [one for one in before if one.id not in gone]
        content = sorted([*rest, *self.changes.created, *self.changes.updated], key=lambda one: one.id)
        return Snapshot(tuple(content), before.revision)


def plan_import(before: Snapshot, new: Sequence[Subscription], owned: ImportSet) -> ImportPlan:
    """Compare the subscriptions of an import with the stored ones.

    A stored one with the same id is replaced if anything of it differs but ids of its condition's nodes, the quota that
    the service records, and markers of secrets that it has. A plain secret always differs, because stores encrypt it.

    Raises:
        SubscriptionInvalidError: an id is missing or occurs twice; a stored one belongs to another set; or all that the
            import owns would be removed, and *owned* does not say so.
    """
    stored = {one.id: one for one in before}
    created, updated, differing, adopted = [], [], {}, []
    seen: set[str] = set()
    foreign: dict[str, str] = {}
    for number, one in enumerate(new, 1):
        version = owned.labelled(one, f"subscription {number}")
        if version.id in seen:
            raise SubscriptionInvalidError(f"subscription {number}: id: {version.id!r:.80} occurs twice")
        seen.add(version.id)
        old = stored.get(version.id)
        if old is None:
            created.append(version)
            continue
        owner = old.metadata.get(SET_NAME, "")
        if owner not in ("", owned.name):
            foreign[version.id] = owner
        elif names := _differences(old, version):
            quota = old.deliveries if version.deliveries is None else version.deliveries
            updated.append(replace(version, revision=old.revision, deliveries=quota))
            differing[version.id] = names
            if owned.name and not owner:
                adopted.append(version.id)
    if foreign:
        sets = ", ".join(sorted(set(foreign.values()))[:_SHOWN_NAMES])
        raise SubscriptionInvalidError(
            f"{first_names(list(foreign), _SHOWN_NAMES)}: owned by another import ({SET_NAME} {sets});"
            " nothing was changed"
        )
    deleted = _pruned(before, seen, owned)
    unchanged = len(new) - len(created) - len(updated)
    return ImportPlan(
        ChangeSet(tuple(created), tuple(updated), deleted),
        differing,
        unchanged,
        len(stored) - len(deleted) - len(updated) - unchanged,
        tuple(adopted),
        before.revision,
    )


def _pruned(before: Snapshot, seen: set[str], owned: ImportSet) -> dict[str, int]:
    """Return the revisions of the subscriptions that go, by id."""
    if not owned.prune and not owned.prune_all:
        return {}
    mine = [one for one in before if owned.owns(one)]
    gone = {one.id: one.revision for one in mine if one.id not in seen}
    if gone and len(gone) == len(mine) and not owned.prune_all:
        what = f"set {owned.name!r}" if owned.name else f"prefix {owned.prefix!r}"
        raise SubscriptionInvalidError(
            f"prune: the import has none of the {len(gone):,} stored subscriptions of the {what}, and would remove all"
            " of them; nothing was changed: say that all of them go, if this is meant"
        )
    return gone


def _differences(old: Subscription, new: Subscription) -> tuple[str, ...]:
    old, new = old.hidden(), new.hidden()
    if new.deliveries is None:
        new = replace(new, deliveries=old.deliveries)
    return tuple(name for name in _COMPARED if getattr(old, name) != getattr(new, name))


def import_set(
    store: Store, new: Iterable[Subscription], owned: ImportSet, *, dry_run: bool = False, by: Applying | None = None
) -> ImportPlan:
    """Bring the stored subscriptions of an import to its content, as one change; again if others change them meanwhile.

    Args:
        store: store with them.
        new: content of the import.
        owned: what the import owns.
        dry_run: change nothing.
        by: makes the change; None for the store.

    Raises:
        SubscriptionInvalidError: see `plan_import`.
        SubscriptionConflictError: others keep changing them.

    >>> from turnout.subscriptions import open_store
    >>> store = open_store("memory://import-set")
    >>> week = [Subscription(["d"], f"a:{number}", id=f"rule-{number}") for number in range(3)]
    >>> import_set(store, week, ImportSet("rules")).added
    ('rule-0', 'rule-1', 'rule-2')
    >>> plan = import_set(store, [*week[:1], replace(week[1], destinations=["e"])], ImportSet("rules", prune=True))
    >>> plan.fields, plan.removed, plan.unchanged
    ({'rule-1': ('destinations',)}, ('rule-2',), 1)
    """
    content = list(new)
    for attempt in range(1, _ATTEMPTS + 1):
        plan = plan_import(store.snapshot(), content, owned)
        if dry_run or not plan.changes:
            return plan
        try:
            return replace(plan, revision=by(plan.changes) if by is not None else apply(store, plan.changes))
        except (SubscriptionConflictError, SubscriptionNotFoundError, SubscriptionExistsError):
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt raises")


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of an import on the last records of a route: deliveries with it against deliveries without it.

    Attributes:
        records: records that were compared.
        changed: those with any difference.
        gained: deliveries that there are with the import alone.
        lost: deliveries that there are without it alone.
        gainers: gained deliveries by subscription.
        losers: lost deliveries by subscription.
    """

    records: int
    changed: int
    gained: int
    lost: int
    gainers: Mapping[str, int]
    losers: Mapping[str, int]


Comparing = Callable[[str, int, Snapshot, Snapshot], Effect]
"""Compares deliveries of a route, by its name and for so many last records, with two sets of subscriptions."""

LAST_RECORDS: Final = 1_000
"""Records of each stream or partition that are compared, if nothing else is said."""


def plan_lines(plan: ImportPlan, limit: int = 20) -> Iterator[str]:
    """Yield an import's changes for a terminal, with at most *limit* subscriptions of each kind."""
    kinds = (("+", plan.added, "added"), ("~", plan.changed, "changed"), ("-", plan.removed, "removed"))
    for sign, ids, word in kinds:
        for id_ in ids[:limit]:
            what = f": {', '.join(plan.fields[id_])}" if sign == "~" else ""
            yield f"{sign} {id_}{what}"
        if len(ids) > limit:
            yield f"{sign} … {len(ids) - limit:,} more {word}; --json has all of them"
