"""The mapping functions of ADR-30 as one table: name, spelling, arguments, and implementation.

A *draw* has 53 random bits. The choice of a weighted destination (`mapping`) reads its leading part; each
``random(n)`` of a destination reads a hash of all its bits and of the function's token index, so that the choices do
not follow one another. The hash is XXH64 as Spark's ``xxhash64`` computes it for longs: the same draw gives the same
subject in both.

A destination's token becomes a `Call` here (`parse_call`), and a `Call` on a token becomes text (`cut`).
The order of the table is the server's: it searches a token for each function in turn and does not anchor
the search, so ``{{left(1,1)}}{{right(1,1)}}`` is a ``right``.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from xxhash import xxh64_intdigest

from turnout.subjects.errors import DestinationError, Reason
from turnout.subjects.pattern import decode, encode

OFFSET = 2166136261
PRIME = 16777619

_MASK = 0xFFFFFFFF


def fnv1a(data: bytes) -> int:
    """Return the hash of *data*, from 0 to 2**32 - 1."""
    value = OFFSET
    for byte in data:
        value = ((value ^ byte) * PRIME) & _MASK
    return value


BITS = 53
"""Bits of a draw: all that a float holds."""

_SPARK_SEED = 42


def new_draw() -> float:
    """Return a draw from the process's random numbers."""
    return random.random()  # noqa: S311 - a choice of destination is no secret


def check_draw(draw: float) -> float:
    """Return the draw itself.

    Raises:
        ValueError: when it is not in [0, 1).
    """
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"a draw is a number from 0 up to, not including, 1; found {draw!r}")
    return draw


def percent(draw: float) -> int:
    """Return the number from 0 to 99 that the weights are compared with."""
    return int(draw * 100)


def random_below(draw: float | None, token_index: int, number: int) -> int:
    """Return the value of ``random(number)`` at token *token_index* of a destination; 0 where *number* is 0.

    A negative number counts as its absolute value, as in the server. Without a draw every call makes a draw of its own.

    Raises:
        ValueError: when the draw is not in [0, 1).
    """
    bits = 0 if draw is None else int(check_draw(draw) * 2**BITS)
    if number == 0:
        return 0
    if draw is None:
        return int(new_draw() * abs(number))
    value = _hash_long(token_index, _hash_long(bits, _SPARK_SEED))
    # Signed, as a long is: the remainder must be the same in Spark.
    return (value - 2**64 if value >= 2**63 else value) % abs(number)


def _hash_long(value: int, seed: int) -> int:
    """XXH64 of the 8 bytes of one long."""
    return xxh64_intdigest(value.to_bytes(8, "little"), seed)


_BLANK = r"[\t\n\f\r ]*"
_COMMA = re.compile("," + _BLANK)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 1000
"""More is no number; int() raises for some thousands."""
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Call:
    """Placeholder of a destination.

    Attributes:
        function: the name of its row in `FUNCTIONS`.
        wildcards: wildcards of the source that it reads, from 1. The server lets 0 and less pass and reads
            the first token of the subject.
        number: buckets, position, size or length; None for ``wildcard`` and ``split``.
        delimiter: that of ``split``; None for the others.
    """

    function: str
    wildcards: tuple[int, ...] = ()
    number: int | None = None
    delimiter: str | None = None


class _ArgumentError(Exception):
    """Carries the reason out of an argument parser; `parse_call` adds the position."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def _integer(text: str) -> int:
    """Return a decimal integer as Go's Atoi reads it, blanks around it trimmed."""
    bare = text.strip(" ")
    value = int(bare) if len(bare) < _MAX_DIGITS and _INTEGER.fullmatch(bare) else None
    if value is None or not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise _ArgumentError(Reason.INVALID_ARGUMENT, f"{text!r} is not a number")
    return value


def _buckets(text: str) -> int:
    """Return the number of ``partition`` or ``random``: limited above, wrapped to 32 bits below, as in the server."""
    value = _integer(text)
    if value > _INT32_MAX:
        raise _ArgumentError(Reason.INVALID_ARGUMENT, f"{value} is more than {_INT32_MAX}")
    return (value + 2**31) % 2**32 - 2**31


def _count(arguments: list[str], expected: int) -> None:
    if len(arguments) < expected:
        raise _ArgumentError(Reason.NOT_ENOUGH_ARGUMENTS)
    if len(arguments) > expected:
        raise _ArgumentError(Reason.TOO_MANY_ARGUMENTS)


def _wildcard_arguments(name: str, arguments: list[str]) -> Call:
    if arguments == [""]:
        raise _ArgumentError(Reason.NOT_ENOUGH_ARGUMENTS)
    _count(arguments, 1)
    return Call(name, (_integer(arguments[0]),))


