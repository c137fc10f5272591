"""A subscription as an index holds it: plain tuples, one per disjoint term, ready to verify.

The in-process index keeps them in dicts, Spark gets them as rows, and Python workers read them from a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from math import inf
from typing import NamedTuple

from turnout.conditions.anchor import ALWAYS, Anchor, Kind, anchors_of, prober, weight
from turnout.conditions.check import Check, check_of, holds
from turnout.conditions.model import Condition, Group, Leaf, Logic, leaves
from turnout.conditions.terms import terms_of
from turnout.subscriptions.model import Subscription

__all__ = ["Entry", "Node", "Popularity", "Tree", "entries_of", "verified"]


class Node(NamedTuple):
    """A group: true when the number of its true children is from *low* to *high*, or not so if *negated*.

    *children* are places in a tree: first its checks, then its nodes.
    """

    children: tuple[int, ...]
    low: int
    high: int
    negated: bool


class Tree(NamedTuple):
    """A condition as two lists; each node comes after its children, the last one is the root."""

    checks: tuple[Check, ...]
    nodes: tuple[Node, ...]


class Entry(NamedTuple):
    """A term of a subscription: it wants a message that has *access* if all *checks* and the *tree* are true."""

    access: Anchor
    subscription_id: str
    destinations: tuple[str, ...]
    checks: tuple[Check, ...]
    tree: Tree | None


class Popularity:
    """Which anchors many subscriptions have and, given a sample of messages, which many messages have."""

    def __init__(self, subscriptions: Iterable[Subscription] = (), sample: Collection[Mapping[str, str]] = ()) -> None:
        wanted = Counter(
            anchor
            for subscription in subscriptions
            for leaf in leaves(subscription.condition)
            for anchor in anchors_of(leaf)
        )
        # What only a few want is what an anchor should be, and most anchors are like that: not worth keeping.
        self._wanted = {anchor: count for anchor, count in wanted.items() if count > _FEW}
        self._sample = tuple(sample)
        self._seen: dict[tuple[str, Kind], Counter[str]] = {}
        self.avoided: frozenset[tuple[str, Kind]] = frozenset()

    def avoiding(self, key: str, kind: Kind) -> Popularity:
        """The same, but that no anchor in this slot is taken where there is any other."""
        other = copy(self)
        other.avoided = self.avoided | {(key, kind)}
        return other

    def probes(self, key: str, kind: Kind) -> float:
        """How many lookups a message means for this slot, on average; without a sample, one."""
        if not self._sample:
            return 1.0
        return self._in_sample(key, kind).total() / len(self._sample)

    def share(self, anchor: Anchor) -> float:
        """The share of the sample's messages that have the anchor; 0 without a sample."""
        if anchor == ALWAYS:
            return 1.0
        return self._in_sample(anchor.key, anchor.kind)[anchor.text] / len(self._sample) if self._sample else 0.0

    def cost(self, anchor: Anchor) -> float:
        """How many messages the anchor lets through, as far as one can tell: seen in the sample, else guessed."""
        if (anchor.key, anchor.kind) in self.avoided:
            return inf
        guess = self._wanted.get(anchor, 1) * weight(anchor)
        if not self._sample:
            return guess
        # The guess only decides between anchors that the sample shows alike.
        return self._in_sample(anchor.key, anchor.kind)[anchor.text] + guess / (guess + 1)

    def _in_sample(self, key: str, kind: Kind) -> Counter[str]:
        """How many of the sample's messages have each text in this slot."""
        if (key, kind) not in self._seen:
            probe = prober(kind)
            values = (message[key] for message in self._sample if key in message)
            self._seen[key, kind] = Counter(text for value in values for text in probe(value))
        return self._seen[key, kind]


_FEW = 3


def entries_of(subscription: Subscription, popularity: Popularity) -> list[Entry]:
    """The subscription's terms; none if its condition can never be true."""
    return [
        Entry(
            term.access,
            subscription.id,
            tuple(subscription.destinations),
            tuple(map(check_of, term.checks)),
            _tree(term.rest) if term.rest is not None else None,
        )
        for term in terms_of(subscription.condition, popularity.cost)
    ]


def _tree(condition: Condition) -> Tree:
    found: dict[Leaf, int] = {}
    for leaf in leaves(condition):
        found.setdefault(leaf, len(found))
    nodes: list[Node] = []

    def place(part: Condition) -> int:
        if not isinstance(part, Group):
            return found[part]
        children = tuple(place(child) for child in part.children)
        low, high = _BOUNDS[part.logic]
        nodes.append(Node(children, low or len(children), high or len(children), part.negated))
        return len(found) + len(nodes) - 1

    place(condition)
    return Tree(tuple(map(check_of, found)), tuple(nodes))


_BOUNDS = {Logic.AND: (0, 0), Logic.OR: (1, 0), Logic.XOR: (1, 1)}
"""The fewest and the most true children; 0 stands for all of them."""


def verified(entry: Entry, metadata: Mapping[str, str]) -> bool:
    """Whether the term is true of a message that has its access anchor."""
    for check in entry[3]:
        if not holds(check, metadata):
            return False
    return entry[4] is None or _true(entry[4], metadata)


def _true(tree: Tree, metadata: Mapping[str, str]) -> bool:
    checks, nodes = tree
    truth = [holds(check, metadata) for check in checks]
    for children, low, high, negated in nodes:
        truth.append((low <= sum(truth[child] for child in children) <= high) != negated)
    return truth[-1]
