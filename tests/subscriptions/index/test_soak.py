"""Random conditions of all kinds under change: matchers and index folders find what the reference finds."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from itertools import count

import pytest

from tests.subscriptions.index.asking import columns_of
from turnout.base.multivalued import ANY_KEY, metadata_of
from turnout.conditions import (
    Cidr,
    Compare,
    Condition,
    Element,
    Exists,
    Group,
    Kiwi,
    Logic,
    Operator,
    Regex,
    evaluate,
    format_condition,
    parse,
)
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import Index, IndexFolder
from turnout.subscriptions.stores.memory import MemoryStore

SECONDS = float(os.environ.get("TURNOUT_SOAK_SECONDS", "3600"))
SUBSCRIPTIONS = int(os.environ.get("TURNOUT_SOAK_SUBSCRIPTIONS", "3000"))
KEYS = ("kind", "name", "price", "volume", "path", "ip", "price:number", "name:text", "items", "items[].n", "items[]")
_ELEMENT_KEYS = ("sku", "n", "to.city", "tags[]", ANY_KEY)
_PIECES = ("a", "b", "ab", "Ab", "aba", "x1", "-", " ", "é", "ς", "7", "10", ".", "\\", "*", "?")
_PARTS = ("*", "?", "a", "b", "ab", "aba", "x1", " ", "é", "Σ", "-", "\\*", "\\?", "\\\\")
_EXPRESSIONS = ("^a", "b$", "(?i)aba", "a.?b|x", "(a|b)+7", "[^a]b", "ab{2}", "\\.", "(?s)a.*b", "x1( |-)", ".")
_NETWORKS = ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0", "fe80::/10")


class Draw:
    """Conditions and messages, from so few texts that they often meet."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._keys: tuple[str, ...] = KEYS

    def condition(self, depth: int = 3) -> Condition:
        """A leaf, or a group of some; most are conjunctions."""
        draw = self._random
        if depth == 0 or draw.random() < 0.3:
            return self._leaf()
        logic = draw.choices(list(Logic), [6, 3, 1])[0]
        children = tuple(self.condition(depth - 1) for _ in range(draw.choice((1, 2, 2, 3, 4))))
        return Group(logic, children, negated=draw.random() < 0.1)

    def _leaf(self) -> Condition:
        draw = self._random
        if self._keys is KEYS and draw.random() < 0.1:
            return self._with_values()
        key = ANY_KEY if draw.random() < 0.05 else draw.choice(self._keys)
        negated = draw.random() < 0.15
        match draw.randrange(10):
            case 0:
                return Compare(key, draw.choice(list(Operator)), float(draw.randrange(12)), negated=negated)
            case 1:
                return Compare(self._keys[2], draw.choice(list(Operator)), draw.uniform(0, 12), negated=negated)
            case 2:
                return Exists(key, negated=negated)
            case 3:
                return Cidr("ip", draw.choice(_NETWORKS), negated=negated)
            case 4:
                return Regex(key, draw.choice(_EXPRESSIONS), negated=negated)
            case 5:
                return Kiwi(key, str(draw.randrange(12)), negated=negated)
        pattern = "".join(draw.choices(_PARTS, k=draw.randrange(5)))
        return Kiwi(key, pattern, partial=draw.random() < 0.3, ignore_case=draw.random() < 0.3, negated=negated)

    def _with_values(self) -> Condition:
        """A leaf about one element of an array, a list of values, or a number that is another one."""
        draw = self._random
        key = draw.choice(KEYS)
        match draw.randrange(4):
            case 0:
                values = ", ".join(draw.choices(("a", "b", "x1", "7", "a*", "10"), k=draw.randrange(1, 12)))
                return parse(f"{key} {draw.choice(('IN', 'NOT IN'))} ({values})")
            case 1:
                return parse(f"{key}!={draw.randrange(12)}")
        self._keys = _ELEMENT_KEYS
        try:
            return Element("items", format_condition(self.condition(1)), negated=draw.random() < 0.15)
        finally:
            self._keys = KEYS

    def _element(self) -> str:
        """An element of an array as text: an object, a value, an array, or no JSON."""
        draw = self._random
        match draw.randrange(8):
            case 0:
                return draw.choice(("7", '"ab"', "[1, 10]", "null", "{", "ab", "{}"))
            case 1:
                return json.dumps([self._fields(), self._fields()])
        return json.dumps(self._fields())

    def _fields(self) -> dict[str, object]:
        draw = self._random
        fields = {"sku": self._value(), "n": draw.randrange(12), "to": {"city": self._value()}, "tags": ["a", "x1", 7]}
        return dict(draw.sample(list(fields.items()), draw.randrange(5)))

    def _value(self) -> str:
        draw = self._random
        match draw.randrange(4):
            case 0:
                return f"{draw.uniform(-1, 13):.{draw.randrange(3)}f}"
            case 1:
                return draw.choice(("10.1.2.3", "10.2.0.1", "fe80::1", "::1", "10.1.2", "1e1", "NaN", ""))
        return "".join(draw.choices(_PIECES, k=draw.randrange(6)))

    def message(self) -> dict[str, str | tuple[str, ...]]:
        """A message; one in eight has several values of its keys."""
        draw = self._random
        keys = draw.sample(KEYS, draw.randrange(len(KEYS) + 1))
        make = {"items": self._element}
        if draw.random() < 0.125:
            several = {key: (make.get(key, self._value), f"own{key}") for key in keys}
            return {key: tuple(dict.fromkeys((value(), value(), own))) for key, (value, own) in several.items()}
        return {key: make.get(key, self._value)() for key in keys}

    def some(self, ids: list[str], most: int) -> list[str]:
        """Some of the ids."""
        return self._random.sample(ids, min(len(ids), self._random.randrange(most + 1)))


