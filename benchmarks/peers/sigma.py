"""Events matched with the rules of a folder beside rsigma: JSON text in, the ids of the rules that hold out.

Both read the same files and the same events by turns, in one thread, and no event twice; processor time counts. rsigma
takes one event at a time. Rules that only one side can read are left out on both. The answers are compared before
speed; rsigma deviates from a few rules, so a small share of the pairs may differ, and the result tells it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks._sigma import events, rules_in
from benchmarks.harness import Case, Options, Result, Setup, Supply, rates
from benchmarks.peers.programs import RSIGMA, Program, rsigma
from benchmarks.peers.rules import Texts, Way, frozen, ruler_matches, seconds_for
from turnout.errors import TurnoutError
from turnout.subscriptions import Matcher, Subscription

NAME = f"rsigma {RSIGMA}"
_MOST_DIFFERENT = 0.005
"""Share of the pairs of event and rule that only one side finds, at most."""

_COMPARED = 2_000
_ROUNDS = 4
_WAYS = (Way("batches of 1,000", 1_000, 4_000), Way("batches of 20", 20, 1_000), Way("one by one", 1, 1_000))


def cases(options: Options) -> Iterator[Case]:
    """One case, where a folder of rules is named."""
    if options.rules is not None:
        yield Case("match: real rules", partial(measure, options.rules, quick=options.quick))


def measure(folder: Path, *, quick: bool) -> Iterator[Result]:
    """Compare results, then measure rounds in alternation, each over new events.

    Raises:
        TurnoutError: the answers differ by more than a few.
    """
    program = rsigma()
    subscriptions = [
        Subscription(("alerts",), rule.condition, id=rule.id)
        for rule in {rule.id: rule for rule in rules_in(folder) if rule.id}.values()
    ]
    supply = Supply(events(subscriptions))
    matcher = Matcher(subscriptions, sample=supply.take(1_000))
    with (
        tempfile.TemporaryDirectory(prefix="turnout-peers-") as name,
        Program([program, folder]) as peer,
        frozen(),
    ):
        files = Path(name)
        texts = _load(peer, supply.take(200 if quick else _COMPARED), files)
        known = {subscription.id for subscription in subscriptions}
        matches, different = _compared(Texts(matcher).matches(texts), ruler_matches(peer, files), known)
        for way in _WAYS:
            rounds = [_round(way, matcher, peer, supply, files) for _ in range((2 if quick else _ROUNDS) + 1)][1:]
            ours, theirs = zip(*rounds, strict=True)
            figures = {
                "cpu_us": median(ours) / way.messages * 1e6,
                "its_cpu_us": median(theirs) / way.messages * 1e6,
                "matches": matches / len(texts),
                "different_percent": different / max(matches, 1) * 100,
            }
            ratio = median(their / our for our, their in rounds)
            setup = Setup("new", way.batch, 1)
            case = f"match: real rules: {way.name}"
            yield Result(case, len(subscriptions), rates(way.messages, ours), setup, NAME, ratio, figures)


def _load(peer: Program, records: Sequence[dict[str, str]], folder: Path) -> list[bytes]:
    """Give rsigma events, and return the same as texts."""
    texts = [json.dumps(record).encode() for record in records]
    file = folder / "events.jsonl"
    file.write_bytes(b"".join(text + b"\n" for text in texts))
    peer.ask(f"load {file}")
    return texts


def _round(
    way: Way, matcher: Matcher, peer: Program, supply: Supply[dict[str, str]], folder: Path
) -> tuple[float, float]:
    """Return the processor seconds here and there for the same new events."""
    texts = _load(peer, supply.take(way.messages), folder)
    return seconds_for(Texts(matcher, way.batch).matches(texts)), float(peer.ask("pass 1")["cpu"])


def _compared(ours: Iterator[list[str]], theirs: Iterator[list[str]], known: set[str]) -> tuple[int, int]:
    """Return the number of pairs of event and rule, and of those that one side alone finds.

    Raises:
        TurnoutError: these are more than a few.
    """
    matches = different = 0
    first = ""
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        apart = set(our) ^ (set(their) & known)
        matches, different = matches + len(our), different + len(apart)
        first = first or (f"event {number}: {sorted(apart)}" if apart else "")
    if different > _MOST_DIFFERENT * matches:
        raise TurnoutError(f"{different} of {matches} matches differ from those of {NAME}; {first}")
    return matches, different
