"""An expression of CEL (Common Expression Language), by Google's own library ``cel-expr-python``.

The language has no loops but those over lists and maps, and regular expressions in linear time. The library stops at
10,000 iterations and 32 levels of an expression; what one of them may cost is bounded by the record's size beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Final

from turnout.errors import MissingExtraError, RecordError
from turnout.expressions.inputs import MAX_WORK, Inputs
from turnout.expressions.references import References, references
from turnout.records import Moment

VARIABLES: Final = ("value", "key", "headers", "topic", "partition", "offset", "timestamp")
"""Names that expressions see: ``timestamp`` is milliseconds since 1970, ``headers`` a map of texts."""

MAX_TEXT: Final = 4096
"""Characters of an expression."""

_CLEARER: Final = {
    "Applying SELECT to non-message type": "it names a field of something that has none",
    "cannot convert string to int": "the text is no whole number of 64 bits",
    "Iteration budget exceeded": "it takes more than 10,000 iterations",
}
"""Clearer words for messages of the library."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ExpressionError(ValueError):
    """Raised when a text is no expression of CEL."""


@dataclass(frozen=True)
class Expression:
    """A compiled expression; it is compiled once in each process, when it is used first.

    >>> gross = Expression("value.net * 1.24")
    >>> inputs = Inputs()
    >>> inputs.add("value", {"net": 50.0})
    >>> gross.evaluate(inputs), gross.references.paths
    (62.0, frozenset({('value', 'net')}))
    """

    text: str

    @cached_property
    def references(self) -> References:
        """The parts of the record that it names."""
        return references(self.text, frozenset(VARIABLES))

    @property
    def type(self) -> str:
        """The type that its values have by CEL's rules: ``INT``, ``STRING``, ``LIST<STRING>``; ``DYN`` if any."""
        return str(_program(self.text).return_type().name())

    def check(self) -> None:
        """Compile it.

        Raises:
            ExpressionError: it is no expression of CEL, or names something that there is not.
            MissingExtraError: ``cel-expr-python`` is not installed.
        """
        if len(self.text) > MAX_TEXT:
            raise ExpressionError(f"an expression of {len(self.text)} characters, at most {MAX_TEXT} are taken")
        _program(self.text)
        if self.references.computed_pattern:
            raise ExpressionError("expected the regular expression of x.matches(…) as a text, found something computed")

    def evaluate(self, inputs: Inputs) -> Any:
        """Return the value for a record, as turnout holds it: `Moment` for a time, objects with sorted names.

        Raises:
            RecordError: it has none for this record, or would take too much.
        """
        references = self.references
        iterations = references.iterations(inputs.longest_list)
        work = (inputs.longest_text * references.growth + inputs.size) * iterations
        if work > MAX_WORK:
            raise RecordError(
                f"the expression would take too much: the record has a list or object of {inputs.longest_list:,} items "
                f"and a text of {inputs.longest_text:,} characters, and a size of {inputs.size:,}"
            )
        try:
            found = _program(self.text).eval(data=inputs.values)
            kind, value = found.type().name(), found.plain_value()
        except RuntimeError as error:
            raise RecordError(_reason(error)) from None
        if kind == "ERROR":
            raise RecordError(_reason(value))
        return _as_plain(value)


def _as_plain(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if kind is list:
        return [_as_plain(item) for item in value]
    if kind is dict:
        # The library gives the entries in an order of their hashes.
        return {name: _as_plain(item) for name, item in sorted(value.items(), key=lambda entry: str(entry[0]))}
    if kind is bytearray or kind is bytes:
        return bytes(value)
    if kind is datetime:
        return Moment((value - _EPOCH) // timedelta(milliseconds=1))
    if kind is timedelta:
        raise RecordError("the value is a duration, which no record holds: make a text of it, string(…)")
    raise RecordError(f"the value is of no type that a record holds: {kind.__name__}")


def _reason(error: object) -> str:
    """Return the library's message without its picture of the place."""
    first = str(error).partition("\n")[0]
    code, colon, rest = first.partition(": ")
    message = rest if colon and code.isupper() else first
    message = message.removeprefix("ERROR: <input>:").partition(" [")[0].partition(" expecting {")[0]
    return _CLEARER.get(message, message)


@lru_cache(maxsize=1024)
def _program(text: str) -> Any:
    try:
        return _environment().compile(text)
    except RuntimeError as error:
        raise ExpressionError(f"not an expression of CEL: {_reason(error)}") from None


@lru_cache(maxsize=1)
def _environment() -> Any:
    try:
        from cel_expr_python import cel
    except ModuleNotFoundError as missing:
        raise MissingExtraError("cel", "cel_expr_python") from missing
    kinds = cel.Type
    types = dict.fromkeys(VARIABLES, kinds.DYN)
    types |= {"topic": kinds.STRING, "partition": kinds.INT, "offset": kinds.INT, "timestamp": kinds.INT}
    types["headers"] = kinds.Map(kinds.STRING, kinds.STRING)
    return cel.NewEnv(variables=types)
