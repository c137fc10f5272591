"""A table of mappings as a column, at a cost that hardly grows with the number of mappings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from turnout.spark.subjects.draws import draw_bits, percent, random_below
from turnout.spark.subjects.functions import CUTS, split
from turnout.spark.subjects.lookup import constant, number_of
from turnout.spark.subjects.matching import is_literal
from turnout.spark.subjects.partition import fnv1a
from turnout.spark.subjects.program import KEPT, LOST, Form, Program
from turnout.spark.subjects.text import split_tokens
from turnout.spark.subjects.transform import tail_of
from turnout.subjects.index import FIXED, STAR, Shape
from turnout.subjects.mapping import MappingTable
from turnout.subjects.tokens import FULL, PARTIAL

__all__ = ["map_subject", "map_subjects"]


def map_subjects(
    df: DataFrame,
    table: MappingTable,
    column: str = "topic",
    into: str = "topic",
    cluster: str | None = None,
    seed: Sequence[Column | str] = (),
) -> DataFrame:
    """*df* with the mapped subjects in column *into*; see `map_subject`.

    One row out for each row in, no shuffle, no join: it may stand in a streaming query. The other columns stay.
    """
    return df.withColumn(into, map_subject(table, F.col(column), cluster=cluster, seed=seed))


def map_subject(
    table: MappingTable,
    column: Column | str,
    cluster: str | None = None,
    seed: Sequence[Column | str] = (),
) -> Column:
    """What *table* makes of the column's subjects, as `MappingTable.apply` does.

    Args:
        table: the mappings.
        column: the subjects, strings. Their bytes are kept as they are, UTF-8 or not.
        cluster: the cluster whose destinations apply.
        seed: columns that identify a record, from which all its choices follow; needed where the table has
            weights or ``random(n)``.

    Returns:
        A string column: the mapped subject, the subject itself where nothing maps it, null where the weights
        mean loss (and where the subject is null).

    Raises:
        ConfigError: when the table makes choices and there is no seed.
        NotCompilableError: when a source or a destination has bytes that are not UTF-8.
    """
    subject = F.col(column) if isinstance(column, str) else column
    program = Program.build(table, cluster)
    if len(program.rules) == 1:
        return subject
    tokens = split_tokens(subject)
    bits = draw_bits(seed, what="this table of mappings") if program.draws else F.lit(0).cast("long")
    targets = constant(
        [{"f": t.form, "t": list(t.texts), "n": list(t.numbers)} for t in program.targets],
        "array<struct<f:int,t:array<string>,n:array<bigint>>>",
    )
    target = F.get(targets, _chosen(program, _rule(program, subject, tokens), bits))
    result = F.when(target["f"].isNull(), F.lit(None).cast("string"))
    for number, form in enumerate(program.forms):
        value = _Branch(form, target, subject, tokens, bits).value()
        result = result.when(target["f"] == number, value)
    return result


def _chosen(program: Program, rule: Column, bits: Column) -> Column:
    """The number of the target that a rule chooses for a draw."""
    if all(len(slots) == 1 for slots in program.rules):
        return F.get(constant([slots[0] for slots in program.rules], "array<int>"), rule)
    slots = F.get(constant([list(slots) for slots in program.rules], "array<array<int>>"), rule)
    return F.get(slots, F.floor(percent(bits) * F.size(slots) / F.lit(100)).cast("int"))


def _rule(program: Program, subject: Column, tokens: Column) -> Column:
    """The number of the first rule that matches; 0 where none does."""
    clean = is_literal(tokens)
    found = [number_of(subject, program.literals)] if program.literals else []
    found += [_rule_of(shape, numbers, tokens, clean) for shape, numbers in program.shapes.items()]
    first = F.least(*found) if len(found) > 1 else found[0]
    return F.coalesce(first, F.lit(0))


def _rule_of(shape: Shape, numbers: dict[str, int], tokens: Column, clean: Column) -> Column:
    """The rule among the sources of one shape; null where none matches."""
    count = len(shape.kinds)
    fits = F.size(tokens) > count if shape.full else F.size(tokens) == count
    wild = [(index, kind) for index, kind in enumerate(shape.kinds) if kind != FIXED]
    if wild:
        each = F.lit(True)
        for index, kind in wild:
            token = F.get(tokens, F.lit(index))
            refused = [literal for literal in ("", FULL, PARTIAL) if kind != STAR or literal != PARTIAL]
            each = each & ~token.isin(*refused)
        fits = fits & (clean | each)
    if not shape.fixed:
        return F.when(fits, F.lit(min(numbers.values())))
    parts: list[Column] = []
    for index in shape.fixed:
        parts += [F.lit("."), F.get(tokens, F.lit(index))]
    key = F.concat(*parts[1:]) if len(parts) > 2 else parts[1]
    return F.when(fits, number_of(key, numbers))


@dataclass(frozen=True, slots=True)
class _Branch:
    """The value of every destination of one form."""

    form: Form
    target: Column
    subject: Column
    tokens: Column
    bits: Column

    def value(self) -> Column:
        if self.form == KEPT:
            return self.subject
        if self.form == LOST:
            return F.lit(None).cast("string")
        numbers = self._numbers()
        delimiters = self._delimiters()
        parts = [self._text(0)]
        for place, (name, reads) in enumerate(self.form.functions):
            tokens = [F.get(self.tokens, next(numbers).cast("int")) for _ in range(reads)]
            parts += [self._call(name, tokens, next(numbers), next(numbers), delimiters), self._text(place + 1)]
        if self.form.tail:
            parts.append(tail_of(self.subject, self.tokens, next(numbers).cast("int")))
        return F.concat(*parts) if len(parts) > 1 else parts[0]

    def _text(self, index: int) -> Column:
        return F.get(self.target["t"], F.lit(index))

    def _numbers(self) -> Iterator[Column]:
        index = 0
        while True:
            yield F.get(self.target["n"], F.lit(index))
            index += 1

    def _delimiters(self) -> Iterator[Column]:
        index = len(self.form.functions) + 1
        while True:
            yield self._text(index)
            index += 1

    def _call(
        self, name: str, tokens: list[Column], number: Column, place: Column, delimiters: Iterator[Column]
    ) -> Column:
        if name == "wildcard":
            return tokens[0]
        if name == "partition":
            key = F.concat(*tokens) if len(tokens) > 1 else tokens[0] if tokens else self.subject
            return (fnv1a(key) % number).cast("string")
        if name == "random":
            return random_below(self.bits, place, number).cast("string")
        if name in ("split", "characters"):
            delimiter = next(delimiters)
            return split(tokens[0], delimiter if name == "split" else None)
        return CUTS[name](tokens[0], number.cast("int"))
