"""Subscriptions as JSON lines, the format of import and export.

A line is the body of the service's Create, with the id beside it where there is one::

    {"id": "…", "metadata": {"name": "…"}, "route": {"destinations": ["dst0"], "condition": {…}}}

with ``enabled``, ``expires`` and ``delivery`` where they are not the defaults. The condition is that of
`turnout.conditions.codec`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from turnout.base.startup import paused_gc
from turnout.base.terminal import first_names
from turnout.base.untrusted import JsonObject, unique_object
from turnout.conditions import decode, encode, leaves
from turnout.conditions.text import leftovers, leftovers_of
from turnout.errors import ConditionError, SubscriptionExistsError, SubscriptionInvalidError, SubscriptionNotFoundError
from turnout.subscriptions.model import SETTINGS, Subscription, settings_from_mapping, settings_to_mapping
from turnout.subscriptions.store import PlainLineStore, Store, create_many
from turnout.subscriptions.validation import MAX_LEAVES, are_plain, check


class KiwiNode(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Pattern leaf of a condition in JSON: the fields that stores look up, in their order."""

    id: str = ""
    negated: bool = msgspec.field(name="not", default=False)
    key: str
    pattern: str
    partial: bool = False


class Node(msgspec.Struct, omit_defaults=True, gc=False):
    """Node of a condition in JSON. Other kinds are passed over: one of them has no field here."""

    kiwi: KiwiNode | None = msgspec.field(name="kiwiCondition", default=None)
    tree: KiwiNode | None = msgspec.field(name="kiwiTreeCondition", default=None)
    group: GroupNode | None = msgspec.field(name="groupCondition", default=None)


