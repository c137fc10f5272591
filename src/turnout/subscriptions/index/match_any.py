"""Matching of one message with a segment whose leaves test all its values: these are searched together.

Every key has one value; only the key that stands for all keys has several. All else is as in `match_one`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from turnout.conditions.pattern import fold
from turnout.multivalued import ANY_KEY, MAX_VALUES, Metadata, Multivalued
from turnout.subscriptions.index.arrays import LIMITS
from turnout.subscriptions.index.match_one import MOST_CANDIDATES, Single
from turnout.subscriptions.index.match_several import SeveralMessage, SeveralSingle
from turnout.subscriptions.index.number_table import Range
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.single_literals import Probe
from turnout.subscriptions.index.single_message import Literals, Message, SingleTexts


class _AnyMessage(SeveralMessage):
    """A message, and its different values in their order."""

    __slots__ = ("values",)

    def __init__(self, metadata: SingleTexts) -> None:
        super().__init__(metadata)
        self.values = tuple(dict.fromkeys(metadata.values()))


class AnySingle(SeveralSingle):
    """Matcher of single messages without several values of a key, for segments with `ANY_KEY`. Thread-safe."""

    def __init__(self, segment: Segment) -> None:
        self._any = segment.head.keys.index(ANY_KEY)
        super().__init__(segment)
        self._searched = [fact for fact in segment.scanned if self._key_of_fact[fact] == self._any]
        self._folding = [fact for fact in self._searched if self._is_folded[fact]]
        self._reading = [fact for fact in self._searched if not self._is_folded[fact]]
        probed = [fact for fact in segment.head.probed if self._key_of_fact[fact] == self._any]
        self._others = [fact for fact in probed if fact not in segment.scanned]
        self._reads_any = True

    def _probes(self) -> dict[str, tuple[Probe, ...]]:
        # A metadata key of this name is a value like any other.
        return {key: probes for key, probes in super()._probes().items() if key != ANY_KEY}

    def takes(self, metadata: Metadata) -> bool:
        """Return False for a message with several values of a key, or more than are supported."""
        return not isinstance(metadata, Multivalued) and len(metadata) <= MAX_VALUES

    def matched(self, metadata: SingleTexts, most: int = MOST_CANDIDATES) -> list[int]:  # noqa: ARG002 - a batch cannot
        """Return the segment's subscriptions that the message matches, each once, however many entries it finds."""
        self._forget()
        message = _AnyMessage(metadata)
        return list(dict.fromkeys(self._verified(self._found(message), message)))

    def _found(self, message: Message) -> list[Range]:
        return super(SeveralSingle, self)._found(message)

    def _read(self, unread: Sequence[tuple[int, str]], message: Message, ranges: list[Range], first: list[int]) -> None:
        super()._read(unread, message, ranges, first)
        for fact in (*self._searched, *self._others):
            literals, entries = self._with_entries(tuple(self._literals_of(fact, message)))
            ranges += entries
            first += literals

    def _search(self, unread: Sequence[tuple[int, str]], message: Message) -> dict[int, set[int]]:
        values = cast("_AnyMessage", message).values
        is_folded, folding = self._is_folded, self._folding
        folded = {value: fold(value) for value in values} if folding else {}
        asked = {value: folding.copy() for value in folded.values()}
        if self._reading:
            for value in values:
                asked.setdefault(value, []).extend(self._reading)
        for fact, value in unread:
            asked.setdefault((folded.get(value) or fold(value)) if is_folded[fact] else value, []).append(fact)
        found = self._scan.find(asked) if asked else {}
        message.literals |= {fact: frozenset(found.get(fact, ())) for fact in self._searched}
        return found

    def _literals_of(self, fact: int, message: Message) -> Literals:
        if self._key_of_fact[fact] != self._any:
            return Single._literals_of(self, fact, message)  # noqa: SLF001 - quicker than two calls of super
        return super()._literals_of(fact, message)

    def _values(self, key: int, message: Message) -> Sequence[str]:  # noqa: ARG002 - always that of all
        return cast("_AnyMessage", message).values

    def _holds(self, kind: int, a: int, b: int, message: Message) -> bool:
        if kind == LIMITS and a != self._any:
            return Single._holds(self, kind, a, b, message)  # noqa: SLF001 - likewise
        return super()._holds(kind, a, b, message)

    def _passes(self, key: int, test: int, message: Message) -> bool:
        if key != self._any:
            return super(SeveralSingle, self)._passes(key, test, message)
        return super()._passes(key, test, message)

    def _passed(self, key: int, group: int, message: Message) -> Literals:
        if key != self._any:
            return super(SeveralSingle, self)._passed(key, group, message)
        return super()._passed(key, group, message)


def any_of(segment: Segment) -> AnySingle | None:
    """Return the matcher, made when it is first needed; None unless `ANY_KEY` is the segment's only special key."""
    if segment.special_keys != (ANY_KEY,):
        return None
    if segment.any is None:
        segment.any = AnySingle(segment)
    return segment.any
