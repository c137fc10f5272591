"""Mapping of many subjects: sources and destinations as flat arrays for `turnout.loops.subjects`, and draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import xxhash
from numpy.typing import NDArray

from turnout.loops import loops_are_compiled
from turnout.loops import subjects as loops
from turnout.loops.subjects import LOST, UNMATCHED, hash_longs
from turnout.subjects.functions import BITS, check_draw, fnv1a
from turnout.subjects.mapping import MappingTable, Share
from turnout.subjects.pattern import SourceShape, encode, shape_of
from turnout.subjects.transform import TokenStep, buckets_of

if TYPE_CHECKING:
    from turnout.subjects.transform import SubjectTransform


Int64s = NDArray[np.int64]

_CODES = {
    "wildcard": loops.TOKEN,
    "left": loops.LEFT,
    "right": loops.RIGHT,
    "splitfromleft": loops.SPLIT_LEFT,
    "splitfromright": loops.SPLIT_RIGHT,
    "slicefromleft": loops.SLICE_LEFT,
    "slicefromright": loops.SLICE_RIGHT,
}
_MAX_DIGITS = 10
"""Digits of the largest partition or random number."""
_NO_DRAWS = np.zeros(0, np.int64)
ROWS_AT_ONCE = 4_096
"""Number of subjects in one call of the loops: their bytes stay in the processor's cache."""


def _lines_of(subjects: Sequence[str]) -> bytes:
    """Return subjects as lines, none if there is one with a surrogate."""
    try:
        return ("\n".join(subjects) + "\n").encode()
    except UnicodeEncodeError:
        return b""


def unpack(lines: bytes) -> list[str | None]:
    """Return the texts of lines."""
    texts = lines.decode("utf-8", "surrogateescape").split("\n")
    texts.pop()
    return cast("list[str | None]", texts)


def is_plain(text: str) -> bool:
    """Return True if a text has no line feed and can be encoded."""
    if "\n" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Found(NamedTuple):
    """Subjects with their sources.

    Attributes:
        lines: the subjects, each with a line feed behind it.
        sources: the number of the first source that matches each of them, -1 for none.
        starts: where their tokens start.
        odd: the rows of subjects with a line feed or a surrogate, whose lines are empty.
    """

    lines: bytes
    sources: Int64s
    starts: Int64s
    odd: Sequence[int]


