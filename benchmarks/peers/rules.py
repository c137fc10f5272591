"""Messages matched with 100,000 rules beside event-ruler: JSON text in, the ids of the rules that hold out.

The rules are those of ``benchmarks/workloads.py``; every message's ids are compared before a second is told. What is
timed is that answer on both sides: a list of ids for each message. Beside it stands what matches cost as objects with
destinations and leaves, which event-ruler does not have. With one thread it is the thread's processor time that
counts, with two (two processes here) the wall's.

event-ruler has no *all of these* over the values of one field. A list of words is therefore a field for each word
there, ``tags.blue: yes``, and one text of words here, tested word by word: both mean the same. It goes through fields
by their names, and was a hundred times slower on *alerts* where the telling one comes late (1,825 µs a message for 16):
here the telling ones have names that come first.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import Options, Result, clock
from benchmarks.peers.programs import Program, java_program
from benchmarks.workloads import WORKLOADS, Message, Rule, Test, Workload
from turnout.errors import TurnoutError
from turnout.subscriptions import Match, Matcher

RULER = "2.0.1"
PACKAGES = (f"software.amazon.event.ruler:event-ruler:{RULER}",)
NAME = f"event-ruler {RULER}"

_WORKLOADS = tuple(WORKLOADS.values())
_BATCH = 10_000
_WORD_IS_THERE = "yes"
_TELLING = ("number", "service")
_decode = msgspec.json.Decoder(dict[str, str]).decode


def case_of(workload: Workload, threads: int) -> str:
    """What the case is called."""
    return f"match: {workload.name}, {'one thread' if threads == 1 else f'{threads} threads'}"


@dataclass
class Texts:
    """A matcher that is given JSON, as event-ruler is."""

    matcher: Matcher
    texts: Sequence[bytes]

    def matches(self, texts: Sequence[bytes] | None = None) -> Iterator[list[str]]:
        """For each message the ids of the rules that hold."""
        texts = self.texts if texts is None else texts
        for begin in range(0, len(texts), _BATCH):
            yield from self.matcher.match_many([_decode(text) for text in texts[begin : begin + _BATCH]]).ids()

    def objects(self) -> Iterator[list[Match]]:
        """The same as matches: with destinations, and the leaves that are true."""
        for begin in range(0, len(self.texts), _BATCH):
            texts = self.texts[begin : begin + _BATCH]
            yield from map(list, self.matcher.match_many([_decode(text) for text in texts]))


def seconds_for(answers: Iterator[object]) -> float:
    """Processor seconds of this thread until every answer was given."""
    begun = time.process_time()
    for _ in answers:
        pass
    return time.process_time() - begun


_forked: Texts | None = None
"""What forked processes match with: they have it from their parent."""


def _share(part: int, parts: int) -> int:
    assert _forked is not None
    size = len(_forked.texts)
    return sum(
        len(match) for match in _forked.matches(_forked.texts[size * part // parts : size * (part + 1) // parts])
    )


def run(options: Options) -> list[Result]:
    """The cases that were asked for."""
    threads = {workload.name: [n for n in (1, 2) if options.wants(case_of(workload, n))] for workload in _WORKLOADS}
    chosen = [workload for workload in _WORKLOADS if threads[workload.name]]
    if not chosen:
        return []
    command = java_program("ruler/Rules.java", PACKAGES, "-Xmx4g", "-XX:+UseParallelGC")
    size, messages = (1_000, 500) if options.quick else (options.size or 100_000, 20_000)
    results = []
    for workload in chosen:
        drawn = list(workload.messages(messages, size))
        with tempfile.TemporaryDirectory(prefix="turnout-peers-") as folder:
            results += measure(
                workload, size, drawn, command, Path(folder), threads[workload.name], quick=options.quick
            )
    return results


def measure(
    workload: Workload,
    size: int,
    messages: Sequence[Message],
    command: Sequence[str],
    folder: Path,
    threads: Sequence[int],
    *,
    quick: bool,
) -> Iterator[Result]:
    """Answers compared, then passes over all messages by turns."""
    global _forked
    texts = [text_of(message) for message in messages]
    subscriptions = list(workload.subscriptions(size))
    with clock() as building:
        ours = Texts(Matcher(subscriptions), texts)
    with ruler(workload.rules(size), messages, command, folder) as peer:
        matched = compare(workload.name, ours.matches(), ruler_matches(peer, folder))
        extra = {"matches/message": matched / len(texts), "build s": building()}
        peer_warm_up(peer, 1 if quick else 8)
        for number in threads:
            gc.freeze()
            if number == 1:
                our, their, objects = one_thread(peer, ours, 2 if quick else 7)
                extra["µs as Match objects"] = objects / len(texts) * 1e6
            else:
                _forked = ours
                our, their = several(peer, number, 2 if quick else 7)
            gc.unfreeze()
            times = {"µs": our / len(texts) * 1e6, "its µs": their / len(texts) * 1e6}
            yield Result(case_of(workload, number), size, len(texts) / our, NAME, their / our, {**times, **extra})
    _forked = None


def ruler(rules: Iterable[Rule], messages: Iterable[Message], command: Sequence[str], folder: Path) -> Program:
    """event-ruler, with its rules and its events loaded."""
    written, events = folder / "rules.jsonl", folder / "events.jsonl"
    with written.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": rule.id, "rule": pattern(rule)}) + "\n" for rule in rules)
    with events.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(event(message)) + "\n" for message in messages)
    return Program([*command, written, events])


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
    elif test.op == "prefix":
        yield _field(test.field), [{"prefix": test.texts[0]}]
    else:
        yield _field(test.field), list(test.texts)


def event(message: Message) -> dict[str, str]:
    """A message as event-ruler sees it."""
    words = {f"{_field(name)}.{word}": _WORD_IS_THERE for name, words in message.words.items() for word in words}
    return {**{_field(name): text for name, text in message.texts.items()}, **words}


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
    """Passes until the JVM has compiled what there is to compile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        peer.ask("pass 1")


def one_thread(peer: Program, ours: Texts, passes: int) -> tuple[float, float, float]:
    """Median processor seconds by turns: ids here, ids there, and here as objects."""
    seconds_for(ours.matches())
    rounds = [
        (seconds_for(ours.matches()), peer.ask("pass 1")["cpu"], seconds_for(ours.objects())) for _ in range(passes)
    ]
    our, their, objects = map(statistics.median, zip(*rounds, strict=True))
    return our, their, objects


def several(peer: Program, number: int, passes: int) -> tuple[float, float]:
    """Median seconds on the wall, here with as many processes as there with threads, by turns."""
    with multiprocessing.get_context("fork").Pool(number) as pool:
        shares = [(part, number) for part in range(number)]
        pool.starmap(_share, shares, 1)
        pairs = []
        for _ in range(passes):
            begun = time.perf_counter()
            pool.starmap(_share, shares, 1)
            pairs.append((time.perf_counter() - begun, peer.ask(f"pass {number}")["wall"]))
    our, their = zip(*pairs, strict=True)
    return statistics.median(our), statistics.median(their)
