"""Permissions to publish: the subjects that a server keeps for itself, and patterns of the permitted ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from turnout.errors import ConfigError, Mistake
from turnout.subjects.pattern import matches
from turnout.subjects.tokens import is_valid

_ANSWERS: Final = ("_INBOX.", "_R_.", "_GR_.")
"""Subjects of answers: of clients, of services of other accounts, of other clusters."""


def check_pattern(pattern: str) -> str:
    """Return a pattern of subjects as it was given.

    Raises:
        ValueError: it is no subject, with or without wildcards.
    """
    if not pattern or not is_valid(pattern):
        raise ValueError(f"expected subjects, wildcards allowed (deliver.>), found {pattern!r}")
    return pattern


@dataclass(frozen=True, slots=True)
class Rights:
    """Subjects that may be published on.

    The server's own subjects (``$JS.``, ``$SYS.``, ``$KV.``, all that begin with ``$``), inboxes and subjects that lead
    back to the source are reached only where a pattern names their first token: ``>`` does not open them.

    Attributes:
        allow: patterns of subjects; None allows everything that is not protected.
        own: whether a subject is one that the route itself reads.
        prefixes: the connection's own prefixes of API requests and of inboxes.
    """

    allow: Sequence[str] | None = None
    own: Callable[[str], bool] | None = None
    prefixes: Sequence[str] = ()

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
        protected = self.protection(subject)
        patterns = self.allow or ()
        if protected is not None:
            named = any(pattern[0] not in "*>" and matches(pattern, subject) for pattern in patterns)
            return None if named else f"is not allowed: {protected}"
        if self.allow is None or any(matches(pattern, subject) for pattern in patterns):
            return None
        if not patterns:
            return "is not allowed: nothing is"
        return f"is not allowed: only {', '.join(patterns)} {'is' if len(patterns) == 1 else 'are'}"

    def protection(self, subject: str) -> str | None:
        """Return the reason that a subject is protected; None if it is not."""
        if subject.startswith("$"):
            return "subjects that begin with '$' are the server's own"
        if subject.startswith(_ANSWERS):
            return "it is an inbox, where answers to requests go"
        for prefix in self.prefixes:
            if subject.startswith(f"{prefix}."):
                return f"subjects that begin with '{prefix}.' are the connection's own requests and answers"
        if self.own is not None and self.own(subject):
            return "the route reads it, and would read its own messages again"
        return None
