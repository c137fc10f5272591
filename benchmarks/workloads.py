"""Rules and messages for comparisons of matchers: the same for turnout and for every peer.

A rule is a conjunction of tests of fields, in words that every matcher has; `condition` says it in turnout's, and
`Message.event` is what a matcher of JSON events gets. The workloads: messages that nothing matches, values under
Zipf's law (some 5 matches a message), alerts in the shape of hypermatch's own benchmark (10 matches), the same with
values that many rules share, with wildcards, and conditions that mix texts with numbers. Numeric ranges and rules in
the shape of a security team's are for turnout alone. No generator of messages gives one twice.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from turnout.conditions import Condition, all_of, any_of, compare, kiwi, not_
from turnout.conditions.pattern import escape
from turnout.subscriptions import Subscription

KEYS = tuple(f"k{n}" for n in range(8))

Op = Literal["equals", "prefix", "glob", "anyOf", "allOf", "range", "atLeast"]


class Test(NamedTuple):
    """One test of one field.

    Attributes:
        field: of the event.
        op: the field is, begins with, or is like the one text; is, or has in its list, any or all of several; is a
            number from the first to below the second, or at least the one.
        texts: one for ``equals``, ``prefix``, ``glob`` and ``atLeast``, two for ``range``.
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
        messages: endless messages for so many rules, always the same for a size.
        words: the fields that are lists of words.
        numbers: the fields that are numbers.
    """

    name: str
    rules: Callable[[int], Iterator[Rule]]
    messages: Callable[[int], Iterator[Message]]
    words: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()

    def condition(self, rule: Rule) -> Condition:
        """The rule in turnout's words."""
        return all_of(*(_condition(test, words=test.field in self.words) for test in rule.tests))

    def subscriptions(self, size: int) -> Iterator[Subscription]:
        """The rules as subscriptions."""
        for number, rule in enumerate(self.rules(size)):
            yield Subscription((f"d{number % 10}",), self.condition(rule), id=rule.id)

    def metadata(self, size: int) -> Iterator[dict[str, str]]:
        """The messages as metadata."""
        return (message.metadata() for message in self.messages(size))


def _condition(test: Test, *, words: bool) -> Condition:
    if test.op == "prefix":
        return kiwi(test.field, escape(test.texts[0]) + "*", partial=words)
    if test.op == "glob":
        return kiwi(test.field, test.texts[0])
    if test.op in ("range", "atLeast"):
        bounds = zip((">=", "<"), test.texts, strict=False)
        return all_of(*(compare(test.field, op, float(text)) for op, text in bounds))
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


def _literal_messages(draw: Callable[[int, random.Random], str]) -> Callable[[int], Iterator[Message]]:
    def messages(size: int) -> Iterator[Message]:
        random_ = random.Random(7)
        while True:
            yield Message({key: draw(size, random_) for key in KEYS}, {})

    return messages


