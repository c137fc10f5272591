"""Usual JSON lines of subscriptions, from a line to a store's row without the objects in between.

A plain line has different patterns of at most one group, ids, metadata and destinations, and no settings. What is
read here keeps the rules for certain, as `turnout.subscriptions.validation.is_plain` does; everything else is left to
`turnout.subscriptions.lines.subscription_from_json`, which has the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from turnout.subscriptions.validation import MAX_LEAVES, are_plain


class _Leaf(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    """The fields in the order of a store's record."""

    id: str = ""
    negated: bool = msgspec.field(name="not", default=False)
    key: str
    pattern: str
    partial: bool = False


class _Child(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    kiwi: _Leaf | UnsetType = msgspec.field(name="kiwiCondition", default=UNSET)
    tree: _Leaf | UnsetType = msgspec.field(name="kiwiTreeCondition", default=UNSET)


class _Group(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    id: str = ""
    logic: Literal["And", "Or", "Xor"]
    group: list[_Child]


class _Root(_Child, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    group: _Group | UnsetType = msgspec.field(name="groupCondition", default=UNSET)


class _Route(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    destinations: list[str]
    condition: _Root


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    id: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    route: _Route
    revision: int | UnsetType = UNSET


class PlainLine(msgspec.Struct, gc=False):
    """Subscription of a plain line."""

    id: str
    metadata: dict[str, str]
    _route: _Route
    _leaves: list[_Leaf]

    def record(self, make: Callable[[], str]) -> str:
        """Name the nodes without an id, and return the text of `turnout.subscriptions.stores._record.encode_record`."""
        condition = self._route.condition
        group = condition.group
        if group is not UNSET:
            group.id = group.id or make()
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
        return _encode({"id": self.id, "metadata": self.metadata, "route": self._route})

    def leaf_rows(self, id_: str) -> list[tuple[str, str, bool, str]]:
        """Return key, pattern, partial flag and the given id of each leaf; all rows are different."""
        return [(leaf.key, leaf.pattern, leaf.partial, id_) for leaf in self._leaves]


def _leaves(root: _Root) -> list[_Leaf] | None:
    """Return the leaves; None if a node has no kind, or several, or a pattern that has to be parsed."""
    children: Sequence[_Child] = (root,)
    if root.group is not UNSET:
        if root.kiwi is not UNSET or root.tree is not UNSET:
            return None
        children = root.group.group
    found: list[_Leaf] = []
    for child in children:
        leaf, tree = child.kiwi, child.tree
        if leaf is UNSET:
            if tree is UNSET or "*" in tree.pattern[:-1]:
                return None
            leaf = tree
        elif tree is not UNSET:
            return None
        if not leaf.key or "\\" in leaf.pattern:
            return None
        found.append(leaf)
    return found


def _keeps_rules(line: _Line, found: list[_Leaf]) -> bool:
    """Return True if it keeps all rules for certain."""
    destinations = line.route.destinations
    metadata = line.metadata or {}
    texts = [line.id or "", *destinations, *metadata, *metadata.values()]
    patterns = set()
    promised = False
    for leaf in found:
        texts += leaf.key, leaf.pattern
        # The same pattern, negated once, is no mistake, but has one row in a store.
        patterns.add((leaf.key, leaf.pattern, leaf.partial))
        promised = promised or not leaf.negated
    return (
        promised
        and (1 < len(found) <= MAX_LEAVES) == (line.route.condition.group is not UNSET)
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
    return PlainLine(read.id or "", read.metadata or {}, read.route, found)


def _has_all(line: str | bytes, read: _Line) -> bool:
    """Return True if all keys of a line were read: of a key that occurs twice, only one is.

    Written again without defaults, the line has as many quotes, or some were left out: then it is read with care.
    """
    written = line.encode() if isinstance(line, str) else line
    return b"\\u" not in written and written.count(b'"') == _encode(read).count(b'"')