def rounds_of_change(folder, draw: Draw, size: int) -> Iterator[None]:
    """Add and remove subscriptions, and compare every way to ask with the reference, round by round."""
    store, numbers = MemoryStore(), count()
    living: dict[str, Subscription] = {}

    def created(amount: int) -> list[Subscription]:
        own = [Subscription(["d"], draw.condition(), id=f"s{next(numbers)}") for _ in range(amount)]
        living.update((subscription.id, subscription) for subscription in own)
        return own

    store.create_many(created(size // 2))
    matcher = Matcher.from_store(store)
    with IndexFolder(folder, store) as writer:
        while True:
            gone = draw.some(list(living), 40 if len(living) < size else 400)
            for id_ in gone:
                del living[id_]
            store.delete_many(gone)
            store.create_many(created(len(draw.some(list(living), 40)) + 1))
            matcher.refresh(store)
            index = Index.open(writer.folder, writer.refresh())
            compare(matcher, index, living, [metadata_of(draw.message()) for _ in range(30)])
            yield


def compare(matcher: Matcher, index: Index, living: dict[str, Subscription], messages) -> None:
    """See that a matcher and an index find what the reference finds, one by one and together."""
    wanted = [
        sorted(id_ for id_, subscription in living.items() if evaluate(subscription.condition, message))
        for message in messages
    ]
    for message, ids in zip(messages, wanted, strict=True):
        assert ids == sorted(matcher.match(message).ids), message
    assert wanted == [sorted(ids) for ids in matcher.match_many(messages).ids()]
    for begin, end in ((0, 30), (0, 3)):
        matches = index.match(columns_of(messages[begin:end]), end - begin)
        found: list[list[str]] = [[] for _ in range(end - begin)]
        texts = index.subscription_ids(matches.subscriptions).to_pylist()
        for row, id_ in zip(matches.rows.tolist(), texts, strict=True):
            found[row].append(id_)
        assert wanted[begin:end] == [sorted(ids) for ids in found]


def test_some_rounds(tmp_path):
    """The soak's rounds with few subscriptions."""
    rounds = rounds_of_change(tmp_path / "index", Draw(28), 120)
    for _ in range(6):
        next(rounds)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_rounds_for_an_hour(tmp_path):
    """Rounds with new seeds for as long as `TURNOUT_SOAK_SECONDS` says; a failure names its seed."""
    until = time.monotonic() + SECONDS
    for seed in count():
        rounds = rounds_of_change(tmp_path / f"index{seed}", Draw(seed), SUBSCRIPTIONS)
        for _ in range(100):
            next(rounds)
            if time.monotonic() > until:
                return