def _partition_arguments(name: str, arguments: list[str]) -> Call:
    number = _buckets(arguments[0])
    return Call(name, tuple(_integer(argument) for argument in arguments[1:]), number)


def _random_arguments(name: str, arguments: list[str]) -> Call:
    if len(arguments) != 1:
        raise _ArgumentError(Reason.NOT_ENOUGH_ARGUMENTS, "exactly one")
    return Call(name, (), _buckets(arguments[0]))


def _index_and_number(name: str, arguments: list[str]) -> Call:
    _count(arguments, 2)
    index, number = _integer(arguments[0]), _integer(arguments[1])
    if not -_INT32_MAX - 1 <= number <= _INT32_MAX:
        raise _ArgumentError(Reason.INVALID_ARGUMENT, f"{number} does not fit 32 bits")
    return Call(name, (index,), number)


def _split_arguments(name: str, arguments: list[str]) -> Call:
    _count(arguments, 2)
    index = _integer(arguments[0])
    if " " in arguments[1]:
        raise _ArgumentError(Reason.INVALID_ARGUMENT, "a blank in the delimiter")
    return Call(name, (index,), None, arguments[1])


def _split_from_left(token: str, position: int) -> str:
    return f"{token[:position]}.{token[position:]}"


def _split_from_right(token: str, position: int) -> str:
    return f"{token[:-position]}.{token[-position:]}"


def _slice_from_left(token: str, size: int) -> str:
    return ".".join([token[start : start + size] for start in range(0, len(token), size)])


def _slice_from_right(token: str, size: int) -> str:
    head = len(token) % size
    pieces = [token[start : start + size] for start in range(head, len(token), size)]
    return ".".join([token[:head], *pieces] if head else pieces)


def _left_part(token: str, length: int) -> str:
    return token[:length]


def _right(token: str, length: int) -> str:
    return token[-length:]


@dataclass(frozen=True, slots=True)
class MappingFunction:
    """Row of the table: spelling and effect of a function.

    Attributes:
        name: in lower case.
        spelling: a regular expression for the name; either case at the start of each word.
        arguments: from the texts between the commas to a `Call`.
        apply: cuts a token that is longer than the number; None where the function does not cut.
        doc: one line for people; n counts bytes.
    """

    name: str
    spelling: str
    arguments: Callable[[str, list[str]], Call]
    apply: Callable[[str, int], str] | None
    doc: str

    @property
    def opening(self) -> re.Pattern[str]:
        """Finds the function in a token, up to its arguments."""
        return re.compile(rf"{{{{{_BLANK}{self.spelling}{_BLANK}\(")


FUNCTIONS: tuple[MappingFunction, ...] = (
    MappingFunction("wildcard", "[wW]ildcard", _wildcard_arguments, None, "the token of wildcard i"),
    MappingFunction(
        "partition", "[pP]artition", _partition_arguments, None, "FNV-1a of the named tokens or the subject, mod n"
    ),
    MappingFunction(
        "splitfromleft", "[sS]plit[fF]rom[lL]eft", _index_and_number, _split_from_left, "cut after the first n"
    ),
    MappingFunction(
        "splitfromright", "[sS]plit[fF]rom[rR]ight", _index_and_number, _split_from_right, "cut before the last n"
    ),
    MappingFunction(
        "slicefromleft", "[sS]lice[fF]rom[lL]eft", _index_and_number, _slice_from_left, "every n, the rest last"
    ),
    MappingFunction(
        "slicefromright", "[sS]lice[fF]rom[rR]ight", _index_and_number, _slice_from_right, "every n, the rest first"
    ),
    MappingFunction("right", "[rR]ight", _index_and_number, _right, "the last n"),
    MappingFunction("left", "[lL]eft", _index_and_number, _left_part, "the first n"),
    MappingFunction("split", "[sS]plit", _split_arguments, None, "cut at each delimiter, empty pieces dropped"),
    MappingFunction("random", "[rR]andom", _random_arguments, None, "a number from 0 to n - 1"),
)

# They are resolved once, in the mappings of an account; nats-server has them from 2.15.3 on. Another account's hash is
# for imports and leaf nodes, and never for mappings.
_ACCOUNT_FUNCTIONS = (
    ("account-hash-import", re.compile(rf"{{{{{_BLANK}[aA]ccount-[hH]ash-[iI]mport{_BLANK}\(")),
    ("account-hash-leaf-remote", re.compile(rf"{{{{{_BLANK}[aA]ccount-[hH]ash-[lL]eaf-[rR]emote{_BLANK}\(")),
    ("account-hash", re.compile(rf"{{{{{_BLANK}[aA]ccount-[hH]ash{_BLANK}\(")),
)
_HASH_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_LENGTH = 8

_OPENINGS = tuple((function, function.opening) for function in FUNCTIONS)
_ARGUMENTS = re.compile(rf"(.*)\){_BLANK}}}}}")
_CUTS = {function.name: function.apply for function in FUNCTIONS if function.apply is not None}