def _alert_rules(size: int, *, alike: int, glob: bool) -> Iterator[Rule]:
    """Rules of which *alike* ask for the same number, and so match the same messages."""
    numbers = max(1, size // alike)
    for number in range(size):
        own = str(number % numbers)
        tests = [
            Test("name", "glob", (f"app-*-{own}",)) if glob else Test("name", "prefix", ("app-",)),
            *(() if glob else (Test("number", "equals", (own,)),)),
            Test("type", "anyOf", ("app", "database")),
        ]
        if number % 2:
            tests.append(Test("tags", "allOf", ("tag1", "tag2")))
        if number % 3:
            tests.append(Test("env", "equals", ("prod",)))
        yield Rule(rule_id(number), tuple(tests))


def _alerts(size: int, *, alike: int, glob: bool) -> Iterator[Message]:
    random_ = random.Random(7)
    numbers = max(1, size // alike)
    for number in itertools.count():
        own = str(random_.randrange(numbers))
        texts = {
            "name": f"app-shop{number}-{own}" if glob else f"app-shop-{number}",
            **({} if glob else {"number": own}),
            "type": random_.choice(("app", "database")),
            "env": "prod",
            "region": "earth",
        }
        yield Message(texts, {"tags": ("tag1", "tag2")})


def alerts(name: str, alike: int, *, glob: bool = False) -> Workload:
    """Hypermatch's shape, with so many matches a message."""
    return Workload(
        name,
        partial(_alert_rules, alike=alike, glob=glob),
        partial(_alerts, alike=alike, glob=glob),
        frozenset({"tags"}),
    )


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


def _dense(size: int) -> Iterator[Message]:
    random_ = random.Random(7)
    services = max(1, size // _RULES_OF_A_SERVICE)
    for number in itertools.count():
        texts = {
            "name": f"host-{random_.randrange(5_000)}",
            "service": f"service-{random_.randrange(services)}",
            "type": random_.choice(_TYPES),
            "severity": random_.choice(_SEVERITIES),
            "message": f"Value {random_.randrange(1_000)} is over the limit since {number} s",
        }
        yield Message(texts, {"tags": tuple(random_.sample(_TAGS, 10))})


_NUMBERS = ("price", "volume", "delay", "weight")
_MOST = 1_000.0
"""Numbers are drawn evenly from zero to this."""


def _interval(field: str, width: float, random_: random.Random) -> Test:
    low = round(random_.uniform(0, _MOST - width), 2)
    return Test(field, "range", (f"{low:.2f}", f"{low + width * random_.uniform(0.5, 1.5):.2f}"))


def _number(random_: random.Random) -> str:
    return f"{random_.uniform(0, _MOST):.4f}"


def _mixed_rules(size: int) -> Iterator[Rule]:
    """An equality that one rule in twenty shares, one or two tests of numbers, and often a prefix."""
    random_ = random.Random(size)
    for number in range(size):
        first, second = random_.sample(_NUMBERS, 2)
        tests = [Test("kind", "equals", (random_.choice(_TYPES),)), _interval(first, 110.0, random_)]
        if number % 3:
            tests.append(Test(second, "atLeast", (f"{random_.uniform(0, _MOST):.2f}",)))
        if number % 4 == 0:
            tests.append(Test("name", "prefix", (f"host-{random_.randrange(10)}",)))
        yield Rule(rule_id(number), tuple(tests))


def _mixed_messages(_: int) -> Iterator[Message]:
    random_ = random.Random(7)
    while True:
        numbers = {field: _number(random_) for field in _NUMBERS}
        texts = {"kind": random_.choice(_TYPES), "name": f"host-{random_.randrange(5_000)}", **numbers}
        yield Message(texts, {})


_SYMBOLS = 1_000


def _range_rules(size: int, *, width: float, fields: tuple[str, ...], symbol: bool) -> Iterator[Rule]:
    random_ = random.Random(size)
    for number in range(size):
        tests = [_interval(field, width, random_) for field in fields]
        if symbol:
            tests.append(Test("symbol", "equals", (f"S{random_.randrange(_SYMBOLS)}",)))
        yield Rule(rule_id(number), tuple(tests))


def _quotes(_: int) -> Iterator[Message]:
    random_ = random.Random(7)
    while True:
        numbers = {field: _number(random_) for field in _NUMBERS[:2]}
        yield Message({**numbers, "symbol": f"S{random_.randrange(_SYMBOLS)}"}, {})


def _ranges(name: str, share: float, fields: tuple[str, ...] = ("price",), *, symbol: bool = False) -> Workload:
    rules = partial(_range_rules, width=share * _MOST, fields=fields, symbol=symbol)
    return Workload(name, rules, _quotes, numbers=frozenset(_NUMBERS))


PEERS = (
    Workload("nothing", _literal_rules(uniform), _literal_messages(uniform)),
    Workload("zipf", _literal_rules(zipf), _literal_messages(zipf)),
    alerts("alerts", 10),
    Workload("dense", _dense_rules, _dense, frozenset({"tags"})),
    Workload("mixed with numbers", _mixed_rules, _mixed_messages, numbers=frozenset(_NUMBERS)),
)
"""Workloads for all matchers; *alerts* is hypermatch's shape, *dense* has few values that nearly match very often."""

RANGES = (
    _ranges("ranges of 0.1 %", 0.001),
    _ranges("ranges of 0.01 %", 0.0001),
    _ranges("two ranges of 3 %", 0.03, ("price", "volume")),
    _ranges("ranges of 0.1 % and an equality", 0.001, symbol=True),
)
"""Conditions on numbers, ``price>=A AND price<B``."""

WORKLOADS: dict[str, Workload] = {
    one.name: one for one in (*PEERS, *RANGES, alerts("alerts with wildcards", 10, glob=True))
}
"""By name."""

# Rules as a security team writes them.

_PROGRAMS = tuple(f"tool{n}.exe" for n in range(400))
_ARGUMENT_PARTS = tuple(
    f"{first}{last}" for first in ("-enc", "/ad", "http", "Down", "pass", "dump", "key") for last in range(300)
)


def _leaf(random_: random.Random) -> Condition:
    """A leaf: of a hundred 62 are infixes, 21 suffixes, and the others equalities and prefixes."""
    kind, program = random_.random(), random_.choice(_PROGRAMS)
    if kind < 0.62:
        text = random_.choice(_ARGUMENT_PARTS)
        # One infix in eight is shorter than three characters.
        text = "".join(random_.choices("ghjkmnqvwxyz", k=2)) if random_.random() < 0.12 else text
        field = random_.choice(("CommandLine", "CommandLine", "TargetFilename", "Details"))
        return kiwi(field, f"*{escape(text)}*", ignore_case=True)
    if kind < 0.83:
        return kiwi(
            random_.choice(("Image", "Image", "ParentImage")), f"*{escape(chr(92) + program)}", ignore_case=True
        )
    if kind < 0.96:
        return kiwi("EventID", str(random_.randrange(400)))
    return kiwi("TargetFilename", f"C:{escape(chr(92))}dir{random_.randrange(200)}*", ignore_case=True)


def _rule(random_: random.Random) -> Condition:
    """Selections of alternatives, all needed, and in one rule of four a filter that must not hold."""
    leaves = min(400, max(1, int(random_.lognormvariate(1.6, 1.1))))
    selections = [[_leaf(random_)] for _ in range(min(leaves, random_.choice((1, 2, 2, 3))))]
    for _ in range(leaves - len(selections)):
        random_.choice(selections).append(_leaf(random_))
    parts = [any_of(*leaves) if len(leaves) > 1 else leaves[0] for leaves in selections]
    if random_.random() < 0.25:
        parts.append(not_(any_of(_leaf(random_), _leaf(random_))))
    return all_of(*parts)


def security_rules(size: int) -> Iterator[Subscription]:
    """So many rules with infixes and suffixes under and, or and not."""
    random_ = random.Random(size)
    for number in range(size):
        yield Subscription(("alerts",), _rule(random_), id=rule_id(number))


def log_events(_: int) -> Iterator[dict[str, str]]:
    """Endless events of processes and files, each with texts of its own."""
    random_ = random.Random(7)
    for number in itertools.count():
        image, parent = (f"C:\\dir{random_.randrange(900)}\\{random_.choice(_PROGRAMS)}" for _ in range(2))
        words = [f"{random_.getrandbits(40):x}" for _ in range(6)]
        words += random_.choices(_ARGUMENT_PARTS, k=random_.randrange(2))
        random_.shuffle(words)
        yield {
            "CommandLine": f"{image} {' '.join(words)}",
            "Image": image,
            "ParentImage": parent,
            "TargetFilename": f"C:\\dir{random_.randrange(900)}\\{random_.getrandbits(48):x}.tmp",
            "Details": f"{random_.getrandbits(64):x}",
            "User": f"user{random_.randrange(5_000)}",
            "EventID": str(random_.randrange(4_000)),
            "Channel": "Security",
            "Computer": f"host{random_.randrange(3_000)}",
            "ProcessId": str(number),
        }
