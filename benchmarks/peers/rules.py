"""Messages matched with 100,000 rules beside event-ruler: JSON text in, the ids of the rules that hold out.

The rules are those of ``benchmarks/workloads.py``; the ids of some thousand messages are compared before speed. What is
timed is that answer on both sides: a list of ids for each message. turnout takes messages in batches of 2,000 and of 20
and one by one, event-ruler always one by one; both get the same messages by turns, and no message twice. With one
thread it is the thread's processor time that counts, with two (two processes here) the wall's.

event-ruler has no *all of these* over the values of one field. A list of words is therefore a field for each word
there, ``tags.blue: yes``, and one text of words here, tested word by word: both mean the same. It goes through fields
by their names, and was a hundred times slower on *alerts* where the telling one comes late (1,825 µs a message for 16):
here the telling ones have names that come first. Numbers are JSON's there, and texts here.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Case, Options, Result, Setup, Supply, rates
from benchmarks.peers.programs import Program, java_program
from benchmarks.workloads import PEERS, Message, Rule, Test, Workload
from turnout.errors import TurnoutError
from turnout.subscriptions import Matcher

RULER = "2.0.1"
PACKAGES = (f"software.amazon.event.ruler:event-ruler:{RULER}",)
NAME = f"event-ruler {RULER}"

_SIZES = {"mixed with numbers": 10_000}
_SIZE = 100_000
_COMPARED = 2_000
_THREADS = 2
_WORD_IS_THERE = "yes"
_TELLING = ("number", "service", "kind")


@dataclass(frozen=True)
class Way:
    """A way to give messages to turnout, and how many of them a round has."""

    name: str
    batch: int
    messages: int
    threads: int = 1


WAYS = (
    Way("batches of 2,000", 2_000, 4_000),
    Way("batches of 20", 20, 2_000),
    Way("one by one", 1, 1_000),
    Way(f"batches of 2,000, {_THREADS} threads", 2_000, 4_000 * _THREADS, _THREADS),
)


@dataclass
class Texts:
    """A matcher that is given JSON, as event-ruler is."""

    matcher: Matcher
    batch: int = 2_000

    def matches(self, texts: Sequence[bytes]) -> Iterator[list[str]]:
        """For each message the ids of the rules that hold."""
        if self.batch == 1:
            for text in texts:
                yield self.matcher.match(text).ids
            return
        for begin in range(0, len(texts), self.batch):
            yield from self.matcher.match_many(texts[begin : begin + self.batch]).ids()


def seconds_for(answers: Iterator[object]) -> float:
    """Processor seconds of this process until every answer was given."""
    begun = time.process_time()
    for _ in answers:
        pass
    return time.process_time() - begun


_forked: Texts | None = None
"""What forked processes match with: they have it from their parent."""


def _share(texts: list[bytes]) -> int:
    assert _forked is not None
    return sum(len(match) for match in _forked.matches(texts))


def cases(options: Options) -> Iterator[Case]:
    """A case for each workload."""
    for workload in PEERS:
        size = 1_000 if options.quick else options.size or _SIZES.get(workload.name, _SIZE)
        yield Case(f"match: {workload.name}", partial(measure, workload, size, quick=options.quick))


def measure(workload: Workload, size: int, *, quick: bool) -> Iterator[Result]:
    """Compare results, then measure rounds in alternation, each over new messages."""
    command = java_program("ruler/Rules.java", PACKAGES, "-Xmx4g", "-XX:+UseParallelGC")
    supply = Supply(workload.messages(size))
    sample = [message.metadata() for message in supply.take(1_000)]
    ours = Texts(Matcher(list(workload.subscriptions(size)), sample=sample))
    with (
        tempfile.TemporaryDirectory(prefix="turnout-peers-") as name,
        ruler(workload.rules(size), command, Path(name)) as peer,
    ):
        folder = Path(name)
        compared = load(peer, workload, supply.take(_COMPARED), folder)
        matched = compare(workload.name, ours.matches(compared), ruler_matches(peer, folder))
        peer_warm_up(peer, 0.5 if quick else 4)
        with frozen():
            for way in WAYS:
                rounds = 2 if quick else 4
                measured = _rounds(way, rounds, peer, ours, workload, supply, folder)
                yield _result(workload, size, way, measured, matched / _COMPARED)


@contextmanager
def frozen() -> Iterator[None]:
    """Exclude all existing objects from further garbage collections."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _rounds(
    way: Way, rounds: int, peer: Program, ours: Texts, workload: Workload, supply: Supply[Message], folder: Path
) -> list[tuple[float, float]]:
    """The seconds of each round here and there, after one that does not count."""
    turn = _one_thread if way.threads == 1 else _several
    own = Texts(ours.matcher, way.batch)
    taken = []
    for _ in range(rounds + 1):
        texts = load(peer, workload, supply.take(way.messages), folder)
        taken.append((turn(own, texts, way.threads), peer.ask(f"pass {way.threads}")))
    there = "cpu" if way.threads == 1 else "wall"
    return [(our, float(answer[there])) for our, answer in taken[1:]]