def is_braced(token: str) -> bool:
    """Return True if a token has the outer form of a function, ``{{`` and ``}}`` around a text."""
    return len(encode(token)) > 4 and token.startswith("{{") and token.endswith("}}")


def is_call(token: str) -> bool:
    """Return True if a braced token names a known function; its arguments are not checked."""
    openings = (*(opening for _, opening in _OPENINGS), *(opening for _, opening in _ACCOUNT_FUNCTIONS))
    return is_braced(token) and any(_arguments(opening, token) is not None for opening in openings)


def account_hash(account: str) -> str:
    """Return the token that stands for an account: the first bytes of the SHA-256 of its name, as letters and digits.

    >>> account_hash("SHOP")
    'UUssF3Ay'
    """
    digest = hashlib.sha256(encode(account)).digest()[:_HASH_LENGTH]
    return "".join(_HASH_DIGITS[byte % len(_HASH_DIGITS)] for byte in digest)


def with_account(subject: str, account: str) -> str:
    """Return a subject or destination with the hash of its account in place of each ``{{account-hash()}}``.

    >>> with_account("x.{{account-hash()}}.$1", "SHOP")
    'x.UUssF3Ay.$1'
    """
    if "{{" not in subject:
        return subject
    return ".".join(
        account_hash(account) if _account_function(token) == ("account-hash", "") else token
        for token in subject.split(".")
    )


def _account_function(token: str) -> tuple[str, str] | None:
    """Return the name and the arguments of an account's function; None for another token."""
    if not is_braced(token):
        return None
    for name, opening in _ACCOUNT_FUNCTIONS:
        arguments = _arguments(opening, token)
        if arguments is not None:
            return name, arguments.strip()
    return None


def _arguments(opening: re.Pattern[str], token: str) -> str | None:
    """Return the arguments from the first opening bracket on; None if it is not closed in that line.

    One expression for both would look for the closing of every opening, in a time that is the square of the length.
    """
    opened = opening.search(token)
    closed = _ARGUMENTS.match(token, opened.end()) if opened else None
    return closed[1] if closed else None


def parse_call(token: str, *, destination: str | None = None, position: int = 0) -> Call | None:
    """Return the placeholder that a destination's token is, or None where it is a literal.

    Args:
        token: one token.
        destination: the whole destination, for the error.
        position: position of the token in it, for the error.

    Raises:
        DestinationError: its reason is the fault of the function or its arguments.
    """
    if token.startswith("$") and len(token) < _MAX_DIGITS and _INTEGER.fullmatch(token, 1):
        index = int(token[1:])
        return Call("wildcard", (index,)) if -_INT64_MAX - 1 <= index <= _INT64_MAX else None
    if not is_braced(token):
        return None
    text = token if destination is None else destination
    of_account = _account_function(token)
    if of_account is not None:
        reason = Reason.TOO_MANY_ARGUMENTS if of_account[1] else Reason.NOT_AVAILABLE
        raise DestinationError(reason, text, token, position)
    for function, opening in _OPENINGS:
        arguments = _arguments(opening, token)
        if arguments is not None:
            try:
                return function.arguments(function.name, _COMMA.split(arguments))
            except _ArgumentError as failure:
                raise DestinationError(failure.reason, text, token, position, detail=failure.detail) from None
    raise DestinationError(Reason.UNKNOWN_FUNCTION, text, token, position)


def cut(call: Call) -> Callable[[str], str]:
    """Return the function of one token that a cutting *call* (split, slice, left, right) is.

    Lengths and positions count bytes, as in the server, so a character of several bytes can be cut through;
    the pieces then hold surrogate escapes.
    """
    if call.function == "split":
        return _splitter(call.delimiter or "")
    apply = _CUTS[call.function]
    number = call.number or 0

    def run(token: str) -> str:
        if number <= 0:
            return token
        if token.isascii():
            return apply(token, number) if number < len(token) else token
        data = encode(token)
        if number >= len(data):
            return token
        # One character per byte, so that the same functions serve; dots they add are dots in both.
        return decode(apply(data.decode("latin-1"), number).encode("latin-1"))

    return run


def _splitter(delimiter: str) -> Callable[[str], str]:
    def run(token: str) -> str:
        # An empty delimiter cuts between characters; a byte that is not UTF-8 counts as one.
        pieces = token.split(delimiter) if delimiter else list(token)
        parts: list[str] = []
        last = len(pieces) - 1
        for index, piece in enumerate(pieces):
            parts.append(piece)
            # The server's rule, with its quirk: two delimiters at the start leave one empty token.
            if index < last and pieces[index + 1] and not (index == 0 and not piece):
                parts.append(".")
        return "".join(parts)

    return run
