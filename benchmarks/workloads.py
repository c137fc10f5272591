"""Rules and messages for comparisons of matchers: the same for turnout and for every peer.

A rule is a conjunction of tests of fields, in words that every matcher has; `condition` says it in turnout's, and
`Message.event` is what a matcher of JSON events gets. Four workloads: messages that nothing matches, values under
Zipf's law (some 5 matches a message), alerts in the shape of hypermatch's own benchmark (10 matches), and
the same with values that many rules share.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from turnout.conditions import Condition, all_of, any_of, kiwi
from turnout.conditions.pattern import escape
from turnout.subscriptions import Subscription

KEYS = tuple(f"k{n}" for n in range(8))

Op = Literal["equals", "prefix", "anyOf", "allOf"]


class Test(NamedTuple):
    """One test of one field.

    Attributes:
        field: of the event.
        op: the field is, or begins with, the one text; is, or has in its list, any or all of several.
        texts: one for ``equals`` and ``prefix``.
    """

    field: str
    op: Op
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """A rule that wants an event when all its tests are true."""

    id: str
    tests: tuple[Test, ...]


@dataclass(frozen=True)
class Message:
    """A message: texts by field, and lists of words."""

    texts: dict[str, str]
    words: dict[str, tuple[str, ...]]

    def event(self) -> dict[str, str | list[str]]:
        """The message as a JSON object."""
        return {**self.texts, **{field: list(words) for field, words in self.words.items()}}

    def metadata(self) -> dict[str, str]:
        """The message as metadata: the words of a list in one text."""
        return {**self.texts, **{field: " ".join(words) for field, words in self.words.items()}}


@dataclass(frozen=True)
class Workload:
    """Generators of rules and messages.

    Attributes:
        name: of the workload.
        rules: so many rules, always the same for a size.
        messages: so many messages for so many rules, always the same for both.
        words: the fields that are lists of words.
    """

    name: str
    rules: Callable[[int], Iterator[Rule]]
    messages: Callable[[int, int], Iterator[Message]]
    words: frozenset[str] = frozenset()

    def condition(self, rule: Rule) -> Condition:
        """The rule in turnout's words."""
        return all_of(*(_condition(test, words=test.field in self.words) for test in rule.tests))

    def subscriptions(self, size: int) -> Iterator[Subscription]:
        """The rules as subscriptions."""
        for number, rule in enumerate(self.rules(size)):
            yield Subscription((f"d{number % 10}",), self.condition(rule), id=rule.id)


def _condition(test: Test, *, words: bool) -> Condition:
    if test.op == "prefix":
        return kiwi(test.field, escape(test.texts[0]) + "*", partial=words)
    leaves = [kiwi(test.field, escape(text), partial=words) for text in test.texts]
    if len(leaves) == 1:
        return leaves[0]
    return any_of(*leaves) if test.op == "anyOf" else all_of(*leaves)


def rule_id(number: int) -> str:
    """The id of the rule of this number."""
    return f"00000000-0000-4000-8000-{number:012d}"


def word(number: int) -> str:
    """The text of this number."""
    return f"w{number:07d}x{number % 97}"


def uniform(values: int, random_: random.Random) -> str:
    """A text of so many, each as likely as the others."""
    return word(random_.randrange(values))


def zipf(values: int, random_: random.Random) -> str:
    """A text of so many, the n-th seen 1/n as often as the first."""
    return word(int(values ** random_.random()) - 1)


def _literal_rules(draw: Callable[[int, random.Random], str]) -> Callable[[int], Iterator[Rule]]:
    def rules(size: int) -> Iterator[Rule]:
        random_ = random.Random(size)
        for number in range(size):
            keys = random_.sample(KEYS, 2)
            yield Rule(rule_id(number), tuple(Test(key, "equals", (draw(size, random_),)) for key in keys))

    return rules


def _literal_messages(draw: Callable[[int, random.Random], str]) -> Callable[[int, int], Iterator[Message]]:
    def messages(count: int, size: int) -> Iterator[Message]:
        random_ = random.Random(7)
        for _ in range(count):
            yield Message({key: draw(size, random_) for key in KEYS}, {})

    return messages


_TENFOLD = 10
"""How many rules ask for the same number, and so match the same messages."""


def _alert_rules(size: int) -> Iterator[Rule]:
    numbers = max(1, size // _TENFOLD)
    for number in range(size):
        tests = [
            Test("name", "prefix", ("app-",)),
            Test("number", "equals", (str(number % numbers),)),
            Test("type", "anyOf", ("app", "database")),
        ]
        if number % 2:
            tests.append(Test("tags", "allOf", ("tag1", "tag2")))
        if number % 3:
            tests.append(Test("env", "equals", ("prod",)))
        yield Rule(rule_id(number), tuple(tests))


def _alerts(count: int, size: int) -> Iterator[Message]:
    random_ = random.Random(7)
    numbers = max(1, size // _TENFOLD)
    for number in range(count):
        texts = {
            "name": f"app-shop-{number}",
            "number": str(random_.randrange(numbers)),
            "type": random_.choice(("app", "database")),
            "env": "prod",
            "region": "earth",
        }
        yield Message(texts, {"tags": ("tag1", "tag2")})


_SEVERITIES = ("critical", "major", "minor", "warning", "info")
_TYPES = tuple(f"type-{n}" for n in range(20))
_TAGS = tuple(f"tag{n}" for n in range(40))
_RULES_OF_A_SERVICE = 1_600
"""How many rules name one service: so that some ten match an event of it."""


def _dense_rules(size: int) -> Iterator[Rule]:
    random_ = random.Random(size)
    services = max(1, size // _RULES_OF_A_SERVICE)
    for number in range(size):
        tests = [
            Test("service", "equals", (f"service-{random_.randrange(services)}",)),
            Test("type", "anyOf", tuple(random_.sample(_TYPES, 2))),
            Test("tags", "allOf", tuple(random_.sample(_TAGS, random_.choice((1, 2))))),
        ]
        if random_.random() < 0.5:
            tests.append(Test("severity", "anyOf", tuple(random_.sample(_SEVERITIES, 3))))
        if random_.random() < 0.5:
            tests.append(Test("name", "prefix", (f"host-{random_.randrange(10)}",)))
        yield Rule(rule_id(number), tuple(tests))


def _dense(count: int, size: int) -> Iterator[Message]:
    random_ = random.Random(7)
    services = max(1, size // _RULES_OF_A_SERVICE)
    for number in range(count):
        texts = {
            "name": f"host-{random_.randrange(5_000)}",
            "service": f"service-{random_.randrange(services)}",
            "type": random_.choice(_TYPES),
            "severity": random_.choice(_SEVERITIES),
            "message": f"Value {random_.randrange(1_000)} is over the limit since {number} s",
        }
        yield Message(texts, {"tags": tuple(random_.sample(_TAGS, 10))})


WORKLOADS: dict[str, Workload] = {
    one.name: one
    for one in (
        Workload("nothing", _literal_rules(uniform), _literal_messages(uniform)),
        Workload("zipf", _literal_rules(zipf), _literal_messages(zipf)),
        Workload("alerts", _alert_rules, _alerts, frozenset({"tags"})),
        Workload("dense", _dense_rules, _dense, frozenset({"tags"})),
    )
}
"""By name; *alerts* is hypermatch's shape, *dense* the same with few values that nearly match very often."""
