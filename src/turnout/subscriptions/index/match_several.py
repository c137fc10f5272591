"""Matching of one message with several values of a key: a leaf is true if it is for one of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import cast

from turnout.conditions.evaluate import parsed_number
from turnout.multivalued import Metadata, Multivalued, values_at
from turnout.subscriptions.index.arrays import JUST_ONE, LIMITS
from turnout.subscriptions.index.match_one import Single
from turnout.subscriptions.index.number_table import Range
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.single_message import Literals, Message, SingleTexts


class SeveralMessage(Message):
    """Message with its cached results.

    Attributes:
        several: its values that are numbers, by key, in ascending order.
    """

    __slots__ = ("several",)

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(cast("SingleTexts", metadata))
        self.several: dict[int, list[float]] = {}


class SeveralSingle(Single):
    """Matcher of single messages with several values; `Single` takes less time for those without. Thread-safe."""

    def matched_several(self, metadata: Multivalued) -> list[int]:
        """Return the segment's subscriptions that the message matches, each once."""
        self._forget()
        message = SeveralMessage(metadata)
        return list(dict.fromkeys(self._verified(self._found(message), message)))

    def _found(self, message: Message) -> list[Range]:
        entries_at, has_ways = self._entries_at, self._segment.has_ways
        ranges = self._always.copy()
        for key in self._probed.keys() & message.metadata.keys():
            for fact, *_ in self._probed[key]:
                literals = self._literals_of(fact, message)
                ranges += [(entries_at[literal], entries_at[literal + 1]) for literal in literals]
                if has_ways and literals:
                    self._add_paired(literals, message, ranges)
        return ranges

    def _literals_of(self, fact: int, message: Message) -> Literals:
        literals = message.literals.get(fact)
        if literals is None:
            key = self._key_of_fact[fact]
            if fact in self._nodes:
                numbers = self._numbers(key, message)
                literals = self._nodes[fact].of_several(numbers) if numbers else ()
            else:
                values = self._values(key, message)
                one_by_one = [self._literals_of_value(fact, value, message) for value in values]
                literals = frozenset().union(*one_by_one)
            message.literals[fact] = literals
        return literals

    def _values(self, key: int, message: Message) -> Sequence[str]:
        """Return the values of a key."""
        return values_at(cast("Metadata", message.metadata), self._keys[key])

    def _literals_of_value(self, fact: int, value: str, message: Message) -> Literals:
        """Return the literals that a fact makes of one value."""
        _, make, literal_of = self._readers[fact]
        if literal_of is None:
            return (self._hits[fact].get(value) or self._hit(fact, value, message))[0]
        literal = literal_of(value if make is None else make(value))
        return (literal,) if literal else ()

    def _holds(self, kind: int, a: int, b: int, message: Message) -> bool:
        if kind == LIMITS:
            return self._is_within(self._low[b], self._high[b], self._numbers(a, message))
        if kind == JUST_ONE:
            return sum(self._is_member(b << 32 | literal) for literal in self._literals_of(a, message)) == 1
        return super()._holds(kind, a, b, message)

    def _passes(self, key: int, test: int, message: Message) -> bool:
        if self._group_of[test] >= 0:
            return super()._passes(key, test, message)
        values = self._values(key, message)
        return any(self._tests.passes(key, test, value) for value in values)

    def _passed(self, key: int, group: int, message: Message) -> Literals:
        values = self._values(key, message)
        return frozenset().union(*(self._tests.passed(group, value) for value in values))

    @staticmethod
    def _is_within(low: float, high: float, numbers: list[float]) -> bool:
        """Return True if each bound holds for one of the numbers; equal limits are a number to be equal to."""
        if not numbers:
            return False
        if low < high:
            return low <= numbers[-1] and numbers[0] <= high
        index = bisect_left(numbers, low)
        return index < len(numbers) and numbers[index] == low

    def _numbers(self, key: int, message: Message) -> list[float]:
        """Return the values of a key that are numbers, in ascending order."""
        assert isinstance(message, SeveralMessage)
        numbers = message.several.get(key)
        if numbers is None:
            values = self._values(key, message)
            parsed = map(parsed_number, values)
            numbers = message.several[key] = sorted({number for number in parsed if number is not None})
        return numbers


def several_of(segment: Segment) -> SeveralSingle:
    """Return the segment's matcher of messages with several values, made when it is first needed."""
    if segment.several is None:
        segment.several = SeveralSingle(segment)
    return segment.several
