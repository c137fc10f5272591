"""Searches of subscriptions by any of their parts, and changes of all that a search finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol, runtime_checkable

from turnout.base.terminal import did_you_mean
from turnout.conditions import Condition, Group, Kiwi, parse
from turnout.conditions.codec import KINDS, kind_of
from turnout.conditions.leaf import Leaf
from turnout.conditions.model import all_leaves
from turnout.errors import (
    ConditionError,
    SubscriptionConflictError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions.model import Page, Subscription
from turnout.subscriptions.store import MAX_LIMIT, ChangeSet, Store, apply

LEAF_KINDS: Final = tuple(dict.fromkeys(name.removesuffix("Condition") for name in KINDS))
"""Names of the kinds of leaves in searches: those of JSON without ``Condition``."""

SCANNED: Final = 20_000
"""Subscriptions that one request of a service reads at most; a page may then have fewer results than its limit."""

_SCAN_PAGE = 1_000
_ATTEMPTS = 5


@dataclass(frozen=True)
class Search:
    """Parts that a subscription has to have; all of those that are given.

    Attributes:
        metadata: pairs of its own metadata.
        key: key that a leaf of its condition reads.
        pattern: pattern of a kiwi leaf with this key, letter by letter; None for any leaf.
        partial: partial flag of the leaf with the pattern.
        leaf: leaf of any kind in the text syntax, as ``total>5``; ids, negation and the case of operators do not count.
        kind: kind of a leaf, one of `LEAF_KINDS`; with a key, of a leaf that reads it.
        destination: one of its destinations; ``*`` stands for any text.
        text: text in its id, or in a name or value of its metadata, in any case.
        enabled: whether it is enabled; None for both.

    Raises:
        SubscriptionInvalidError: one means nothing; the message names it.

    >>> found = Subscription(["orders.oulu"], "city:Oulu AND total>5", {"owner": "Depot"}, "one")
    >>> searches = (Search(key="total"), Search(leaf="total > 5"), Search(kind="compare", key="city"))
    >>> [search.finds(found) for search in (*searches, Search(destination="orders.*"), Search(text="depot"))]
    [True, True, False, True, True]
    """

    metadata: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    pattern: str | None = None
    partial: bool = False
    leaf: str | None = None
    kind: str | None = None
    destination: str | None = None
    text: str | None = None
    enabled: bool | None = None

    def __post_init__(self) -> None:
        if self.pattern is not None and not self.key:
            raise SubscriptionInvalidError("pattern: a pattern is searched with the key of its leaf: key is missing")
        if self.partial and self.pattern is None:
            raise SubscriptionInvalidError("partial: it is a flag of the leaf with a pattern: pattern is missing")
        if self.kind is not None and self.kind not in LEAF_KINDS:
            hint = did_you_mean(self.kind, LEAF_KINDS)
            raise SubscriptionInvalidError(
                f"kind: expected one of {', '.join(LEAF_KINDS)}, found {self.kind!r:.60}{hint}"
            )
        for name in ("key", "destination", "text", "leaf"):
            if getattr(self, name) == "":
                raise SubscriptionInvalidError(f"{name}: an empty text finds nothing: leave it out")
        if self.leaf is not None and self._leaf is None:
            raise SubscriptionInvalidError(f"leaf: expected one leaf, as total>5, found {self.leaf!r:.60}")

    def __bool__(self) -> bool:
        """Return True if it restricts what is found."""
        parts = (self.key, self.leaf, self.kind, self.destination, self.text, self.enabled)
        return bool(self.metadata) or any(part is not None for part in parts)

    @cached_property
    def _leaf(self) -> Leaf | None:
        try:
            condition = parse(self.leaf or "")
        except ConditionError as problem:
            raise SubscriptionInvalidError(f"leaf: {problem}") from problem
        return None if isinstance(condition, Group) else _positive(condition)

    def finds(self, one: Subscription) -> bool:
        """Return True if the subscription has all parts."""
        return (
            (self.enabled is None or one.enabled is self.enabled)
            and self.metadata.items() <= one.metadata.items()
            and (self.destination is None or any(_is_like(self.destination, to) for to in one.destinations))
            and (self.text is None or self._has_text(self.text.casefold(), one))
            and self._finds_leaf(one.condition)
        )

    @staticmethod
    def _has_text(text: str, one: Subscription) -> bool:
        return any(text in part.casefold() for part in (one.id, *one.metadata, *one.metadata.values()))

    def _finds_leaf(self, condition: Condition) -> bool:
        if self.key is None and self.leaf is None and self.kind is None:
            return True
        of_key = self.key is None and self.kind is None
        of_text = self.leaf is None
        for leaf in all_leaves(condition):
            of_key = of_key or self._is_asked(leaf)
            of_text = of_text or _positive(leaf) == self._leaf
        return of_key and of_text

    def _is_asked(self, leaf: Leaf) -> bool:
        if self.key is not None and self.key not in leaf.keys:
            return False
        if self.kind is not None and kind_of(leaf).name.removesuffix("Condition") != self.kind:
            return False
        return self.pattern is None or (
            isinstance(leaf, Kiwi) and (leaf.pattern, leaf.partial) == (self.pattern, self.partial)
        )


def _is_like(pattern: str, text: str) -> bool:
    """Return True if a text is like a pattern in which ``*`` stands for any text; each piece is found once.

    >>> [_is_like("a*b*", text) for text in ("ab", "a-b-c", "b", "ba")], _is_like("a*a", "a")
    ([True, True, False, False], False)
    """
    first, *rest = pattern.split("*")
    if not rest or not text.startswith(first):
        return text == pattern
    *between, last = rest
    position = len(first)
    for piece in between:
        found = text.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return len(text) - position >= len(last) and text.endswith(last)


def _positive(leaf: Leaf) -> Leaf:
    return replace(leaf, negated=False) if leaf.negated else leaf


@runtime_checkable
class SearchableStore(Protocol):
    """Optional ability of a store: it searches by all parts itself."""

    def search(self, search: Search, *, limit: int = 100, cursor: str = "") -> Page[Subscription]:
        """Return a page of what a search finds, which may have fewer results than its limit."""
        ...


def find(
    store: Store, search: Search, *, limit: int = 100, cursor: str = "", scanned: int | None = None
) -> Page[Subscription]:
    """Return the subscriptions that a search finds, ordered by id.

    What a store has no index for is found by reading the subscriptions, those with the pattern or the metadata if the
    search has any, else all.

    Args:
        store: store to search.
        search: parts that they have.
        limit: results of the page.
        cursor: cursor of the page before.
        scanned: subscriptions that are read at most; then the page may have fewer results, or none, and a cursor.
    """
    size = min(limit, MAX_LIMIT)
    found: list[Subscription] = []
    read = 0
    while True:
        page = _candidates(store, search, min(size + 1 if _is_indexed(search) else _SCAN_PAGE, MAX_LIMIT), cursor)
        for one in page.items:
            if search.finds(one):
                if len(found) == size:
                    return Page(tuple(found), found[-1].id)
                found.append(one)
        read += len(page.items)
        cursor = page.cursor
        if not cursor or (scanned is not None and read >= scanned):
            return Page(tuple(found), cursor)


def _is_indexed(search: Search) -> bool:
    return search == Search(search.metadata) or search == Search(
        key=search.key, pattern=search.pattern, partial=search.partial
    )


def _candidates(store: Store, search: Search, limit: int, cursor: str) -> Page[Subscription]:
    if isinstance(store, SearchableStore):
        return store.search(search, limit=limit, cursor=cursor)
    if search.key is not None and search.pattern is not None:
        matches = store.search_by_condition(search.key, search.pattern, search.partial, limit=limit, cursor=cursor)
        return Page(tuple(match.subscription for match in matches.items), matches.cursor)
    return store.search_by_metadata(search.metadata, limit=limit, cursor=cursor)


def find_all(store: Store, search: Search) -> Iterator[Subscription]:
    """Yield all subscriptions that a search finds, ordered by id."""
    cursor = ""
    while True:
        page = find(store, search, limit=_SCAN_PAGE, cursor=cursor)
        yield from page.items
        if not page.cursor:
            return
        cursor = page.cursor


@dataclass(frozen=True, slots=True)
class Edit:
    """Change of many subscriptions.

    Attributes:
        enabled: True enables, False disables; None leaves them as they are.
        keep: whether what passes meanwhile is delivered when they are enabled again; with ``enabled=False``.
        metadata: pairs to set in their metadata.
        without: names to remove from their metadata.

    >>> edit = Edit(enabled=False, metadata={"owner": "depot"}, without=("team",))
    >>> edit.of(Subscription(["d"], "a:1", {"team": "x", "name": "n"})).metadata
    {'name': 'n', 'owner': 'depot'}
    """

    enabled: bool | None = None
    keep: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def of(self, found: Subscription) -> Subscription:
        """Return the new version of a subscription; one that equals the old is not stored."""
        changed = found
        if self.enabled is not None:
            # A second pause does not drop the records that the first one keeps.
            keep = found.keep if self.enabled else self.keep or (found.keep and not found.enabled)
            changed = replace(changed, enabled=self.enabled, keep=keep)
        if self.metadata or self.without:
            rest = {name: value for name, value in found.metadata.items() if name not in self.without}
            changed = replace(changed, metadata={**rest, **self.metadata})
        return changed

    def __bool__(self) -> bool:
        return self.enabled is not None or bool(self.metadata or self.without)


@dataclass(frozen=True, slots=True)
class Edited:
    """Result of an edit of many subscriptions.

    Attributes:
        ids: ids of those that have changed, or would.
        found: how many the search has found.
        revision: revision that the change led to; the present one if nothing has changed.
    """

    ids: tuple[str, ...]
    found: int
    revision: int


class Applying(Protocol):
    """Makes change sets: a store by `turnout.subscriptions.store.apply`, or the service over it."""

    def __call__(self, changes: ChangeSet) -> int:
        """Make the changes and return the revision."""
        ...


def edit_all(
    store: Store,
    search: Search,
    edit: Edit,
    *,
    dry_run: bool = False,
    everything: bool = False,
    by: Applying | None = None,
) -> Edited:
    """Edit all subscriptions that a search finds, as one change; again if others change them meanwhile.

    Args:
        store: store to search.
        search: parts that they have.
        edit: the change.
        dry_run: change nothing.
        everything: accept a search without any part, which finds all.
        by: makes the change; None for the store.

    Raises:
        SubscriptionInvalidError: the search has no part and *everything* is not given, or the edit changes nothing.
        SubscriptionConflictError: others keep changing them.
    """
    if not search and not everything:
        raise SubscriptionInvalidError("the search has no part, and finds everything: say so if this is meant")
    return _edited(store, lambda: find_all(store, search), edit, dry_run, by)


def edit_ids(store: Store, ids: Iterable[str], edit: Edit, *, dry_run: bool = False) -> Edited:
    """Edit subscriptions by their ids, as one change; see `edit_all`.

    Raises:
        SubscriptionNotFoundError: one of them does not exist.
    """
    distinct = dict.fromkeys(ids)
    return _edited(store, lambda: map(store.read, distinct), edit, dry_run, None)


def _edited(
    store: Store, finding: Callable[[], Iterable[Subscription]], edit: Edit, dry_run: bool, by: Applying | None
) -> Edited:
    if not edit:
        raise SubscriptionInvalidError(
            "an edit enables, disables, sets metadata or removes it: nothing of this is given"
        )
    for attempt in range(1, _ATTEMPTS + 1):
        revision = store.revision()
        found = list(finding())
        updated = tuple(new for one in found if (new := edit.of(one)) != one)
        if not dry_run:
            try:
                changes = ChangeSet(updated=updated)
                revision = by(changes) if by is not None else apply(store, changes)
            except (SubscriptionConflictError, SubscriptionNotFoundError):
                if attempt == _ATTEMPTS:
                    raise
                continue
        return Edited(tuple(one.id for one in updated), len(found), revision)
    raise AssertionError("the last attempt raises")
