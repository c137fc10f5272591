"""Which subjects of a stream some subscriptions can want at all: what need not be read is left to the server.

Only what is plain is looked at: conditions that ask for a topic, or for how one begins, in routes that leave topics as
they come. In all other cases the answer is that anything may be wanted, which is never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from turnout.conditions import Condition, Group, Kiwi, Logic
from turnout.conditions.pattern import parse_pattern
from turnout.routes import Route
from turnout.subjects.pattern import collide, common, is_subset
from turnout.subjects.tokens import has_wildcard
from turnout.transforms import Chain
from turnout.transforms.drop_headers import DropHeaders
from turnout.transforms.filter import Filter
from turnout.transforms.insert_header import InsertHeader
from turnout.transforms.value_to_key import ValueToKey

__all__ = ["subject_filters"]

_TOPIC = frozenset({"topic", "subject"})
_LEAVE_TOPICS = (DropHeaders, Filter, InsertHeader, ValueToKey)
"""Transforms of whole records that change no topic; those of a key or a value cannot."""

_MOST = 50
"""More filters than this cost the server more than they save."""


def subject_filters(route: Route, conditions: Iterable[Condition], own: Sequence[str]) -> tuple[str, ...]:
    """Filters for a consumer such that no record is missed that one of some conditions can be true of.

    Args:
        route: what happens to topics before they are matched.
        conditions: of the subscriptions that are asked for.
        own: the filters of the route's source; none for the whole stream.

    Returns:
        The filters, no two of which have a subject in common; those of the source where nothing is known.
    """
    if not _leaves_topics(route):
        return tuple(own)
    wanted: set[str] = set()
    keys = _TOPIC.difference(route.subscriptions.metadata if route.subscriptions else ())
    for condition in conditions:
        filters = _of(condition, keys)
        if filters is None or len(wanted) > _MOST:
            return tuple(own)
        wanted |= filters
    both = {common(one, other) for one in wanted for other in own or (">",)} - {None}
    chosen = _widest(one for one in both if one is not None)
    clash = any(collide(one, other) for one, other in combinations(chosen, 2))
    return tuple(own) if clash or not chosen or len(chosen) > _MOST else chosen


def _leaves_topics(route: Route) -> bool:
    return not len(route.mappings) and _chain_leaves_topics(route.chain)


def _chain_leaves_topics(chain: Chain) -> bool:
    transforms = [stage.transform for stage in chain.stages]
    # A plug-in may do more than it says.
    ours = all(type(one).__module__.startswith("turnout.transforms.") for one in transforms)
    return ours and all(one.sided or isinstance(one, _LEAVE_TOPICS) for one in transforms)


def _of(condition: Condition, keys: frozenset[str]) -> frozenset[str] | None:
    """Filters that cover every topic for which the condition can be true; None where it can be for any."""
    if isinstance(condition, Kiwi):
        plain = not (condition.negated or condition.partial or condition.ignore_case)
        return _of_pattern(condition.pattern) if plain and condition.key in keys else None
    if not isinstance(condition, Group) or condition.negated:
        return None
    parts = [_of(child, keys) for child in condition.children]
    known = [part for part in parts if part is not None]
    if condition.logic is Logic.AND:
        return min(known, key=len, default=None)
    # One of them is true, be it alone or not.
    return frozenset().union(*known) if len(known) == len(parts) else None


def _of_pattern(pattern: str) -> frozenset[str] | None:
    """The filter of the subjects that a pattern matches: itself, or the whole tokens that it begins with."""
    pieces = parse_pattern(pattern)
    first = pieces[0] if pieces and isinstance(pieces[0], str) else ""
    if len(pieces) == 1 and first:
        # What is no subject is not in any stream.
        return frozenset({first}) if _is_subject(first) else frozenset()
    begin, dot, _ = first.rpartition(".")
    return frozenset({f"{begin}.>"}) if dot and _is_subject(begin) else None


def _is_subject(text: str) -> bool:
    return all(text.split(".")) and not has_wildcard(text) and not any(one.isspace() for one in text)


def _widest(filters: Iterable[str]) -> tuple[str, ...]:
    """The filters without those that another one covers."""
    kept: list[str] = []
    for one in sorted(set(filters), key=lambda text: (text.count("."), text)):
        if not any(is_subset(one, of) for of in kept):
            kept = [other for other in kept if not is_subset(other, one)] + [one]
    return tuple(sorted(kept))