def _one_thread(ours: Texts, texts: list[bytes], _: int) -> float:
    return seconds_for(ours.matches(texts))


def _several(ours: Texts, texts: list[bytes], threads: int) -> float:
    """Seconds on the wall with so many processes, which are there before."""
    global _forked
    _forked = ours
    try:
        with multiprocessing.get_context("fork").Pool(threads) as pool:
            pool.map(abs, range(threads))
            begun = time.perf_counter()
            pool.map(_share, [texts[part::threads] for part in range(threads)], 1)
            return time.perf_counter() - begun
    finally:
        _forked = None


def _result(workload: Workload, size: int, way: Way, rounds: list[tuple[float, float]], matches: float) -> Result:
    ours, theirs = ([pair[side] for pair in rounds] for side in (0, 1))
    clock = "cpu" if way.threads == 1 else "wall"
    extra = {
        f"{clock}_us": median(ours) / way.messages * 1e6,
        f"its_{clock}_us": median(theirs) / way.messages * 1e6,
        "matches": matches,
    }
    ratio = median(their / our for our, their in rounds)
    setup = Setup("new", way.batch, way.threads)
    return Result(f"match: {workload.name}: {way.name}", size, rates(way.messages, ours), setup, NAME, ratio, extra)


def ruler(rules: Iterable[Rule], command: Sequence[str], folder: Path) -> Program:
    """event-ruler with its rules loaded."""
    written = folder / "rules.jsonl"
    with written.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": rule.id, "rule": pattern(rule)}) + "\n" for rule in rules)
    return Program([*command, written])


def load(peer: Program, workload: Workload, messages: Iterable[Message], folder: Path) -> list[bytes]:
    """Give event-ruler messages, and return the same as texts."""
    messages, events = list(messages), folder / "events.jsonl"
    with events.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(event(message, workload.numbers)) + "\n" for message in messages)
    peer.ask(f"load {events}")
    return [text_of(message) for message in messages]


def text_of(message: Message) -> bytes:
    """A message as turnout's side gets it: an object of texts."""
    return json.dumps(message.metadata()).encode()


def pattern(rule: Rule) -> dict[str, list[Any]]:
    """A rule in event-ruler's words."""
    return {field: tests for test in rule.tests for field, tests in _patterns(test)}


def _patterns(test: Test) -> Iterator[tuple[str, list[Any]]]:
    if test.op == "allOf":
        for word in test.texts:
            yield f"{_field(test.field)}.{word}", [_WORD_IS_THERE]
    elif test.op == "range":
        low, high = map(float, test.texts)
        yield _field(test.field), [{"numeric": [">=", low, "<", high]}]
    elif test.op == "atLeast":
        yield _field(test.field), [{"numeric": [">=", float(test.texts[0])]}]
    elif test.op == "prefix":
        yield _field(test.field), [{"prefix": test.texts[0]}]
    else:
        yield _field(test.field), list(test.texts)


def event(message: Message, numbers: frozenset[str] = frozenset()) -> dict[str, str | float]:
    """A message as event-ruler sees it."""
    words = {f"{_field(name)}.{word}": _WORD_IS_THERE for name, words in message.words.items() for word in words}
    texts = {_field(name): float(text) if name in numbers else text for name, text in message.texts.items()}
    return {**texts, **words}


def _field(name: str) -> str:
    return f"0.{name}" if name in _TELLING else f"1.{name}"


def ruler_matches(peer: Program, folder: Path) -> Iterator[list[str]]:
    """For each event the ids of the rules that hold."""
    file = folder / "matches.jsonl"
    peer.ask(f"write {file}")
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def compare(name: str, ours: Iterator[list[str]], theirs: Iterator[list[str]]) -> int:
    """How many matches there are, the same ones on both sides.

    Raises:
        TurnoutError: a message matches different rules; it names the first.
    """
    matches = 0
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if sorted(our) != sorted(their):
            raise TurnoutError(f"{name}: message {number} matches {sorted(our)}, and for {NAME} {sorted(their)}")
        matches += len(our)
    return matches


def peer_warm_up(peer: Program, seconds: float) -> None:
    """Number of passes until the JVM has compiled the code."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        peer.ask("pass 1")