class SubjectArrays:
    """Sources and destinations for the loops.

    Args:
        sources: filters; the first one that matches wins.
        targets: the tokens of each destination, and the number of tokens before ``>``, if it has one.
        only_literal: whether subjects with empty tokens or wildcards match nothing.
    """

    def __init__(
        self,
        sources: Sequence[str],
        targets: Iterable[tuple[Sequence[TokenStep], int | None]],
        *,
        only_literal: bool = False,
    ) -> None:
        self._only_literal = only_literal
        self._texts = bytearray()
        self._reads: list[int] = []
        self._width = 2
        self._sources = self._source_arrays(sources)
        self._targets = self._target_arrays(targets)

    def find(self, subjects: Sequence[str]) -> Found:
        """Find the first source that matches each subject."""
        lines = _lines_of(subjects)
        found, starts, is_whole = self.find_lines(lines, len(subjects))
        if is_whole:
            return Found(lines, found, starts, ())
        odd = [row for row, subject in enumerate(subjects) if not is_plain(subject)]
        plain = list(subjects)
        for row in odd:
            plain[row] = ""
        lines = _lines_of(plain)
        found, starts, _ = self.find_lines(lines, len(subjects))
        return Found(lines, found, starts, odd)

    def find_lines(self, lines: bytes, count: int) -> tuple[Int64s, Int64s, bool]:
        """Return the number of each line's source, where its tokens start, and whether there are so many lines."""
        found = np.empty(count, np.int64)
        starts = np.empty(count * self._width + 1, np.int64)
        data = np.frombuffer(lines, np.uint8)
        is_whole = loops.find(data, self._only_literal, *self._sources, self._width, starts, found)
        return found, starts, is_whole

    def render(self, lines: bytes, starts: Int64s, targets: Int64s, draws: NDArray[np.float64] | None = None) -> bytes:
        """Return the lines that destinations make of subjects.

        Args:
            lines: the subjects.
            starts: where their tokens start.
            targets: the number of each one's destination; -1 keeps the subject, -2 leaves the line empty.
            draws: a draw for each, if a destination has ``random(n)``.
        """
        bits = _NO_DRAWS if draws is None else (draws * 2.0**BITS).astype(np.int64)
        output = np.empty(2 * len(lines) + 64, np.uint8)
        data = np.frombuffer(lines, np.uint8)
        row = end = 0
        while True:
            row, end = loops.render(data, starts, self._width, targets, bits, *self._targets, row, end, output)
            if row == len(targets):
                return output[:end].tobytes()
            larger = np.empty(2 * len(output), np.uint8)
            larger[:end] = output[:end]
            output = larger

    def _source_arrays(self, sources: Sequence[str]) -> tuple[int, Int64s, NDArray[np.uint8]]:
        """Return the number of shapes, their numbers with fixed indices and slots, and the keys."""
        groups: dict[SourceShape, dict[bytes, int]] = {}
        for number, source in enumerate(sources):
            shape, tokens = shape_of(source), source.split(".")
            key = encode("".join(f"{tokens[index]}." for index in shape.fixed))
            groups.setdefault(shape, {}).setdefault(key, number)
            self._width = max(self._width, len(shape.kinds) + 1)
        ordered = sorted(groups.items(), key=lambda group: min(group[1].values()))
        keys = bytearray()
        index = [0] * (len(groups) * loops.SHAPE_WIDTH)
        for position, (shape, numbers) in enumerate(ordered):
            first = len(index)
            index += shape.fixed
            begun = len(index)
            slots = _hash_table(numbers)
            for number, key in slots:
                index += [number, len(keys), len(keys) + len(key)]
                keys += key
            start = position * loops.SHAPE_WIDTH
            smallest = min(numbers.values())
            index[start : start + loops.SHAPE_WIDTH] = (
                *(len(shape.kinds), shape.full, smallest),
                *(first, begun, begun, len(slots) - 1),
            )
        return len(groups), np.array(index, np.int64), np.frombuffer(bytes(keys), np.uint8)

    def _target_arrays(
        self, targets: Iterable[tuple[Sequence[TokenStep], int | None]]
    ) -> tuple[NDArray[np.uint8], Int64s, Int64s, Int64s]:
        """Return texts, programs, operations, and the indices of tokens that partitions read."""
        programs: list[int] = []
        operations: list[int] = []
        for steps, tail in targets:
            begun = len(operations)
            fixed = copies = 0
            for operation in self._operations(steps, tail):
                code, first, second, _ = operation
                operations += operation
                if code == loops.TEXT:
                    fixed += second - first
                elif code in (loops.PARTITION, loops.RANDOM):
                    fixed += _MAX_DIGITS
                else:
                    copies += 1
                    self._width = max(self._width, first + 2)
            programs += [begun, fixed, copies]
        self._width = max([self._width, *(read + 2 for read in self._reads)])
        ended = np.array([*programs, len(operations), 0, 0], np.int64)
        texts, reads = np.frombuffer(bytes(self._texts), np.uint8), np.array(self._reads, np.int64)
        return texts, ended, np.array(operations, np.int64), reads

    def _operations(self, steps: Sequence[TokenStep], tail: int | None) -> Iterable[tuple[int, int, int, int]]:
        """Yield the operations of a destination; neighbouring texts are one."""
        literal = ""
        for index, step in enumerate(steps):
            literal += "." if index else ""
            if step.call is None or _is_zero(step):
                literal += step.literal if step.literal is not None else "0"
                continue
            if literal:
                yield loops.TEXT, *self._text(literal), 0
            literal = ""
            yield self._operation(step, index)
        literal += "." if steps and tail is not None else ""
        if literal:
            yield loops.TEXT, *self._text(literal), 0
        if tail is not None:
            yield loops.TAIL, tail, 0, 0

    def _operation(self, step: TokenStep, index: int) -> tuple[int, int, int, int]:
        call = step.call
        assert call is not None
        number = call.number or 0
        if call.function == "random":
            return loops.RANDOM, abs(number), index, 0
        if call.function == "partition":
            first = len(self._reads)
            self._reads += step.tokens
            return loops.PARTITION, buckets_of(number), first, len(self._reads)
        (token,) = step.tokens
        if call.function == "split":
            return loops.SPLIT, token, *self._text(call.delimiter or "")
        return (_CODES[call.function], token, number, 0) if number > 0 else (loops.TOKEN, token, 0, 0)

    def _text(self, text: str) -> tuple[int, int]:
        """Keep a text and return its start and end."""
        start = len(self._texts)
        self._texts += encode(text)
        return start, len(self._texts)


def _hash_table(numbers: dict[bytes, int]) -> list[tuple[int, bytes]]:
    """Return the slots of a hash table with open addressing, at most half full; an empty one has -1."""
    mask = (1 << (2 * len(numbers) - 1).bit_length()) - 1 if len(numbers) > 1 else 0
    slots = [(-1, b"")] * (mask + 1)
    for key, number in numbers.items():
        slot = fnv1a(key) & mask
        while slots[slot][0] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number, key
    return slots


