"""Matching of one message with a segment: a few look-ups in plain Python, which start faster than numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.conditions.pattern import fold
from turnout.multivalued import Metadata
from turnout.subscriptions.index.buckets import TooManyError, viewed
from turnout.subscriptions.index.number_table import NO_RANGE, NumberTable, Range
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.single_checks import SingleChecks
from turnout.subscriptions.index.single_literals import LONG_VALUE, NO_HIT, OF_NODES, SCANNED
from turnout.subscriptions.index.single_message import Message, SingleTexts

_MOST_KNOWN = 1 << 15
"""Approximate number of cached values and pairs of literals; clearing them all takes milliseconds."""

MOST_CANDIDATES = 1_000
"""Maximum number of entries that are verified here by default: with more, `match_batch` takes less time."""

_MANY_ENTRIES = 48
"""Number of entries beyond which arrays take less time for their numeric checks than a loop."""


class Single(SingleChecks):
    """Matcher of single messages with a segment. Thread-safe."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        arrays, head = segment.arrays, segment.head
        self._is_folded = [kind.fold for _, kind in self._facts]
        self._reads_any = False
        self._overlapping = head.overlapping
        self._always = [(head.always, head.paired)] if head.always < head.paired else []
        self._ways_at, self._way_fact = viewed(arrays.ways_at), viewed(arrays.way_fact)
        self._in_pairs = NumberTable(arrays.pair_key, arrays.pair_start, head.paired)

    def _begin(self) -> None:
        super()._begin()
        self._pairs: dict[int, Range] = {}
        self._ways: dict[int, tuple[tuple[int, int], ...]] = {}

    def takes(self, metadata: Metadata) -> bool:  # noqa: ARG002 - some read it
        """Return False for a message that has to be seen by the keys of leaves first."""
        return not self._segment.special_keys

    def matched(self, metadata: SingleTexts, most: int = MOST_CANDIDATES) -> list[int]:
        """Return the segment's subscriptions that the message matches, each once.

        Raises:
            TooManyError: more entries than *most* have to be verified.
        """
        self._forget()
        message = Message(metadata)
        ranges = self._found(message)
        if not ranges:
            return []
        count = sum([end - begin for begin, end in ranges])
        if count > most:
            raise TooManyError
        verified = self._prefiltered if count > _MANY_ENTRIES and self._prefilter.is_useful else self._verified
        subscriptions = verified(ranges, message)
        return list(dict.fromkeys(subscriptions)) if self._overlapping else subscriptions

    def _found(self, message: Message) -> list[Range]:
        """Return the entries that the message finds."""
        probed, entries_at, ways_at = self._probed, self._entries_at, self._ways_at
        has_ways = self._segment.has_ways
        metadata, by_fact = message.metadata, message.literals
        ranges: list[Range] = self._always.copy()
        # Second literals last: most are known then. Texts are searched for in all values together.
        first: list[int] = []
        unread: list[tuple[int, str]] = []
        for key in metadata if len(metadata) < len(probed) else probed:
            value = metadata.get(key)
            if value is None:
                continue
            for fact, make, literal_of, way in probed.get(key, ()):
                if literal_of is not None:
                    literal = literal_of(value if make is None else make(value))
                    if not literal:
                        by_fact[fact] = ()
                        continue
                    by_fact[fact] = (literal,)
                    begin, end = entries_at[literal], entries_at[literal + 1]
                    if begin < end:
                        ranges.append((begin, end))
                    if has_ways and ways_at[literal] < ways_at[literal + 1]:
                        first.append(literal)
                else:
                    hit = self._hits[fact].get(value) if way != OF_NODES else self._node_hit(fact, message)
                    if hit is None:
                        if way == SCANNED:
                            unread.append((fact, value))
                            continue
                        hit = self._hit(fact, value, message)
                    by_fact[fact], entries = hit
                    ranges += entries
                    first += hit[0]
        if unread or self._reads_any:
            self._read(unread, message, ranges, first)
        if first and has_ways:
            self._add_paired(first, message, ranges)
        return ranges

    def _add_paired(self, literals: Iterable[int], message: Message, ranges: list[Range]) -> None:
        """Add the entries that are found by one of the literals and a second one."""
        known, by_fact = self._ways, message.literals
        pairs, likely = self._pairs, self._in_pairs.likely
        size = len(likely)
        for literal in literals:
            ways = known.get(literal)
            for key, fact in self._ways_of(literal) if ways is None else ways:
                seconds = by_fact.get(fact)
                if seconds is None:
                    seconds = self._literals_of(fact, message)
                for second in seconds:
                    pair = key | second
                    if likely[pair % size]:
                        paired = pairs.get(pair)
                        if paired is None:
                            paired = self._pair(pair)
                        if paired is not NO_RANGE:
                            ranges.append(paired)

    def _read(self, unread: Sequence[tuple[int, str]], message: Message, ranges: list[Range], first: list[int]) -> None:
        """Search for the texts of facts in their values, and add their literals."""
        hits, by_fact = self._hits, message.literals
        found = self._search(unread, message)
        self._known += len(unread)
        for fact, value in unread:
            own = found.get(fact)
            hit = NO_HIT if own is None else self._with_entries(tuple(own))
            by_fact[fact] = hit[0]
            if len(value) <= LONG_VALUE:
                hits[fact][value] = hit
            if own is not None:
                ranges += hit[1]
                first += own

    def _search(self, unread: Sequence[tuple[int, str]], message: Message) -> dict[int, set[int]]:  # noqa: ARG002
        """Return the literals of facts in the values that each is to be looked for in."""
        is_folded = self._is_folded
        asked: dict[str, list[int]] = {}
        for fact, value in unread:
            asked.setdefault(fold(value) if is_folded[fact] else value, []).append(fact)
        return self._scan.find(asked) if asked else {}

    def _ways_of(self, literal: int) -> tuple[tuple[int, int], ...]:
        """Return the ways of a literal, each as the upper half of the keys of its pairs, and its fact."""
        self._known += 1
        numbers = range(self._ways_at[literal], self._ways_at[literal + 1])
        ways = self._ways[literal] = tuple([(way << 32, self._way_fact[way]) for way in numbers])
        return ways

    def _pair(self, key: int) -> Range:
        """Return the entries that are found by a way and a second literal; `NO_RANGE` without any."""
        self._known += 1
        entries = self._pairs[key] = self._in_pairs.range_of(key)
        return entries

    def _forget(self) -> None:
        """Begin again if much is remembered."""
        if self._known > _MOST_KNOWN:
            self._begin()


def single_of(segment: Segment) -> Single:
    """Return the segment's matcher of single messages, made when it is first needed."""
    if segment.single is None:
        segment.single = Single(segment)
    return segment.single
