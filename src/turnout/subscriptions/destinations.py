"""Destinations: syntax, and those that a caller may not use.

A destination is a subject without wildcards, ``sink:subject`` where a route has several named sinks, a webhook
(`turnout.subscriptions.webhooks`), or ``feed:`` for the subscription's feed alone. A subject may end with a time, as in
``orders.late?delay=15m`` (`turnout.subscriptions.timing`). Whether a stream takes it is known only to the
server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from turnout.errors import SubscriptionInvalidError
from turnout.subjects import matches
from turnout.subjects.pattern import Rights
from turnout.subjects.tokens import MAX_BYTES
from turnout.subscriptions.timing import split_timing
from turnout.subscriptions.webhooks import is_url, webhook_problem

if TYPE_CHECKING:
    from turnout.subscriptions.lines import PlainLine
    from turnout.subscriptions.model import Subscription

FEED = "feed:"
"""Destination of a subscription whose messages are read from its feed, and sent nowhere."""

_SURELY_SHORT = MAX_BYTES // 4
_UNFIT = re.compile("[\\s\x00-\x1f\x7f\ud800-\udfff]")
_PIECE = "[^\\s.*>\x00-\x1f\x7f\ud800-\udfff][^\\s.\x00-\x1f\x7f\ud800-\udfff]*"
_SUBJECT = re.compile(rf"{_PIECE}(?:\.{_PIECE})*")
_SHOWN_CHARACTERS = 80


@lru_cache(maxsize=4_096)
def problem_of(destination: str) -> str | None:
    """Return the reason that no message can be published to a destination; None for a valid one.

    >>> problem_of("deliver.desk.7")
    >>> problem_of("deliver..desk")
    'cannot be published to: an empty token at position 8'
    >>> problem_of("sink:deliver.>")
    "cannot be published to: a token cannot begin with the wildcard '>' (at position 13)"
    """
    if len(destination) > _SURELY_SHORT:
        size = len(destination.encode("utf-8", "replace"))
        if size > MAX_BYTES:
            return f"cannot be published to: it has {size:,} bytes, at most {MAX_BYTES:,} are taken"
    if "?d" in destination and not is_url(destination):
        destination, _, problem = split_timing(destination)
        if problem is not None:
            return f"cannot be delivered later: {problem}"
    if destination == FEED or (_SUBJECT.fullmatch(destination) and ":" not in destination):
        return None
    if is_url(destination):
        return webhook_problem(destination)
    head, colon, rest = destination.partition(":")
    problem = _problem(destination, 0)
    if problem is None and colon:
        # The part behind a sink's name is a subject of its own.
        problem = _problem(rest, len(head) + 1)
    return None if problem is None else f"cannot be published to: {problem}"


def _problem(subject: str, begun: int) -> str | None:
    if not subject.strip():
        return f"there is no subject behind position {begun}" if begun else "it is blank"
    unfit = _UNFIT.search(subject)
    if unfit is not None:
        return f"no subject can hold {unfit[0]!r} (at position {begun + unfit.start()})"
    for token in subject.split("."):
        if not token:
            return f"an empty token at position {begun}"
        if token[0] in "*>":
            return f"a token cannot begin with the wildcard {token[0]!r} (at position {begun})"
        begun += len(token) + 1
    return None


def describe_destination(destination: str) -> str:
    """Return a destination as errors show it: control characters escaped, and not all of a very long one."""
    if len(destination) <= _SHOWN_CHARACTERS:
        return repr(destination)
    return f"{destination[:_SHOWN_CHARACTERS]!r}… ({len(destination):,} characters)"


def problems_of(subscription: Subscription) -> Iterator[str]:
    """Yield the problems of a subscription's destinations, with their indices."""
    for number, destination in enumerate(subscription.destinations):
        problem = problem_of(destination)
        if problem is not None:
            yield f"route.destinations[{number}]: {describe_destination(destination)} {problem}"


def checked(subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
    """Yield the same subscriptions, one after the other: what every store does before it keeps any.

    Raises:
        SubscriptionInvalidError: nothing can be published to a destination; names it and the fault.
    """
    for subscription in subscriptions:
        problems = list(problems_of(subscription))
        if problems:
            raise SubscriptionInvalidError("; ".join(problems))
        yield subscription


def checked_version(id: str, subscription: Subscription) -> Subscription:  # noqa: A002 - the field's own name
    """Return a new version of a subscription under its id: what every store does before an update.

    Raises:
        SubscriptionInvalidError: it has another id, or nothing can be published to a destination.
    """
    if subscription.id not in ("", id):
        raise SubscriptionInvalidError(f"id: expected {id!r}, found {subscription.id!r}: an update keeps the id")
    (version,) = checked([subscription])
    return replace(version, id=id)


def refusals_of(rights: Rights, subscription: Subscription | PlainLine) -> Iterator[str]:
    """Yield the refusal of each destination of a subscription that is not allowed, with its path.

    A destination with a sink's name is checked as a whole, and so is the subject behind the name: a pattern for
    it has the name too (``archive:deliver.>``).
    """
    for number, destination in enumerate(subscription.destinations):
        target = destination if is_url(destination) else split_timing(destination)[0]
        refusal = rights.refusal(target) or _refusal_behind_name(rights, target)
        if refusal is not None:
            yield f"route.destinations[{number}]: {describe_destination(destination)} {refusal}"


def _refusal_behind_name(rights: Rights, destination: str) -> str | None:
    protected = rights.protection(destination.partition(":")[2])
    if protected is None:
        return None
    named = (pattern for pattern in rights.allow or () if pattern.partition(":")[2][:1] not in ("", "*", ">"))
    if any(matches(pattern, destination) for pattern in named):
        return None
    return f"is not allowed: {protected}"