def _is_zero(step: TokenStep) -> bool:
    """Return True for a partition or random number of no buckets, which is always 0."""
    return step.call is not None and step.call.function in ("partition", "random") and step.call.number == 0


def transform_many(
    transform: SubjectTransform, subjects: Sequence[str], draws: Sequence[float] | None
) -> list[str | None]:
    """Return what `SubjectTransform.apply_many` returns, by the loops.

    Raises:
        ValueError: when a draw that decides ``random(n)`` is not in [0, 1).
    """
    arrays = _arrays_of(transform)
    if arrays is None:
        return transform.apply_each(subjects, draws)
    chances = None
    if transform.is_random:
        chances = np.random.default_rng().random(len(subjects)) if draws is None else np.array(draws, np.float64)
    mapped: list[str | None] = []
    for start in range(0, len(subjects), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        mapped += _transform_some(arrays, transform, subjects[some], None if chances is None else chances[some])
    return mapped


def _transform_some(
    arrays: SubjectArrays, transform: SubjectTransform, subjects: Sequence[str], chances: NDArray[np.float64] | None
) -> list[str | None]:
    lines, found, starts, odd = arrays.find(subjects)
    if chances is not None and not ((chances >= 0) & (chances < 1)).all():
        for row in np.flatnonzero(found >= 0).tolist():
            check_draw(chances[row].item())
    mapped = unpack(arrays.render(lines, starts, found, chances))
    for row in np.flatnonzero(found < 0).tolist():
        mapped[row] = None
    for row in odd:
        mapped[row : row + 1] = transform.apply_each(
            [subjects[row]], None if chances is None else [chances[row].item()]
        )
    return mapped


@lru_cache(maxsize=256)
def _arrays_of(transform: SubjectTransform) -> SubjectArrays | None:
    """Return the arrays of a transform; None if its texts are left to the reference."""
    if not is_plain(transform.source + transform.destination):
        return None
    return SubjectArrays([transform.source], [(transform.steps, transform.tail)], only_literal=True)


Draws = Callable[[list[int]], NDArray[np.float64]]
"""Gives a number in [0, 1) for each requested row."""

_FEW_SUBJECTS = 8
"""Fewer are mapped one by one: a call of the loops has costs of its own."""
_CHOSEN, _UNDECIDED = -3, -4
"""In the place of a target: the draw chooses one, or the loops leave the texts to the reference."""


@dataclass(frozen=True, slots=True)
class _TableArrays:
    """A table for one cluster as arrays.

    Attributes:
        subjects: its sources, and the destinations of all shares.
        targets: the target of each source, `_CHOSEN` or `_UNDECIDED`; the last one keeps the subject, for no source.
        choices: the target for each percent, one row for each source whose target is chosen.
        rows: rows of *choices* by source.
    """

    subjects: SubjectArrays
    targets: Int64s
    choices: NDArray[np.int32]
    rows: Int64s

    @classmethod
    def of(cls, table: MappingTable, cluster: str | None) -> _TableArrays:
        """Return the arrays of a table."""
        shares_of = [mapping.group(cluster) for mapping in table.mappings]
        transforms = [share.transform for shares in shares_of for share in shares]
        targets: list[int] = []
        choices: list[list[int]] = []
        rows: list[int] = []
        target = 0
        for mapping, shares in zip(table.mappings, shares_of, strict=True):
            rows.append(len(choices))
            if not all(map(is_plain, (mapping.source, *(share.transform.destination for share in shares)))):
                targets.append(_UNDECIDED)
            elif _has_choice(shares):
                targets.append(_CHOSEN)
                slots: list[int] = []
                for number, share in enumerate(shares, target):
                    slots += [number] * (share.until - len(slots))
                choices.append(slots + [LOST] * (100 - len(slots)))
            else:
                targets.append(target)
            target += len(shares)
        arrays = SubjectArrays(
            [mapping.source for mapping in table.mappings],
            [(transform.steps, transform.tail) for transform in transforms],
        )
        ended = np.array([*targets, UNMATCHED], np.int64)
        return cls(arrays, ended, np.array(choices, np.int32).reshape(-1, 100), np.array(rows, np.int64))


def _has_choice(shares: Sequence[Share]) -> bool:
    """Return True if a draw decides where a message goes."""
    return len(shares) != 1 or shares[0].weight != 100 or shares[0].transform.is_random


class Mapper:
    """Applies a table to batches of subjects.

    Args:
        table: the mappings.
        cluster: cluster whose destinations apply.
    """

    def __init__(self, table: MappingTable, cluster: str | None = None) -> None:
        self._table = table
        self._cluster = cluster
        self._arrays: _TableArrays | None = None
        self._draws = any(_has_choice(mapping.group(cluster)) for mapping in table.mappings)

    def apply(self, subjects: Sequence[str], draws: Draws) -> list[str | None]:
        """Map each subject; None where the weights mean loss.

        Args:
            subjects: as published.
            draws: gives a number in [0, 1) for each requested row.
        """
        if len(subjects) < _FEW_SUBJECTS or not loops_are_compiled():
            return self._apply_each(subjects, range(len(subjects)), draws)
        if self._arrays is None:
            self._arrays = _TableArrays.of(self._table, self._cluster)
        mapped: list[str | None] = []
        for start in range(0, len(subjects), ROWS_AT_ONCE):
            mapped += self._apply_some(self._arrays, subjects, start, draws)
        return mapped

    def _apply_some(self, arrays: _TableArrays, subjects: Sequence[str], first: int, draws: Draws) -> list[str | None]:
        some = subjects[first : first + ROWS_AT_ONCE]
        lines, found, starts, odd = arrays.subjects.find(some)
        targets = arrays.targets[found]
        left = [*odd, *np.flatnonzero(targets == _UNDECIDED).tolist()]
        targets[left] = LOST
        chances = None
        if len(chosen := np.flatnonzero(targets == _CHOSEN)):
            chances = np.zeros(len(some))
            chances[chosen] = draws((chosen + first).tolist())
            # As `turnout.subjects.functions.percent` has it.
            targets[chosen] = arrays.choices[arrays.rows[found[chosen]], (chances[chosen] * 100).astype(np.int64)]
        mapped = unpack(arrays.subjects.render(lines, starts, targets, chances))
        for row in np.flatnonzero(targets == LOST).tolist():
            mapped[row] = None
        for row, result in zip(left, self._apply_each(subjects, [first + row for row in left], draws), strict=True):
            mapped[row] = result
        return mapped

    def _apply_each(self, subjects: Sequence[str], rows: Sequence[int], draws: Draws) -> list[str | None]:
        """Map the subjects of some rows one by one."""
        chosen = [row for row in rows if self._is_chosen(subjects[row])] if self._draws else []
        chances = dict(zip(chosen, draws(chosen).tolist(), strict=True)) if chosen else {}
        return [self._table.apply(subjects[row], self._cluster, chances.get(row)) for row in rows]

    def _is_chosen(self, subject: str) -> bool:
        mapping = self._table.find(subject)
        return mapping is not None and _has_choice(mapping.group(self._cluster))


SEED = 42
"""Seed of Spark's hash."""


def chained(*texts: str, seed: int = SEED) -> int:
    """Return the hash of some texts, as Spark's ``xxhash64`` has it for several columns; unsigned."""
    for text in texts:
        seed = xxhash.xxh64_intdigest(encode(text), seed)
    return seed


def draws_of(
    topics: Sequence[str], partitions: Sequence[int | None], offsets: Sequence[int | None]
) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each record, from topic, partition and offset; nulls are left out of the hash."""
    if not loops_are_compiled():
        digests = np.array(list(map(_digest, topics, partitions, offsets)), np.uint64)
    else:
        digests = _digests(topics, partitions, offsets)
    return (digests >> np.uint64(64 - BITS)).astype(np.float64) * 2.0**-BITS


def _digests(
    topics: Sequence[str], partitions: Sequence[int | None], offsets: Sequence[int | None]
) -> NDArray[np.uint64]:
    """Return the hash of each record by the loop."""
    seeds = np.fromiter(map(_begun, topics, partitions), np.uint64, len(topics))
    has_offset = np.array([offset is not None for offset in offsets], np.bool_)
    numbers = np.array([0 if offset is None else offset for offset in offsets], np.int64)
    hashes = np.empty(len(topics), np.int64)
    hash_longs(numbers, seeds.view(np.int64), hashes)
    return np.where(has_offset, hashes.view(np.uint64), seeds)


def _digest(topic: str, partition: int | None, offset: int | None) -> int:
    """Return the hash of one record's topic, partition and offset."""
    seed = _begun(topic, partition)
    return seed if offset is None else xxhash.xxh64_intdigest(offset.to_bytes(8, "little", signed=True), seed)


@lru_cache(maxsize=65_536)
def _begun(topic: str, partition: int | None) -> int:
    """Return the hash of a record's topic and partition."""
    seed = chained(topic)
    if partition is None:
        return seed
    return xxhash.xxh64_intdigest(int(partition).to_bytes(4, "little", signed=True), seed)