class GroupNode(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Group of nodes."""

    id: str = ""
    negated: bool = msgspec.field(name="not", default=False)
    logic: Literal["And", "Or", "Xor"]
    group: list[Node]


class _Route(msgspec.Struct, gc=False):
    destinations: list[str]
    condition: Node


class _Line(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    id: str = ""
    metadata: dict[str, str] | None = None
    route: _Route
    revision: int | None = None


class PlainLine(msgspec.Struct, gc=False):
    """Subscription of a plain line."""

    id: str
    metadata: dict[str, str]
    _route: _Route
    _leaves: list[KiwiNode]

    def record(self, make: Callable[[], str]) -> str:
        """Name the nodes without an id, and return the text of `turnout.subscriptions.stores._record.encode_record`."""
        condition = self._route.condition
        if condition.group is not None:
            condition.group.id = condition.group.id or make()
        for leaf in self._leaves:
            leaf.id = leaf.id or make()
        return _encode((self._route.destinations, condition, self.metadata)).decode()

    @property
    def destinations(self) -> list[str]:
        """Return the destinations, as `Subscription.destinations`."""
        return self._route.destinations

    def with_id(self, id_: str) -> PlainLine:
        """Return the same subscription under another id."""
        return PlainLine(id_, self.metadata, self._route, self._leaves)

    def to_json(self) -> bytes:
        """Return it as a line again."""
        return _encode(_Line(id=self.id, metadata=self.metadata, route=self._route))

    def leaf_rows(self, id_: str) -> list[tuple[str, str, bool, str]]:
        """Return key, pattern, partial flag and the given id of each leaf; all rows are different."""
        return [(leaf.key, leaf.pattern, leaf.partial, id_) for leaf in self._leaves]


def _leaves(root: Node) -> list[KiwiNode] | None:
    """Return the leaves; None if a node is of another kind, or of several, or has a pattern that has to be parsed."""
    children = [root]
    if (group := root.group) is not None:
        if group.negated or root.kiwi is not None or root.tree is not None:
            return None
        children = group.group
    found: list[KiwiNode] = []
    for child in children:
        leaf, tree = child.kiwi, child.tree
        if leaf is None:
            if tree is None or "*" in tree.pattern[:-1]:
                return None
            leaf = tree
        elif tree is not None:
            return None
        if not leaf.key or "\\" in leaf.pattern:
            return None
        found.append(leaf)
    return found


def _keeps_rules(line: _Line, found: list[KiwiNode]) -> bool:
    """Return True if it keeps all rules for certain."""
    destinations = line.route.destinations
    metadata = line.metadata or {}
    texts = [line.id, *destinations, *metadata, *metadata.values()]
    patterns = set()
    promised = False
    for leaf in found:
        texts += leaf.key, leaf.pattern
        # The same pattern, negated once, is no mistake, but has one row in a store.
        patterns.add((leaf.key, leaf.pattern, leaf.partial))
        promised = promised or not leaf.negated
    return (
        promised
        and (1 < len(found) <= MAX_LEAVES) == (line.route.condition.group is not None)
        and len(patterns) == len(found)
        and are_plain(texts, destinations)
    )


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


def read_plain(line: str | bytes) -> PlainLine | None:
    """Return the subscription of a line; None if it is wrong or unusual.

    >>> text = '{"route": {"destinations": ["d"], "condition": {"kiwiCondition": {"key": "a", "pattern": "1"}}}}'
    >>> line = read_plain(text)
    >>> line.record(lambda: "n1"), line.leaf_rows("s1")
    ('[["d"],{"kiwiCondition":{"id":"n1","key":"a","pattern":"1"}},{}]', [('a', '1', False, 's1')])
    >>> read_plain(text.replace("kiwiCondition", "existsCondition"))
    """
    try:
        read = _decode(line)
        found = _leaves(read.route.condition)
    except (ValueError, RecursionError):
        return None
    if not found or not _keeps_rules(read, found) or not _has_all(line, read):
        return None
    return PlainLine(read.id, read.metadata or {}, read.route, found)


def _has_all(line: str | bytes, read: _Line) -> bool:
    """Return True if all keys of a line were read: unknown ones are not, and one of two that are the same.

    Written again without defaults, the line has as many quotes, or some were left out: then it is read with care.
    """
    written = line.encode() if isinstance(line, str) else line
    return b"\\u" not in written and written.count(b'"') == _encode(read).count(b'"')


BATCH = 50_000
"""Lines of one transaction: stored all or not at all, so an interruption loses no more."""


def subscription_to_json(subscription: Subscription, *, plain: bool = False) -> JsonObject:
    """Return the subscription as plain JSON, from which `subscription_from_json` restores it with its ids.

    Args:
        subscription: the subscription.
        plain: with secrets that are not encrypted; see `DeliverySettings.to_mapping`.
    """
    return {
        "id": subscription.id,
        "metadata": dict(subscription.metadata),
        "route": {"destinations": list(subscription.destinations), "condition": encode(subscription.condition)},
        **settings_to_mapping(subscription, plain=plain),
    }


def subscription_from_json(data: object) -> Subscription:
    """Return the subscription that the JSON describes, checked by the service's rules.

    Raises:
        SubscriptionInvalidError: the message begins with the place.
    """
    body = _object(data, "the line")
    # A revision, as `read` prints it, belongs to its original store.
    _only(body, ("id", "metadata", "route", "revision", *SETTINGS), "")
    route = _object(body.get("route"), "route")
    _only(route, ("destinations", "condition"), "route.")
    destinations = route.get("destinations", [])
    if not isinstance(destinations, list) or not all(isinstance(destination, str) for destination in destinations):
        raise SubscriptionInvalidError(f"route.destinations: expected a list of texts, found {destinations!r}")
    metadata = _object(body.get("metadata", {}), "metadata")
    for name, value in metadata.items():
        if not isinstance(value, str):
            raise SubscriptionInvalidError(f"metadata.{name}: expected text, found {value!r}")
    id_ = body.get("id", "")
    if not isinstance(id_, str):
        raise SubscriptionInvalidError(f"id: expected text, found {id_!r}")
    if "condition" not in route:
        raise SubscriptionInvalidError("route.condition: a condition is missing")
    try:
        condition = decode(route["condition"], "route.condition")
    except ConditionError as problem:
        raise SubscriptionInvalidError(str(problem)) from problem
    subscription = Subscription(destinations, condition, metadata, id_, **settings_from_mapping(body))
    check(subscription)
    return subscription


def _object(value: object, path: str) -> JsonObject:
    if not isinstance(value, dict):
        raise SubscriptionInvalidError(f"{path}: expected an object, found {value!r:.60}")
    return value


def _only(body: JsonObject, names: tuple[str, ...], path: str) -> None:
    for name in body:
        if name not in names:
            raise SubscriptionInvalidError(f"{path}{name}: unknown field; there are {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class Imported:
    """Counts of an import: stored subscriptions, and subscriptions that already existed."""

    created: int = 0
    skipped: int = 0


def import_lines(
    store: Store,
    lines: Iterable[str | bytes],
    *,
    existing: Literal["fail", "skip"] = "fail",
    batch: int = BATCH,
    progress: Callable[[Imported], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Store the subscriptions of the lines, a batch at a time; blank lines are passed over.

    Args:
        store: store to write to.
        lines: one JSON object each.
        existing: policy for an id that is stored already.
        batch: how many lines are stored together.
        progress: called after each batch with the number of lines that are committed.
        warn: called with each of the `doubts` about a batch that is committed.

    Raises:
        SubscriptionInvalidError: a line cannot be read. The lines before its batch are stored.
        SubscriptionExistsError: an id is taken, and *existing* is ``fail``. The same holds.
    """
    imported = Imported()
    store_many = partial(create_read, store)
    subscriptions = read_lines(lines, plain=isinstance(store, PlainLineStore))
    while True:
        with paused_gc():
            entries = list(islice(subscriptions, batch))
            if not entries:
                return imported
            created = _store(store, store_many, entries, existing)
            behind = imported.created + imported.skipped
            names = [entry.id or f"subscription {number}" for number, entry in enumerate(entries, behind + 1)]
            for problem in doubts(entries, names):
                warn(problem)
        imported = Imported(imported.created + created, imported.skipped + len(entries) - created)
        progress(imported)


_StoreMany: TypeAlias = Callable[[Iterable[Subscription | PlainLine]], list[str]]
"""Stores subscriptions, all or nothing if it can, and returns the ids."""


def create_read(store: Store, subscriptions: Iterable[Subscription | PlainLine]) -> list[str]:
    """Store what `read_lines` gives, all or nothing if the store can, and return the ids in order."""
    if isinstance(store, PlainLineStore):
        return store.create_read(subscriptions)
    return create_many(store, map(whole_subscription, subscriptions))


def whole_subscription(read: Subscription | PlainLine) -> Subscription:
    """Return what was read as a subscription."""
    return subscription_from_json(json.loads(read.to_json())) if isinstance(read, PlainLine) else read


def line_of(read: Subscription | PlainLine) -> bytes:
    """Return what was read as a line again, without a line end, for a service that encrypts its secrets."""
    if isinstance(read, PlainLine):
        return read.to_json()
    return json.dumps(subscription_to_json(read, plain=True), separators=(",", ":")).encode()


def read_lines(lines: Iterable[str | bytes], *, plain: bool = True) -> Iterator[Subscription | PlainLine]:
    """Read JSON lines and check them by the service's rules; blank lines are passed over.

    Args:
        lines: one JSON object each.
        plain: give usual lines as `PlainLine`, which only a `PlainLineStore` stores.

    Raises:
        SubscriptionInvalidError: a line cannot be read; the message has its number.
    """
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped:
            continue
        if plain and (usual := read_plain(stripped)) is not None:
            yield usual
            continue
        try:
            text = stripped if isinstance(stripped, str) else stripped.decode()
            yield subscription_from_json(_parsed(text.removeprefix("\ufeff")))
        except (ValueError, RecursionError) as problem:
            # Bad JSON, bytes that are not UTF-8 and broken rules are all ValueErrors.
            raise SubscriptionInvalidError(f"line {number}: {problem or 'nested too deep'}") from problem


_decoder = json.JSONDecoder(object_pairs_hook=unique_object)


def _parsed(text: str) -> object:
    # json.loads would look for the encoding and for blanks, which takes as long as to read so short a text.
    value, end = _decoder.raw_decode(text)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


def _store(
    store: Store, store_many: _StoreMany, entries: list[Subscription | PlainLine], existing: Literal["fail", "skip"]
) -> int:
    try:
        return len(store_many(entries))
    except SubscriptionExistsError:
        if existing == "fail":
            raise
    # After an import that was broken off, whole batches are there: to look is quicker than to try.
    new = [subscription for subscription in entries if not _is_there(store, subscription.id)]
    try:
        return len(store_many(new))
    except SubscriptionExistsError:
        # An id that occurs twice in the batch, or that another writer stores at the same time: one by one.
        return _store_each(store_many, new)


def _is_there(store: Store, id_: str) -> bool:
    try:
        store.read(id_)
    except SubscriptionNotFoundError:
        return False
    return True


def _store_each(store_many: _StoreMany, entries: list[Subscription | PlainLine]) -> int:
    created = 0
    for subscription in entries:
        try:
            created += len(store_many([subscription]))
        except SubscriptionExistsError:
            continue
    return created


_MOST_DOUBTS = 100
"""Different sentences about leftovers that are kept of a bulk."""


def doubts(new: Iterable[Subscription | PlainLine], ids: Sequence[str]) -> list[str]:
    """Return a sentence for each part of a condition that is of another query language, and probably not meant so.

    Every interface that stores subscriptions says them: JSON and protobuf take such parts as texts.

    Args:
        new: the subscriptions.
        ids: their ids; of several, a sentence has those that it is about.
    """
    found: dict[str, list[str]] = {}
    for one, id_ in zip(new, ids, strict=True):
        if isinstance(one, PlainLine):
            pairs = [(key, pattern) for key, pattern, _, _ in one.leaf_rows("")]
            problems = [problem for key, pattern in pairs for problem in leftovers_of(key, pattern)]
        else:
            problems = [problem for leaf in leaves(one.condition) for problem in leftovers(leaf)]
        for problem in dict.fromkeys(problems):
            if problem in found or len(found) < _MOST_DOUBTS:
                found.setdefault(problem, []).append(id_)
    return [f"{problem}, in: {first_names(of)}" if len(ids) > 1 else problem for problem, of in found.items()]


def export_lines(store: Store) -> Iterator[str]:
    """Yield every subscription as a line of JSON, in the order of ids, as of one revision."""
    for subscription in store.snapshot():
        yield json.dumps(subscription_to_json(subscription), ensure_ascii=False, separators=(",", ":"))
