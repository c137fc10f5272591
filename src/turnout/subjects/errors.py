"""Errors of subjects, transforms and mapping tables: one class per reason.

::

    SubjectError                          .text .position
    ├── InvalidSubjectError               bad_subject, .token
    ├── NoMatchError (LookupError)        no_match
    ├── DestinationError                  .token
    │   ├── InvalidDestinationError       invalid_destination_subject
    │   ├── UnknownFunctionError          unknown_function
    │   ├── NotEnoughArgumentsError       not_enough_args
    │   ├── TooManyArgumentsError         too_many_args
    │   ├── InvalidArgumentError          invalid_arg
    │   ├── IndexOutOfRangeError          index_out_of_range
    │   ├── NotUsingAllWildcardsError     not_using_all_wildcards
    │   └── NotSupportedForImportError    not_supported_for_import
    ├── MappingEntryError                 .source .entry .cause
    │   ├── BadSourceError                bad_source, .cause is an InvalidSubjectError
    │   ├── NotAnEntryError               not_an_entry
    │   ├── UnknownFieldError             unknown_field
    │   ├── MissingDestinationError       missing_destination
    │   ├── MissingWeightError            missing_weight
    │   ├── WeightTypeError               weight_type
    │   ├── InvalidWeightError            invalid_weight
    │   ├── DuplicateDestinationError     duplicate_destination
    │   ├── TotalOver100Error             total_over_100
    │   └── BadDestinationError           bad_destination, .cause is a DestinationError or InvalidSubjectError
    ├── MappingTableError                 .errors .mistakes: everything wrong with one table
    └── ConfigSyntaxError                 .file .line: a server configuration that cannot be read

Every class has a ``reason``, the name that the tests' vectors and ``--json`` use for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from turnout.errors import MOST_MISTAKES, Mistake, SubjectError, shortened


class InvalidSubjectError(SubjectError):
    """Raised when a subject or a filter breaks the rules for tokens; the message names rule and position.

    Attributes:
        token: the token that breaks the rule.
    """

    reason: ClassVar[str] = "bad_subject"

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

    reason: ClassVar[str] = "no_match"

    def __init__(self, subject: str, source: str) -> None:
        super().__init__(f"the subject {subject!r} does not match {source!r}", text=subject)
        self.source = source


class DestinationError(SubjectError):
    """Raised when a token of a destination is invalid.

    Attributes:
        token: the offending token, as it was written.
    """

    reason: ClassVar[str] = "bad_destination"
    problem: ClassVar[str] = "cannot be used"

    def __init__(self, destination: str, token: str, position: int, *, detail: str = "") -> None:
        super().__init__(
            f"invalid destination {destination!r}: {self.problem} in {token!r} at position {position}"
            + (f" ({detail})" if detail else ""),
            text=destination,
            position=position,
        )
        self.token = token


class InvalidDestinationError(DestinationError):
    """Raised when a mapping's destination has an empty token, a blank, or a ``>`` before the end."""

    reason: ClassVar[str] = "invalid_destination_subject"
    problem: ClassVar[str] = "invalid token"


class UnknownFunctionError(DestinationError):
    """Raised when the text between ``{{`` and ``}}`` is not a mapping function with its brackets."""

    reason: ClassVar[str] = "unknown_function"
    problem: ClassVar[str] = "unknown function"


class NotEnoughArgumentsError(DestinationError):
    """Raised when a mapping function has too few arguments (for ``random``: not exactly one)."""

    reason: ClassVar[str] = "not_enough_args"
    problem: ClassVar[str] = "not enough arguments"


class TooManyArgumentsError(DestinationError):
    """Raised when a mapping function has more arguments than it takes."""

    reason: ClassVar[str] = "too_many_args"
    problem: ClassVar[str] = "too many arguments"


class InvalidArgumentError(DestinationError):
    """Raised when an argument is not a number, does not fit its range, or is a delimiter with a blank."""

    reason: ClassVar[str] = "invalid_arg"
    problem: ClassVar[str] = "invalid argument"


