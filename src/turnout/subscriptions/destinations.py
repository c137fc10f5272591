"""Destinations: syntax, and the destinations that a caller may use.

A destination is a subject without wildcards, ``sink:subject`` where a route has several named sinks, a webhook
(`turnout.subscriptions.webhooks`), or ``feed:`` for the subscription's feed alone. Whether a stream takes the subject
is known only to the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from turnout.errors import ConfigError, Mistake, SubscriptionInvalidError
from turnout.subjects import is_valid, matches
from turnout.subscriptions.webhooks import is_url, webhook_problem

if TYPE_CHECKING:
    from turnout.subscriptions.model import Subscription
    from turnout.subscriptions.plain_lines import PlainLine

FEED = "feed:"
"""Destination of a subscription whose messages are read from its feed, and sent nowhere."""

MAX_BYTES = 2_048
"""The longest destination in UTF-8. nats-server reads protocol lines of 4,096 bytes, with a reply subject and sizes."""

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


def check_pattern(pattern: str) -> str:
    """Return a pattern of destinations as it was given.

    Raises:
        ValueError: it is no subject, with or without wildcards.
    """
    if not pattern or not is_valid(pattern):
        raise ValueError(f"expected subjects, wildcards allowed (deliver.>), found {pattern!r}")
    return pattern


@dataclass(frozen=True, slots=True)
class Rights:
    """Destinations that a caller may use.

    The server's own subjects (``$JS.``, ``$SYS.``, ``$KV.``, all that begin with ``$``), inboxes and subjects that lead
    back to the source are reached only where a pattern names their first token: ``>`` does not open them.

    Attributes:
        allow: patterns of subjects; None allows everything that is not protected.
        own: whether a subject is one that the route itself reads.
    """

    allow: Sequence[str] | None = None
    own: Callable[[str], bool] | None = None

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Rights:
        """Return the rights by patterns; without any, everything that is not protected is allowed.

        Raises:
            ConfigError: a pattern is no subject.
        """
        mistakes = []
        for number, pattern in enumerate(patterns):
            try:
                check_pattern(pattern)
            except ValueError as problem:
                mistakes.append(Mistake(f"allow[{number}]", str(problem)))
        if mistakes:
            raise ConfigError(mistakes, what="destinations")
        return cls(tuple(patterns) or None)

    def refusal(self, subject: str) -> str | None:
        """Return the reason that a subject is not allowed; None if it is allowed.

        >>> Rights().refusal("$JS.API.STREAM.DELETE.ORDERS")
        "is not allowed: subjects that begin with '$' are the server's own"
        >>> Rights(("deliver.>",)).refusal("orders.new")
        'is not allowed: only deliver.> is'
        """
        protected = self._protection(subject)
        patterns = self.allow or ()
        if protected is not None:
            named = any(pattern[0] not in "*>" and matches(pattern, subject) for pattern in patterns)
            return None if named else f"is not allowed: {protected}"
        if self.allow is None or any(matches(pattern, subject) for pattern in patterns):
            return None
        if not patterns:
            return "is not allowed: nothing is"
        return f"is not allowed: only {', '.join(patterns)} {'is' if len(patterns) == 1 else 'are'}"

    def _protection(self, subject: str) -> str | None:
        if subject.startswith("$"):
            return "subjects that begin with '$' are the server's own"
        if subject.startswith("_INBOX."):
            return "it is an inbox, where answers to requests go"
        if self.own is not None and self.own(subject):
            return "the route reads it, and would read its own messages again"
        return None

    def refusals_of(self, subscription: Subscription | PlainLine) -> Iterator[str]:
        """Yield the refusal of each destination of a subscription that is not allowed, with its path.

        A destination with a sink's name is checked as a whole, and so is the subject behind the name: a pattern for
        it has the name too (``archive:deliver.>``).
        """
        for number, destination in enumerate(subscription.destinations):
            refusal = self.refusal(destination) or self._refusal_behind_name(destination)
            if refusal is not None:
                yield f"route.destinations[{number}]: {describe_destination(destination)} {refusal}"

    def _refusal_behind_name(self, destination: str) -> str | None:
        protected = self._protection(destination.partition(":")[2])
        if protected is None:
            return None
        named = (pattern for pattern in self.allow or () if pattern.partition(":")[2][:1] not in ("", "*", ">"))
        if any(matches(pattern, destination) for pattern in named):
            return None
        return f"is not allowed: {protected}"
