"""Real rules: those of a folder of Sigma's, and events made of their texts. No rule is part of this repository."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import CannotRunError
from benchmarks.workloads import log_events
from turnout.conditions import Compare, Exists, Kiwi, leaves
from turnout.conditions.pattern import parse_pattern
from turnout.subscriptions import Subscription
from turnout.subscriptions.sigma import SigmaRule, read_file, rule_files

_MOST_LEAVES = 8
"""Leaves of a rule that an event is made for."""


def subscriptions_in(folder: Path) -> list[Subscription]:
    """Return the rules of a folder, each with an id of its own.

    Raises:
        CannotRunError: there are none.
    """
    return [
        Subscription(("alerts",), rule.condition, id=f"rule-{number}") for number, rule in enumerate(rules_in(folder))
    ]


def rules_in(folder: Path) -> list[SigmaRule]:
    """Return the rules of a folder that are conditions of turnout.

    Raises:
        CannotRunError: there are none.
    """
    rules = [rule for file in rule_files([folder]) for rule in read_file(file) if isinstance(rule, SigmaRule)]
    if not rules:
        raise CannotRunError(f"no rules are in {folder}")
    return rules


def copies(subscriptions: Sequence[Subscription], count: int) -> list[Subscription]:
    """Return the first *count* subscriptions; of more than there are, the same ones with other ids."""
    numbers = range(-(-count // len(subscriptions)))
    endless = (replace(own, id=f"{own.id}-{number}") for number in numbers for own in subscriptions)
    return list(itertools.islice(endless, count))


def events(subscriptions: Sequence[Subscription]) -> Iterator[dict[str, str]]:
    """Endless events of processes, each with texts that some leaves of a rule ask for, within others of its own."""
    random_ = random.Random(11)
    for event in log_events(0):
        asked = list(leaves(random_.choice(subscriptions).condition))
        for leaf in random_.sample(asked, min(len(asked), _MOST_LEAVES)):
            if isinstance(leaf, Kiwi) and not leaf.negated:
                event[leaf.key] = _matching(leaf, random_)
            elif isinstance(leaf, Exists | Compare):
                event[leaf.key] = str(random_.randrange(1_000))
        yield event


def _matching(leaf: Kiwi, random_: random.Random) -> str:
    pieces = parse_pattern(leaf.pattern)
    return "".join(piece if isinstance(piece, str) else f"{random_.getrandbits(64):x}" for piece in pieces)