class IndexOutOfRangeError(DestinationError):
    """Raised when a function refers to a wildcard that the source does not have."""

    reason: ClassVar[str] = "index_out_of_range"
    problem: ClassVar[str] = "wildcard index out of range"


class NotUsingAllWildcardsError(DestinationError):
    """Raised when a strict (import) transform has fewer placeholders than its source has wildcards."""

    reason: ClassVar[str] = "not_using_all_wildcards"
    problem: ClassVar[str] = "not every wildcard of the source is used"


class NotSupportedForImportError(DestinationError):
    """Raised when a strict (import) transform uses a function other than ``wildcard``."""

    reason: ClassVar[str] = "not_supported_for_import"
    problem: ClassVar[str] = "only wildcard(n) or $n is allowed in an import"


class MappingEntryError(SubjectError):
    """Raised when the mapping of a source is invalid.

    Attributes:
        source: the source subject of the mapping.
        entry: which of its entries, from 0; None if it is the mapping as a whole.
        cause: what is wrong with its source or its destination by itself, with the token and its position.
    """

    reason: ClassVar[str] = "bad_mapping"

    def __init__(
        self,
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
        self.problem = problem
        self.source = source
        self.entry = entry
        self.cause = cause

    @property
    def path(self) -> str:
        """The place in the configuration, ``"foo"[1]``."""
        return f'"{self.source}"' + ("" if self.entry is None else f"[{self.entry}]")


class BadSourceError(MappingEntryError):
    """Raised when the source of a mapping is not a valid subject."""

    reason: ClassVar[str] = "bad_source"


class NotAnEntryError(MappingEntryError):
    """Raised when a mapping's value is neither a destination, nor an entry, nor a list of entries."""

    reason: ClassVar[str] = "not_an_entry"


class UnknownFieldError(MappingEntryError):
    """Raised when an entry has a field other than destination (dest), weight and cluster."""

    reason: ClassVar[str] = "unknown_field"


class MissingDestinationError(MappingEntryError):
    """Raised when an entry has no destination, or an empty one.

    nats-server accepts this and then crashes on the first message (2.15.1), so we do not follow it.
    """

    reason: ClassVar[str] = "missing_destination"


class MissingWeightError(MappingEntryError):
    """Raised when an entry that is written as a map has no weight."""

    reason: ClassVar[str] = "missing_weight"


class WeightTypeError(MappingEntryError):
    """Raised when a weight is neither an integer nor a string."""

    reason: ClassVar[str] = "weight_type"


class InvalidWeightError(MappingEntryError):
    """Raised when a weight is not an integer from 0 to 100 with at most one ``%`` behind it."""

    reason: ClassVar[str] = "invalid_weight"


class DuplicateDestinationError(MappingEntryError):
    """Raised when a mapping names a destination twice, in the same or in different clusters."""

    reason: ClassVar[str] = "duplicate_destination"


class TotalOver100Error(MappingEntryError):
    """Raised when the weights of one cluster (or of no cluster) are more than 100 together."""

    reason: ClassVar[str] = "total_over_100"


class BadDestinationError(MappingEntryError):
    """Raised when a destination cannot be used with its source; the cause is the transform's error."""

    reason: ClassVar[str] = "bad_destination"


class MappingTableError(SubjectError):
    """Raised when a table of mappings cannot be used; lists what is wrong with each of its sources.

    Attributes:
        errors: one error per wrong source, each of the class of its reason.
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
        """The first error's reason; for a bad destination with the transform's own behind it."""
        first = self.errors[0]
        if isinstance(first, BadDestinationError):
            return f"{first.reason}: {getattr(first.cause, 'reason', 'bad_subject')}"
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

    reason: ClassVar[str] = "config_syntax"

    def __init__(self, problem: str, *, file: str = "", line: int, text: str = "") -> None:
        super().__init__(f"{file or 'configuration'}, line {line}: {problem}", text=text)
        self.file = file
        self.line = line
