"""Errors of subjects, transforms and mapping tables.

::

    SubjectError                          .text .position
    ├── InvalidSubjectError               .token
    ├── NoMatchError (LookupError)        .source
    ├── DestinationError                  .token, a token of a destination
    ├── MappingEntryError                 .source .entry .cause, one source of a table
    ├── MappingTableError                 .errors .mistakes, everything wrong with one table
    └── ConfigSyntaxError                 .file .line, a server configuration that cannot be read

Every error has a ``reason``, the name that the tests' vectors and ``--json`` use for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from turnout.errors import MOST_MISTAKES, Mistake, SubjectError, shortened


class Reason(StrEnum):
    """Reason of an error: the rule that a subject, a destination or a mapping breaks."""

    BAD_SUBJECT = "bad_subject"
    NO_MATCH = "no_match"

    # of a destination
    INVALID_DESTINATION = "invalid_destination_subject"
    """An empty token, a blank, or a ``>`` before the end."""
    UNKNOWN_FUNCTION = "unknown_function"
    """The text between ``{{`` and ``}}`` is not a mapping function with its brackets."""
    NOT_ENOUGH_ARGUMENTS = "not_enough_args"
    """For ``random``: not exactly one."""
    TOO_MANY_ARGUMENTS = "too_many_args"
    NOT_AVAILABLE = "not_available"
    """A function of an account, such as ``account-hash()``, where no account is known."""
    INVALID_ARGUMENT = "invalid_arg"
    """An argument that is not a number, does not fit its range, or is a delimiter with a blank."""
    INDEX_OUT_OF_RANGE = "index_out_of_range"
    """A wildcard that the source does not have."""
    NOT_USING_ALL_WILDCARDS = "not_using_all_wildcards"
    """A strict (import) transform with fewer placeholders than its source has wildcards."""
    NOT_SUPPORTED_FOR_IMPORT = "not_supported_for_import"
    """A strict (import) transform with a function other than ``wildcard``."""

    # of an entry of a mapping table
    BAD_SOURCE = "bad_source"
    """The cause is an `InvalidSubjectError`."""
    NOT_AN_ENTRY = "not_an_entry"
    """A value that is neither a destination, nor an entry, nor a list of entries."""
    UNKNOWN_FIELD = "unknown_field"
    MISSING_DESTINATION = "missing_destination"
    """nats-server accepts this and then crashes on the first message (2.15.1), so we do not follow it."""
    MISSING_WEIGHT = "missing_weight"
    WEIGHT_TYPE = "weight_type"
    INVALID_WEIGHT = "invalid_weight"
    """A weight that is not an integer from 0 to 100 with at most one ``%`` behind it."""
    DUPLICATE_DESTINATION = "duplicate_destination"
    """A destination that a mapping names twice, in the same or in different clusters."""
    TOTAL_OVER_100 = "total_over_100"
    """Weights of one cluster (or of no cluster) that are more than 100 together."""
    BAD_DESTINATION = "bad_destination"
    """A destination that cannot be used with its source; the cause is the transform's error."""

    CONFIG_SYNTAX = "config_syntax"


_PROBLEMS: Final[Mapping[Reason, str]] = {
    Reason.INVALID_DESTINATION: "invalid token",
    Reason.UNKNOWN_FUNCTION: "unknown function",
    Reason.NOT_ENOUGH_ARGUMENTS: "not enough arguments",
    Reason.TOO_MANY_ARGUMENTS: "too many arguments",
    Reason.NOT_AVAILABLE: "there is no account here for this function",
    Reason.INVALID_ARGUMENT: "invalid argument",
    Reason.INDEX_OUT_OF_RANGE: "wildcard index out of range",
    Reason.NOT_USING_ALL_WILDCARDS: "not every wildcard of the source is used",
    Reason.NOT_SUPPORTED_FOR_IMPORT: "only wildcard(n) or $n is allowed in an import",
}
"""The words for each reason of a destination."""


class InvalidSubjectError(SubjectError):
    """Raised when a subject or a filter breaks the rules for tokens; the message names rule and position.

    Attributes:
        token: the token that breaks the rule.
    """

    reason = Reason.BAD_SUBJECT

    def __init__(self, problem: str, *, text: str, position: int, token: str) -> None:
        super().__init__(f"invalid subject {text!r}: {problem} at position {position}", text=text, position=position)
        self.token = token


class NoMatchError(SubjectError, LookupError):
    """Raised when a transform is applied to a subject that its source does not match.

    Attributes:
        source: the filter that did not match.

    >>> from turnout.subjects import SubjectTransform
    >>> SubjectTransform.parse("orders.*", "eu.orders.$1").apply("stock.17")
    Traceback (most recent call last):
        ...
    turnout.subjects.errors.NoMatchError: the subject 'stock.17' does not match 'orders.*'
    """

    reason = Reason.NO_MATCH

    def __init__(self, subject: str, source: str) -> None:
        super().__init__(f"the subject {subject!r} does not match {source!r}", text=subject)
        self.source = source


