"""Differences between two versions of a route, as a sum over records; parts add up to the whole."""

from __future__ import annotations

import ast
import heapq
import json
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.terminal import did_you_mean
from turnout.engine.counts import Outcome
from turnout.engine.reading import Consumed
from turnout.engine.trace import Trace, Watch
from turnout.errors import ConfigError, Mistake
from turnout.history.suite.outcomes import ABSENT, plain
from turnout.records import ALIVE, Batch
from turnout.records.types import ArrowBatch, RowIds
from turnout.transforms.chain import StageRunner

_FAILED = (Outcome.DEAD_LETTERED, Outcome.DISCARDED, Outcome.STOPPED)


class EndedRecord(NamedTuple):
    """Outcome of a record, and its stage.

    Attributes:
        outcome: the label of an `Outcome`.
        stage: the name of a transform, or what Connect calls the stage outside the chain: ``VALUE_CONVERTER``. "" for
            a record that passed all of them.
    """

    outcome: str
    stage: str = ""

    def __str__(self) -> str:
        return f"{self.outcome} ({self.stage})" if self.stage else self.outcome


class OutcomeWatch(Watch):
    """Notes the transform that ended each record of a batch.

    Attributes:
        names: names of the transforms, in order.
        stages: by row, the index of a name; -1 where no transform ended the record.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.stages: NDArray[np.int16] = np.zeros(0, np.int16)
        self._ended: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def decoded(self, records: Batch, consumed: Consumed) -> None:  # noqa: ARG002 - see `Watch`
        """Begin with the records that could be decoded."""
        self.names = []
        self.stages = np.full(len(records), -1, np.int16)
        self._ended = records.outcomes != ALIVE

    def after(self, stage: StageRunner, records: Batch) -> None:
        """Note the records that are no longer alive."""
        ended = records.outcomes != ALIVE
        self.stages[ended & ~self._ended] = len(self.names)
        self.names.append(stage.stage.name)
        self._ended = ended


class EndNumbers:
    """Outcomes of a trace as integer codes; each code represents an `EndedRecord`.

    Args:
        trace: trace of a batch.
        watch: has watched it.

    Attributes:
        codes: by row.
        width: codes are below it.
    """

    def __init__(self, trace: Trace, watch: OutcomeWatch) -> None:
        self._names = ["", *watch.names]
        stages = watch.stages.astype(np.int64) + 1
        stages[~np.isin(trace.outcomes, (Outcome.FILTERED, *_FAILED))] = 0
        outside: dict[str, int] = {}
        for row, failure in trace.failures.items():
            if not stages[row] and trace.outcomes[row] in _FAILED:
                stages[row] = outside.setdefault(failure.stage, len(self._names) + len(outside))
        self._names += outside
        self.codes = trace.outcomes.astype(np.int64) * len(self._names) + stages
        self.width = len(Outcome) * len(self._names)

    def ended(self, code: int) -> EndedRecord:
        """Return the outcome of a number."""
        outcome, stage = divmod(code, len(self._names))
        return EndedRecord(Outcome(outcome).label, self._names[stage])


@dataclass(frozen=True, slots=True)
class Matrix:
    """Records by how they ended with the old version and with the new one.

    Attributes:
        counts: (old, new) → number of records.
    """

    counts: Mapping[tuple[EndedRecord, EndedRecord], int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, old: EndNumbers, new: EndNumbers
    ) -> tuple[Matrix, NDArray[np.bool_], list[tuple[EndedRecord, EndedRecord]]]:
        """Return a batch's matrix, a mask of rows with changed outcomes, and the pairs of these rows in order."""
        pairs = old.codes * new.width + new.codes
        codes, inverse, numbers = np.unique(pairs, return_inverse=True, return_counts=True)
        ended = [(old.ended(code // new.width), new.ended(code % new.width)) for code in codes.tolist()]
        counts = dict(zip(ended, numbers.tolist(), strict=True))
        other = np.array([before != after for before, after in ended], np.bool_)[inverse]
        return cls(counts), other, [ended[at] for at in inverse[other].tolist()]

    def __add__(self, others: Matrix) -> Matrix:
        counts = dict(self.counts)
        for pair, number in others.counts.items():
            counts[pair] = counts.get(pair, 0) + number
        return Matrix(counts)

    @property
    def changes(self) -> list[tuple[EndedRecord, EndedRecord, int]]:
        """Entries off the diagonal, most records first."""
        changed = [(old, new, number) for (old, new), number in self.counts.items() if old != new]
        return sorted(changed, key=lambda change: (-change[2], change[0], change[1]))

    @property
    def outcomes(self) -> int:
        """Number of records with another outcome."""
        return sum(number for old, new, number in self.changes if old.outcome != new.outcome)

    @property
    def stages(self) -> int:
        """Number of records with the same outcome at another stage."""
        return sum(number for old, new, number in self.changes if old.outcome == new.outcome)

    def by_version(self) -> tuple[dict[EndedRecord, int], dict[EndedRecord, int]]:
        """Records by how they ended, of the old version and of the new one."""
        old: dict[EndedRecord, int] = {}
        new: dict[EndedRecord, int] = {}
        for (before, after), number in sorted(self.counts.items()):
            old[before] = old.get(before, 0) + number
            new[after] = new.get(after, 0) + number
        return old, new


_MAX_VALUE_CHARACTERS = 300
"""Maximum number of characters shown of a value."""


class RecordPosition(NamedTuple):
    """Stored position of a record; positions sort by sequence.

    Attributes:
        offset: the sequence in a stream, or the offset in a partition; -1 where it is not known.
        stream: the stream, or Kafka's topic.
        partition: 0 for streams.
    """

    offset: int
    stream: str
    partition: int


class Example(NamedTuple):
    """Record that shows a difference.

    Attributes:
        place: its position.
        topic: topic of the record.
        old: the old version's side, as text; None for nothing.
        new: likewise.
    """

    position: RecordPosition
    topic: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples by kind.

    Attributes:
        limit: how many of each kind are kept.
        by_kind: (kind, what of it: a field, a header …) → the first by sequence.
    """

    limit: int = 5
    by_kind: Mapping[tuple[str, str], tuple[Example, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, limit: int, by_kind: Mapping[tuple[str, str], Sequence[Example]]) -> Examples:
        """Return the first of these."""
        return cls(limit, {kind: _first(examples, limit) for kind, examples in by_kind.items()})

    def __add__(self, others: Examples) -> Examples:
        limit = max(self.limit, others.limit)
        together = dict(self.by_kind)
        for kind, examples in others.by_kind.items():
            before = together.get(kind)
            together[kind] = examples if before is None else _first((*before, *examples), limit)
        return Examples(limit, together)


def _first(examples: Sequence[Example], limit: int) -> tuple[Example, ...]:
    return tuple(heapq.nsmallest(limit, examples, key=lambda one: (one.position, one.old or "", one.new or "")))


class RecordPositions:
    """Stored positions of a batch's records; columns are read only for records with something to show.

    Args:
        batch: as it was read.
    """

    def __init__(self, batch: ArrowBatch) -> None:
        names = batch.schema.names
        self._batch = batch
        self._named = "stream" if "stream" in names else "topic"
        self._offsets = _numbers(batch, "offset", -1)
        self._partitions = _numbers(batch, "partition", 0)
        self._columns: dict[str, list[str | None]] = {}

    def of(self, row: int) -> RecordPosition:
        """Return the place of one record."""
        return RecordPosition(int(self._offsets[row]), self._texts(self._named)[row] or "", int(self._partitions[row]))

    def topic(self, row: int) -> str:
        """Return the source topic of one record."""
        return self._texts("topic")[row] or ""

    def _texts(self, name: str) -> list[str | None]:
        texts = self._columns.get(name)
        if texts is None:
            texts = self._columns[name] = self._batch.column(name).to_pylist()
        return texts

    def first(self, rows: RowIds, limit: int) -> list[int]:
        """Return the indices into *rows* of the first *limit* by sequence; items of one record keep their order."""
        if len(rows) <= limit or not limit:
            return list(range(len(rows)))[:limit]
        offsets = self._offsets[rows]
        # All with the last offset are compared: records of several topics may have it.
        first_indices = np.flatnonzero(offsets <= np.partition(offsets, limit - 1)[limit - 1]).tolist()
        return sorted(first_indices, key=lambda at: (self.of(int(rows[at])), at))[:limit]


def _numbers(batch: ArrowBatch, name: str, unknown: int) -> RowIds:
    if name not in batch.schema.names:
        return np.full(batch.num_rows, unknown, np.int64)
    column = batch.column(name).cast(pa.int64())
    numbers: RowIds = column.fill_null(unknown).to_numpy(zero_copy_only=False)
    return numbers


def text_of_value(value: object) -> str | None:
    """Return a value as JSON, truncated if it is long; None if the value is absent."""
    if value is ABSENT:
        return None
    text = json.dumps(plain(value), ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"


MOST: Final = 1000
"""Maximum number of distinct names that are counted. A value may use ids as names of fields."""

OTHERS: Final = "(others)"
"""Name that collects the counts of all further names."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of occurrences of each name."""

    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str]) -> Tally:
        """Count the occurrences of each name."""
        return cls() + cls(Counter(names))

    def __add__(self, others: Tally) -> Tally:
        counts = dict(self.counts)
        # In the order of names, so that the same tallies give the same sum.
        for name, number in sorted(others.counts.items()):
            key = name if name in counts or len(counts) < MOST else OTHERS
            counts[key] = counts.get(key, 0) + number
        return Tally(counts)

    @property
    def largest(self) -> list[tuple[str, int]]:
        """Names and counts, most first."""
        return sorted(self.counts.items(), key=lambda counted: (-counted[1], counted[0]))


KINDS: Final = ("outcome", "lost", "gained", "moved", "value", "key", "header", "failure")
"""Kinds of examples."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time of a version, without reading and without publishing.

    Attributes:
        nanoseconds: nanoseconds of all records.
    """

    nanoseconds: int = 0

    def per_record(self, records: int) -> float:
        """Microseconds for a record."""
        return self.nanoseconds / 1000 / records if records else 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.nanoseconds + other.nanoseconds)


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences between two versions of a route for the same records.

    Parts of a range are compared apart, and added up in any order.

    Attributes:
        records: how many were compared.
        changed: how many of them end otherwise, or have some delivery, content or failure that is not the same.
        matrix: how they ended.
        gained: deliveries that only the new version makes.
        lost: deliveries that only the old one makes.
        moved: deliveries of the same subscription, or of a record under its own topic, to another address.
        values: records that both deliver, with other values.
        keys: likewise.
        headers: likewise.
        failures: records that fail with both, for another reason or with a dead letter elsewhere; and those that end
            alike, of which one version has undeliverable messages.
        fields: fields of the values: path → in how many records it is not the same.
        header_names: likewise of the headers.
        losers: subscription → deliveries lost.
        gainers: subscription → deliveries gained.
        movers: subscription → deliveries moved.
        old_cost: cost of the old version.
        new_cost: cost of the new one.
        examples: the first ones of each kind by sequence.
    """

    records: int = 0
    changed: int = 0
    matrix: Matrix = field(default_factory=Matrix)
    gained: int = 0
    lost: int = 0
    moved: int = 0
    values: int = 0
    keys: int = 0
    headers: int = 0
    failures: int = 0
    fields: Tally = field(default_factory=Tally)
    header_names: Tally = field(default_factory=Tally)
    losers: Tally = field(default_factory=Tally)
    gainers: Tally = field(default_factory=Tally)
    movers: Tally = field(default_factory=Tally)
    old_cost: Cost = field(default_factory=Cost)
    new_cost: Cost = field(default_factory=Cost)
    examples: Examples = field(default_factory=Examples)

    def __add__(self, other: Self) -> Differences:
        return Differences(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Differences)))

    @property
    def empty(self) -> bool:
        """True if both versions do the same with every record."""
        return not self.changed

    @property
    def totals(self) -> Mapping[str, float]:
        """All numbers by name, with the names of `turnout.history.diff.differences`."""
        old, new = self.matrix.by_version()
        by_outcome = {
            f"{version}_{outcome.label}": sum(n for ended, n in counts.items() if ended.outcome == outcome.label)
            for version, counts in (("old", old), ("new", new))
            for outcome in Outcome
        }
        return {
            "records": self.records,
            "changed": self.changed,
            "outcomes": self.matrix.outcomes,
            "stages": self.matrix.stages,
            **{name: getattr(self, name) for name in _NUMBERS},
            **by_outcome,
            "old_us": self.old_cost.per_record(self.records),
            "new_us": self.new_cost.per_record(self.records),
        }


_NUMBERS: Final = ("gained", "lost", "moved", "values", "keys", "headers", "failures")

TOTALS: Final = tuple(Differences().totals)
"""The names of the totals."""


_MAX_CHARACTERS: Final = 1000
"""Maximum length of a condition in characters, as the parser's stack is limited."""

