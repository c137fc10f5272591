"""Does without slots that cost every record more than they spare it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

from turnout.conditions.anchor import ALWAYS, Kind
from turnout.spark.matching.access import PROBE, Part
from turnout.subscriptions import Subscription
from turnout.subscriptions.entries import Entry, Popularity, entries_of

__all__ = ["spared"]

_MOST = 1000
"""A slot that more subscriptions than this are in earns its probes."""

_WORDS = 4.0
"""What it costs to find the words of a value, in probes."""


def spared(
    subscriptions: Mapping[str, Subscription], terms: dict[str, list[Entry]], popularity: Popularity
) -> Popularity:
    """The popularity that avoids slots which are not worth their probes; *terms* are changed to do without.

    A pattern with its text in the middle is found by any of the value's runs of three characters. That is a dozen
    lookups for every record, and for a handful of subscriptions it is cheaper to look at them each time.
    """
    users: dict[Part, set[str]] = defaultdict(set)
    for id_, entries in terms.items():
        for part in _parts(entries):
            users[part].add(id_)
    for slot in sorted(users, key=lambda part: (-_price(popularity, part), part)):
        ids = users[slot]
        if not 0 < len(ids) <= _MOST:
            continue
        other = popularity.avoiding(*slot)
        moved = {id_: entries_of(subscriptions[id_], other) for id_ in ids}
        opened = {part for entries in moved.values() for part in _parts(entries)}
        if slot in opened:
            continue
        before = _candidates(popularity, (terms[id_] for id_ in ids)) + _price(popularity, slot)
        after = _candidates(popularity, moved.values())
        after += sum(_price(popularity, part) for part in opened if not users.get(part))
        if after < before:
            popularity = other
            for id_, entries in moved.items():
                for part in _parts(terms[id_]):
                    users[part].discard(id_)
                for part in _parts(entries):
                    users.setdefault(part, set()).add(id_)
            terms |= moved
    return popularity


def _parts(entries: Iterable[Entry]) -> set[Part]:
    return {(entry.access.key, entry.access.kind) for entry in entries if entry.access != ALWAYS}


def _price(popularity: Popularity, slot: tuple[str, Kind]) -> float:
    """What the slot costs a record, in candidates that are verified in vain."""
    return PROBE * (popularity.probes(*slot) + _WORDS * slot[1].lexeme)


def _candidates(popularity: Popularity, terms: Iterable[Iterable[Entry]]) -> float:
    return sum(popularity.share(entry.access) for entry in chain.from_iterable(terms))
