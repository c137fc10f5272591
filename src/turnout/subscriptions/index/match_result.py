"""Results of a matcher for a subscription, precomputed as far as they depend on the condition alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turnout.base.multivalued import Metadata, Multivalued, Texts, is_plain_key
from turnout.conditions import Condition, Group, Kiwi, Leaf, Logic, leaves
from turnout.conditions.leaf import Check
from turnout.conditions.leaves.kiwi import shape
from turnout.conditions.terms import check_of, holds
from turnout.subscriptions.model import Subscription

_MANY_IDS = 4
"""Number of ids from which NumPy takes less time than a loop."""


class Match(NamedTuple):
    """Match of a subscription with a message.

    Attributes:
        subscription_id: id of the subscription.
        destinations: destinations of the message.
        leaf_ids: the ids of the leaves that are true of the message, negated ones included, left to right.

    >>> from turnout.conditions import parse, with_ids
    >>> from turnout.subscriptions import Matcher, Subscription
    >>> condition = with_ids(parse("city:Oulu"), lambda: "leaf-1")
    >>> list(Matcher([Subscription(["d"], condition, id="one")]).match({"city": "Oulu"}))
    [Match(subscription_id='one', destinations=('d',), leaf_ids=('leaf-1',))]
    """

    subscription_id: str
    destinations: tuple[str, ...]
    leaf_ids: tuple[str, ...]


class Answer:
    """Match of a subscription whose condition is known to be true of a message.

    All leaves of a conjunction are true then. Of texts to be equal to, one for each, it is the value's. What is left is
    tested.

    Attributes:
        id: id of the subscription.
        destinations: destinations of the subscription.
        match: the match, if it is the same for all messages.
    """

    __slots__ = ("_by_text", "_parts", "_varies", "destinations", "id", "match")

    def __init__(self, subscription: Subscription, parts: list[_Part]) -> None:
        self.id = subscription.id
        self.destinations = tuple(subscription.destinations)
        self._parts = parts
        self.match: Match | None = None
        varying = [part for part in parts if not isinstance(part, _Fixed)]
        # With one choice between texts, there are as many matches as texts.
        self._varies = varying[0].key if len(varying) == 1 and isinstance(varying[0], _OneOf) else ""
        self._by_text: dict[Texts, Match] = {}
        if not varying:
            self.match = self._match_of({})

    def of(self, metadata: Metadata) -> Match:
        """The match for a message that satisfies the condition."""
        if self.match is not None:
            return self.match
        if not self._varies:
            return self._match_of(metadata)
        text = metadata.get(self._varies, "")
        match = self._by_text.get(text)
        if match is None:
            match = self._match_of(metadata)
            if len(self._by_text) < _MOST_TEXTS:
                self._by_text[text] = match
        return match

    def _match_of(self, metadata: Metadata) -> Match:
        ids: tuple[str, ...] = ()
        for part in self._parts:
            ids += part.true_ids(metadata)
        return Match(self.id, self.destinations, ids)


_MOST_TEXTS = 64


class _Fixed:
    """Leaves that are true whenever the condition is."""

    __slots__ = ("_ids",)

    def __init__(self, ids: tuple[str, ...]) -> None:
        self._ids = ids

    def true_ids(self, _metadata: Metadata) -> tuple[str, ...]:
        return self._ids


class _OneOf:
    """Leaves that each require one key to equal a text, by that text."""

    __slots__ = ("_ids", "key")

    def __init__(self, key: str, ids: dict[str, tuple[str, ...]]) -> None:
        self.key = key
        self._ids = ids

    def true_ids(self, metadata: Metadata) -> tuple[str, ...]:
        texts = metadata.get(self.key, "")
        if isinstance(texts, str):
            return self._ids.get(texts, ())
        return tuple([id_ for text, ids in self._ids.items() if text in texts for id_ in ids])


class _Tested:
    """Leaves that may be true or not."""

    __slots__ = ("_tests",)

    def __init__(self, tested: Iterable[Leaf]) -> None:
        checks = ((check_of(leaf), leaf.id) for leaf in tested)
        self._tests = [(check, _is_plain(check), check.key, check.text, id_) for check, id_ in checks]

    def true_ids(self, metadata: Metadata) -> tuple[str, ...]:
        if isinstance(metadata, Multivalued):
            return tuple([id_ for check, *_, id_ in self._tests if holds(check, metadata)])
        get = metadata.get
        return tuple(
            [
                id_
                for check, plain, key, text, id_ in self._tests
                # Most are texts to be equal to: no need for more than a look.
                if (get(key) == text if plain else holds(check, metadata))
            ]
        )


def _is_plain(check: Check) -> bool:
    return check.op == "=" and not (check.partial or check.fold or check.negated) and is_plain_key(check.key)


_Part: TypeAlias = _Fixed | _OneOf | _Tested


def answer_of(subscription: Subscription) -> Answer:
    """The answer for a subscription."""
    return Answer(subscription, _parts(subscription.condition))


class Answers:
    """The answers of many subscriptions, by number, as far as they were needed.

    Attributes:
        ids: ids of all subscriptions, as an array that resolves many matches in one call.
        known: None where an answer was not needed yet.
    """

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self._subscriptions = subscriptions
        self.known: list[Answer | None] = [None] * len(subscriptions)
        # Now: the first match of a large index would wait for it.
        self._id_list = [subscription.id for subscription in subscriptions]
        self.ids = objects(self._id_list)

    def __len__(self) -> int:
        return len(self.known)

    def of(self, number: int) -> Answer:
        """The answer for the subscription of this number."""
        answer = self.known[number]
        if answer is None:
            answer = self.known[number] = answer_of(self._subscriptions[number])
        return answer

    def some(self, numbers: Iterable[int]) -> list[Answer]:
        """The answers for the subscriptions of these numbers."""
        known, of = self.known, self.of
        return [known[number] or of(number) for number in numbers]

    def ids_of(self, numbers: Sequence[int]) -> list[str]:
        """Return the ids of the subscriptions of these numbers."""
        if len(numbers) >= _MANY_IDS:
            # Ids are all over the memory: NumPy does not wait for one before it asks for the next.
            several: list[str] = self.ids.take(numbers).tolist()
            return several
        ids = self._id_list
        return [ids[number] for number in numbers]

    @cached_property
    def destinations(self) -> NDArray[np.object_]:
        """The destinations of each subscription."""
        return objects([tuple(subscription.destinations) for subscription in self._subscriptions])


def objects(values: Sequence[object]) -> NDArray[np.object_]:
    """An array of these values as they are; from a list of tuples numpy would make two dimensions."""
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _parts(condition: Condition) -> list[_Part]:
    if not isinstance(condition, Group):
        return [_Fixed((condition.id,))]
    if condition.negated or (condition.logic is not Logic.AND and len(condition.children) > 1):
        return [_alternatives(condition)]
    parts: list[_Part] = []
    fixed: list[str] = []
    for child in condition.children:
        if not isinstance(child, Group):
            fixed.append(child.id)
            continue
        for part in _parts(child):
            if isinstance(part, _Fixed):
                fixed += part.true_ids({})
            else:
                parts += [_Fixed(tuple(fixed)), part] if fixed else [part]
                fixed = []
    if fixed:
        parts.append(_Fixed(tuple(fixed)))
    return parts


def _alternatives(group: Group) -> _Part:
    ids: dict[str, tuple[str, ...]] = {}
    key = ""
    for leaf in leaves(group):
        text = _only_text(leaf)
        # An absent key has no text, and the empty one is a text.
        if not text or leaf.key != (key or leaf.key) or text in ids:
            return _Tested(leaves(group))
        key = leaf.key
        ids[text] = (leaf.id,)
    return _OneOf(key, ids)


def _only_text(leaf: Leaf) -> str:
    """Return the only text that makes the leaf true; "" if it is not an exact comparison."""
    if not isinstance(leaf, Kiwi) or leaf.partial or leaf.ignore_case or leaf.negated or not is_plain_key(leaf.key):
        return ""
    op, text = shape(leaf.pattern)
    return text if op == "=" else ""