_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[float, float], bool]]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition over numbers that have names.

    Python's parser reads it, and only the constructs listed here are evaluated: names, numbers, comparisons, ``and``,
    ``or``, ``not`` and parentheses. A name alone is true where its number is not 0.

    >>> threshold = Threshold.parse("lost > 0 or not (values < 100)", ["lost", "values"])
    >>> threshold.holds({"lost": 0, "values": 99}), threshold.holds({"lost": 1, "values": 0})
    (False, True)

    Attributes:
        text: as it was written.
    """

    text: str
    _node: ast.expr

    @classmethod
    def parse(cls, text: str, names: Iterable[str]) -> Self:
        """Read a condition.

        Args:
            text: the condition.
            names: the names that there are.

        Raises:
            ConfigError: it cannot be read, or has something in it that is not known.
        """
        if len(text) > _MAX_CHARACTERS:
            raise _wrong(text[:40] + "…", f"has {len(text):,} characters, expected at most {_MAX_CHARACTERS:,}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                node = ast.parse(text.strip(), mode="eval").body
            _check(node, tuple(names), text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            if isinstance(problem, ConfigError):
                raise
            raise _wrong(text, "cannot be read; expected something like: lost > 0 or values >= 100") from None
        return cls(text, node)

    def holds(self, totals: Mapping[str, float]) -> bool:
        """Return True if the condition is true of the totals."""
        return bool(_value(self._node, totals))


def _wrong(text: str, problem: str) -> ConfigError:
    return ConfigError([Mistake(repr(text), problem)], what="bad condition")


def _check(node: ast.expr, names: tuple[str, ...], text: str) -> None:
    match node:
        case ast.BoolOp(values=parts):
            for part in parts:
                _check(part, names, text)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            _check(part, names, text)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(operator) in _COMPARISONS for operator in ops
        ):
            for part in (left, *others):
                _check(part, names, text)
        case ast.Name(id=name):
            if name not in names:
                names_text = ", ".join(names)
                raise _wrong(text, f"there is no total {name!r}{did_you_mean(name, names)} (there are {names_text})")
        case ast.Constant(value=value) if type(value) in (int, float):
            pass
        case _:
            raise _wrong(text, f"{ast.unparse(node)!r}: expected names, numbers, comparisons, and, or, not")


def _value(node: ast.expr, totals: Mapping[str, float]) -> float | bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, totals) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, totals) for part in parts)
        case ast.UnaryOp(operand=part):
            return not _value(part, totals)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_value(part, totals) for part in (left, *others)]
            pairs = zip(ops, sides, sides[1:], strict=False)
            return all(_COMPARISONS[type(comparison)](before, after) for comparison, before, after in pairs)
        case ast.Name(id=name):
            return totals[name]
        case ast.Constant(value=int() | float() as number):
            return number
    raise AssertionError(f"{node!r} was let through")