class DestinationError(SubjectError):
    """Raised when a token of a destination is invalid.

    Attributes:
        reason: the rule that it breaks.
        token: the offending token, as it was written.
    """

    def __init__(self, reason: Reason, destination: str, token: str, position: int, *, detail: str = "") -> None:
        super().__init__(
            f"invalid destination {destination!r}: {_PROBLEMS[reason]} in {token!r} at position {position}"
            + (f" ({detail})" if detail else ""),
            text=destination,
            position=position,
        )
        self.reason = reason
        self.token = token


class MappingEntryError(SubjectError):
    """Raised when the mapping of a source is invalid.

    Attributes:
        reason: the rule that it breaks.
        source: the source subject of the mapping.
        entry: index of its entry, from 0; None if it is the mapping as a whole.
        cause: the fault of its source or its destination alone, with the token and its position.
    """

    def __init__(
        self,
        reason: Reason,
        problem: str,
        *,
        source: str,
        entry: int | None = None,
        text: str | None = None,
        cause: SubjectError | None = None,
    ) -> None:
        super().__init__(
            f"mapping of {source!r}: {problem}",
            text=cause.text if cause else source if text is None else text,
            position=cause.position if cause else None,
        )
        self.reason = reason
        self.problem = problem
        self.source = source
        self.entry = entry
        self.cause = cause

    @property
    def path(self) -> str:
        """Path in the configuration, ``"foo"[1]``."""
        return f'"{self.source}"' + ("" if self.entry is None else f"[{self.entry}]")


class MappingTableError(SubjectError):
    """Raised when a table of mappings cannot be used; lists the faults of each of its sources.

    Attributes:
        errors: one error per wrong source, each with its reason.
        mistakes: the same as path and problem, for a larger report to include.

    >>> from turnout.subjects import MappingTable
    >>> MappingTable.from_config({"orders..new": "eu", "stock": [{"destination": "a", "weight": 200}]})
    Traceback (most recent call last):
        ...
    turnout.subjects.errors.MappingTableError: 2 mappings are wrong:
      mapping of 'orders..new': invalid subject 'orders..new': an empty token at position 7
      mapping of 'stock': a weight is an integer from 0 to 100, found 200
    """

    def __init__(self, errors: Iterable[MappingEntryError]) -> None:
        self.errors: tuple[MappingEntryError, ...] = tuple(errors)
        first = self.errors[0]
        count = len(self.errors)
        head = f"{count} mappings are wrong:\n  " if count > 1 else ""
        lines = [shortened(str(error)) for error in self.errors[:MOST_MISTAKES]]
        if count > MOST_MISTAKES:
            lines.append(f"and {count - MOST_MISTAKES:,} more")
        super().__init__(head + "\n  ".join(lines), text=first.text, position=first.position)

    @property
    def reason(self) -> str:
        """Reason of the first error; for a bad destination followed by the transform's reason."""
        first = self.errors[0]
        if first.reason is Reason.BAD_DESTINATION:
            return f"{first.reason}: {getattr(first.cause, 'reason', Reason.BAD_SUBJECT)}"
        return first.reason

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Mistakes of the table, as path and problem."""
        return tuple(Mistake(error.path, error.problem) for error in self.errors)


class ConfigSyntaxError(SubjectError):
    """Raised when a nats-server configuration file cannot be read.

    Attributes:
        file: the file, "" where text was given.
        line: the line of the trouble, from 1.
    """

    reason = Reason.CONFIG_SYNTAX

    def __init__(self, problem: str, *, file: str = "", line: int, text: str = "") -> None:
        super().__init__(f"{file or 'configuration'}, line {line}: {problem}", text=text)
        self.file = file
        self.line = line


_DEPRECATED: Final[Mapping[str, type[SubjectError]]] = {
    **dict.fromkeys(
        (
            "InvalidDestinationError",
            "UnknownFunctionError",
            "NotEnoughArgumentsError",
            "TooManyArgumentsError",
            "InvalidArgumentError",
            "IndexOutOfRangeError",
            "NotUsingAllWildcardsError",
            "NotSupportedForImportError",
        ),
        DestinationError,
    ),
    **dict.fromkeys(
        (
            "BadSourceError",
            "NotAnEntryError",
            "UnknownFieldError",
            "MissingDestinationError",
            "MissingWeightError",
            "WeightTypeError",
            "InvalidWeightError",
            "DuplicateDestinationError",
            "TotalOver100Error",
            "BadDestinationError",
        ),
        MappingEntryError,
    ),
}


def __getattr__(name: str) -> type[SubjectError]:
    """Return the class that replaces one of the last release, for one more release."""
    if name not in _DEPRECATED:
        raise AttributeError(name)
    replacement = _DEPRECATED[name]
    message = f"turnout.subjects.errors.{name} is now {replacement.__name__} with a reason"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return replacement
