"""Matches of messages: results precomputed for a subscription, and of many messages as numbers, converted on access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, pairwise
from operator import attrgetter, eq
from typing import Final, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from turnout.base.multivalued import Metadata, Multivalued, Texts, is_plain_key
from turnout.conditions import Condition, Group, Kiwi, Leaf, Logic, leaves
from turnout.conditions.leaf import Check
from turnout.conditions.leaves.kiwi import shape
from turnout.conditions.terms import check_of, holds
from turnout.subscriptions.index.flat_messages import metadata_of_json
from turnout.subscriptions.index.layers import Matches
from turnout.subscriptions.model import Subscription


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
        # Copies are beside each other in memory, so that many of them are read from a cache.
        self._id_list = [f"{subscription.id}\0"[:-1] for subscription in subscriptions]
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
        return list(map(self._id_list.__getitem__, numbers))

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


_PORTION = 4_096
"""About so many ids are taken at a time: they are still in the cache when they are divided by message."""

_Numbers: TypeAlias = NDArray[np.int64]

T = TypeVar("T")


class MatchBatch(Sequence["MatchList"]):
    """Matches of each of several messages, equal to a list of lists of the same `Match` objects.

    Changes of the subscriptions after the match are not seen. The messages are kept, and have to stay as they are
    while matches are read: which leaves are true of them is worked out then.

    Args:
        messages: matched messages.
        matches: results of the index.
        layers: the answers of the subscriptions of each of its layers.
        loose: by row, the answers of subscriptions that match and are not in the index.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import Matcher, Subscription
    >>> cities = ("Oulu", "Turku")
    >>> matcher = Matcher([Subscription([f"to.{city}"], parse(f"city:{city}"), id=city) for city in cities])
    >>> batch = matcher.match_many([{"city": "Turku"}, {"city": "Kemi"}, {"city": "Oulu"}])
    >>> batch.ids(), batch.destinations()
    ([['Turku'], [], ['Oulu']], [[('to.Turku',)], [], [('to.Oulu',)]])
    >>> [len(matches) for matches in batch]
    [1, 0, 1]
    """

    def __init__(
        self,
        messages: Sequence[Metadata],
        matches: Matches,
        layers: Sequence[Answers],
        loose: Mapping[int, Sequence[Answer]],
    ) -> None:
        self._messages = messages
        self._rows, self._numbers = matches
        self._layers = layers
        self._first = [0, *accumulate(map(len, layers))]
        self._loose = loose

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> MatchList: ...
    @overload
    def __getitem__(self, index: slice) -> list[MatchList]: ...
    def __getitem__(self, index: int | slice) -> MatchList | list[MatchList]:
        rows = range(len(self._messages))[index]
        return MatchList(self, rows) if isinstance(rows, int) else [MatchList(self, row) for row in rows]

    def __iter__(self) -> Iterator[MatchList]:
        return (MatchList(self, row) for row in range(len(self._messages)))

    def __eq__(self, other: object) -> bool:
        return _is_same(self, other) if isinstance(other, list | MatchBatch | MatchList) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash either

    def __repr__(self) -> str:
        return repr(list(self))

    def ids(self) -> list[list[str]]:
        """Return for each message the ids of the matching subscriptions, without creating `Match` objects."""
        return self._by_message(_ids_of, attrgetter("id"))

    def destinations(self) -> list[list[tuple[str, ...]]]:
        """Return for each message the destinations of each match, in the order of `ids`."""
        return self._by_message(_destinations_of, attrgetter("destinations"))

    def of(self, row: int) -> list[Match]:
        """Return the matches of one message as objects, created anew by each call."""
        message = self._messages[row]
        return [answer.match or answer.of(message) for answer in self.answers(row)]

    def answers(self, row: int) -> list[Answer]:
        """Return the results from which the matches of one message are built."""
        answers = self._answers[self._bounds[row] : self._bounds[row + 1]]
        return [*answers, *self._loose[row]] if row in self._loose else answers

    def ids_of(self, row: int) -> list[str]:
        """Return the ids of the subscriptions that match one message; `ids` takes less time for all."""
        return [answer.id for answer in self.answers(row)]

    def count_of(self, row: int) -> int:
        """Return the number of matches of a message."""
        return self._bounds[row + 1] - self._bounds[row] + len(self._loose.get(row, ()))

    @cached_property
    def _bounds(self) -> list[int]:
        bounds: list[int] = self._rows.searchsorted(np.arange(len(self._messages) + 1)).tolist()
        return bounds

    @cached_property
    def _answers(self) -> list[Answer]:
        return self._items(lambda layer, numbers: layer.some(numbers.tolist()), self._numbers)

    def _by_message(self, of_layer: _OfLayer[T], of_answer: Callable[[Answer], T]) -> list[list[T]]:
        if not len(self._numbers) and not self._loose:
            return [[] for _ in range(len(self._messages))]
        of_messages: list[list[T]] = []
        portion = 1 + _PORTION * len(self._messages) // (len(self._numbers) + 1)
        for begun in range(0, len(self._messages), portion):
            bounds = self._bounds[begun : begun + portion + 1]
            values = self._items(of_layer, self._numbers[bounds[0] : bounds[-1]])
            of_messages += [values[first - bounds[0] : end - bounds[0]] for first, end in pairwise(bounds)]
        for row, answers in self._loose.items():
            of_messages[row] += map(of_answer, answers)
        return of_messages

    def _items(self, of_layer: _OfLayer[T], numbers: _Numbers) -> list[T]:
        """Return the items of the subscriptions with these index numbers."""
        if len(self._layers) == 1:
            return of_layer(self._layers[0], numbers)
        values = np.empty(len(numbers), object)
        for layer, (first, end) in zip(self._layers, pairwise(self._first), strict=True):
            own = np.flatnonzero((first <= numbers) & (numbers < end))
            values[own] = objects(of_layer(layer, numbers.take(own) - first))
        items: list[T] = values.tolist()
        return items


class MatchList(Sequence[Match]):
    """Matches of one message, created on each access; equal to a list of the same matches.

    Args:
        batch: batch of the message.
        row: row of the message.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import Matcher, Subscription
    >>> matcher = Matcher([Subscription(["d"], parse("a:1"), id="one")])
    >>> matches = matcher.match({"a": "1"})
    >>> isinstance(matches, MatchList), matches.ids, matches == matcher.match_many([{"a": "1"}])[0]
    (True, ['one'], True)
    """

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: MatchBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    def __len__(self) -> int:
        return self._batch.count_of(self._row)

    @overload
    def __getitem__(self, index: int) -> Match: ...
    @overload
    def __getitem__(self, index: slice) -> list[Match]: ...
    def __getitem__(self, index: int | slice) -> Match | list[Match]:
        return self._objects()[index]

    def __iter__(self) -> Iterator[Match]:
        return iter(self._objects())

    def __eq__(self, other: object) -> bool:
        return _is_same(self, other) if isinstance(other, list | MatchBatch | MatchList) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash either

    def __repr__(self) -> str:
        return repr(self._objects())

    @property
    def ids(self) -> list[str]:
        """The ids of the subscriptions. For many messages `MatchBatch.ids` takes less time."""
        return self._batch.ids_of(self._row)

    @property
    def destinations(self) -> list[tuple[str, ...]]:
        """The destinations of each match, in the order of `ids`."""
        return [answer.destinations for answer in self._answers()]

    def _objects(self) -> list[Match]:
        return self._batch.of(self._row)

    def _answers(self) -> list[Answer]:
        return self._batch.answers(self._row)


class MessageMatches(MatchList):
    """Matches of one message, as numbers of subscriptions.

    Args:
        message: matched message, which is copied; or its JSON.
        parts: the answers of subscriptions, and the numbers of those that match.
        loose: the answers of matching subscriptions that are in no index yet.
    """

    __slots__ = ("_loose", "_message", "_parts")

    def __init__(
        self, message: Metadata | bytes, parts: Sequence[tuple[Answers, Sequence[int]]], loose: Sequence[Answer]
    ) -> None:
        self._message = message if isinstance(message, bytes) else copy(message)
        self._parts = parts
        self._loose = loose

    def __len__(self) -> int:
        return sum([len(numbers) for _, numbers in self._parts]) + len(self._loose)

    @property
    def ids(self) -> list[str]:
        """The ids of the subscriptions."""
        ids: list[str] = []
        for of_layer, numbers in self._parts:
            ids += of_layer.ids_of(numbers)
        ids += [answer.id for answer in self._loose]
        return ids

    def _objects(self) -> list[Match]:
        message = metadata_of_json(self._message) if isinstance(self._message, bytes) else self._message
        return [answer.match or answer.of(message) for answer in self._answers()]

    def _answers(self) -> list[Answer]:
        answers = [answer for of_layer, numbers in self._parts for answer in of_layer.some(numbers)]
        answers += self._loose
        return answers


NO_MATCHES: Final = MessageMatches({}, (), ())
"""Matches of a message that nothing matches."""

_OfLayer: TypeAlias = Callable[[Answers, _Numbers], list[T]]


def _ids_of(layer: Answers, numbers: _Numbers) -> list[str]:
    ids: list[str] = layer.ids.take(numbers).tolist()
    return ids


def _destinations_of(layer: Answers, numbers: _Numbers) -> list[tuple[str, ...]]:
    destinations: list[tuple[str, ...]] = layer.destinations.take(numbers).tolist()
    return destinations


def _is_same(ours: Sequence[object], other: Sequence[object]) -> bool:
    return len(ours) == len(other) and all(map(eq, ours, other))
