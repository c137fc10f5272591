"""A table of mappings as a column, at a cost that hardly grows with the number of mappings.

What grows is the number of different forms of sources and destinations; with many of them
an Arrow function takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from turnout.spark.subjects.transform import (
    CUTS,
    as_bytes,
    constant,
    draw_bits,
    draw_of,
    fnv1a,
    from_bytes,
    hash_by_loop,
    join,
    let,
    literal,
    looked_up,
    percent,
    random_below,
    split,
    split_tokens,
    tail_of,
)
from turnout.subjects.arrays import Mapper
from turnout.subjects.mapping import KEPT, LOST, MappingProgram, MappingTable, TargetForm
from turnout.subjects.pattern import FIXED, FULL, SourceShape, decode, encode

# Terms of an expression, each a handful of nodes. On one core 350 are planned and compiled within 8 s, 700 in 10,
# 1,400 in 22, 3,000 in 50, and 6,000 exceed a driver of 1 GB.
_MOST_TERMS = 400


def is_too_large(program: MappingProgram) -> bool:
    """Return True if the expression of a table has more terms than the optimizer can take.

    The tokens of each shape of source are compared, and each function of each form of destination is a branch.
    """
    sources = sum(len(shape.kinds) for shape in program.shapes)
    return sources + sum(1 + len(form.functions) for form in program.forms) > _MOST_TERMS


def mapped_in_python(table: MappingTable, subject: Column, cluster: str | None, bits: Column) -> Column:
    """Return the mapped subjects as `turnout.subjects.Mapper` gives them, with the same draws as the expression has."""
    function = cast("Any", arrow_udf)(_mapping(table, cluster), "binary")
    return from_bytes(function(as_bytes(subject), draw_of(bits)))


def _mapping(table: MappingTable, cluster: str | None) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Build the function that a Python worker calls for each batch of rows."""
    mappers: list[Mapper] = []

    def mapped(subjects: pa.Array, draws: pa.Array) -> pa.Array:
        if not mappers:
            # Made where it is used: its cache of subjects is not sent to workers.
            mappers.append(Mapper(table, cluster))
        encoded = subjects.to_numpy(zero_copy_only=False)
        texts = [decode(data) for data in encoded if data is not None]
        chances = draws.filter(subjects.is_valid()).to_numpy(zero_copy_only=False)
        found = iter(mappers[0].apply(texts, lambda indexes: chances[np.array(indexes, dtype=np.intp)]))
        results: list[str | None] = [None if data is None else next(found) for data in encoded]
        return pa.array([None if result is None else encode(result) for result in results], pa.binary())

    mapped.__annotations__ = {"subjects": pa.Array, "draws": pa.Array, "return": pa.Array}
    return mapped


_TOKENS, _BITS, _TARGET = "__turnout_tokens", "__turnout_bits", "__turnout_target"


def map_subjects(
    df: DataFrame,
    table: MappingTable,
    column: str = "topic",
    into: str = "topic",
    cluster: str | None = None,
    seed: Sequence[Column | str] = (),
) -> DataFrame:
    """*df* with the mapped subjects in column *into*; see `map_subject`, to which this is the faster form.

    One row out for each row in, no shuffle, no join: it is allowed in a streaming query. The other columns are kept.
    Each part is a column of its own on the way, so that Spark computes it once however often it is used. A table whose
    sources and destinations have so many forms that their expression would not be planned is applied by Python workers.
    """
    program = MappingProgram.build(table, cluster)
    subject = F.col(column)
    if program.is_empty:
        return df.withColumn(into, subject)
    if is_too_large(program):
        return df.withColumn(into, mapped_in_python(table, subject, cluster, _bits(program, seed)))
    names = [_TOKENS, _BITS, _TARGET]
    tokens, bits, target = (F.col(name) for name in names)
    staged = df.withColumns({_TOKENS: split_tokens(subject), _BITS: _bits(program, seed)})
    staged = staged.withColumn(_TARGET, _target(program, subject, tokens, bits))
    hashes: list[Column] = []
    for number, key in enumerate(_keys(program, target, subject, tokens)):
        key_name, hash_name = f"__turnout_key{number}", f"__turnout_hash{number}"
        staged = staged.withColumn(key_name, key).withColumn(hash_name, fnv1a(F.col(key_name)))
        names += [key_name, hash_name]
        hashes.append(F.col(hash_name))
    return staged.withColumn(into, _result(program, target, subject, tokens, bits, hashes)).drop(*names)


def map_subject(
    table: MappingTable,
    column: Column | str,
    cluster: str | None = None,
    seed: Sequence[Column | str] = (),
) -> Column:
    """Map the column's subjects with *table*, as `MappingTable.apply` does.

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
        NotCompilableError: when a source or a destination has bytes that are not UTF-8, and the table is an expression.
    """
    subject = F.col(column) if isinstance(column, str) else column
    program = MappingProgram.build(table, cluster)
    if program.is_empty:
        return subject
    if is_too_large(program):
        return mapped_in_python(table, subject, cluster, _bits(program, seed))

    def mapped(tokens: Column, bits: Column) -> Column:
        def with_target(target: Column) -> Column:
            keys = list(_keys(program, target, subject, tokens))
            # In a lambda Spark shares nothing, so the loop, which is small, and not the straight-line hash.
            hashes = [hash_by_loop(key) for key in keys]
            return _result(program, target, subject, tokens, bits, hashes)

        return let(_target(program, subject, tokens, bits), with_target)

    return let(split_tokens(subject), lambda tokens: let(_bits(program, seed), lambda bits: mapped(tokens, bits)))


def _bits(program: MappingProgram, seed: Sequence[Column | str]) -> Column:
    return draw_bits(seed, what="this table of mappings") if program.draws else F.lit(0).cast("long")


def _target(program: MappingProgram, subject: Column, tokens: Column, bits: Column) -> Column:
    """Return the destination that is chosen for a row, as a struct; null for a null subject."""
    targets = constant(
        [{"f": t.form, "t": list(t.texts), "n": list(t.numbers)} for t in program.targets],
        "array<struct<f:int,t:array<string>,n:array<bigint>>>",
    )
    return F.get(targets, _chosen(program, _rule(program, subject, tokens), bits))


def _result(
    program: MappingProgram, target: Column, subject: Column, tokens: Column, bits: Column, hashes: Sequence[Column]
) -> Column:
    """Return the result of the chosen destination, one branch for each form."""
    is_lost = target["f"].isNull()
    for hashed in hashes:
        # Always true where there is no target. Used a second time, the hash is not moved into a branch below,
        # where Spark would not share what repeats in it.
        is_lost = is_lost & hashed.isNull()
    result = F.when(is_lost, F.lit(None).cast("string"))
    for number, form in enumerate(program.forms):
        value = _Branch(form, target, subject, tokens, bits, hashes).value()
        result = result.when(target["f"] == number, value)
    return result


def _keys(program: MappingProgram, target: Column, subject: Column, tokens: Column) -> list[Column]:
    """Return the inputs of the first, second … ``partition`` of the chosen destination, else null."""
    keys: list[Column | None] = []
    for number, form in enumerate(program.forms):
        for index, key in enumerate(_Branch(form, target, subject, tokens, subject, []).keys()):
            keys += [None] * (index + 1 - len(keys))
            before = keys[index]
            chosen = target["f"] == number
            keys[index] = F.when(chosen, key) if before is None else before.when(chosen, key)
    return [key for key in keys if key is not None]


def _chosen(program: MappingProgram, rule: Column, bits: Column) -> Column:
    """Return the number of the target that a rule chooses for a draw."""
    if all(len(slots) == 1 for slots in program.rules):
        return F.get(constant([slots[0] for slots in program.rules], "array<int>"), rule)
    slots = F.get(constant([list(slots) for slots in program.rules], "array<array<int>>"), rule)
    return F.get(slots, F.floor(percent(bits) * F.size(slots) / F.lit(100)).cast("int"))


def _rule(program: MappingProgram, subject: Column, tokens: Column) -> Column:
    """Return the number of the first rule that matches; 0 where none does."""
    rules = [looked_up(subject, program.literals)] if program.literals else []
    rules += [_rule_of(shape, numbers, tokens) for shape, numbers in program.shapes.items()]
    first = F.least(*rules) if len(rules) > 1 else rules[0]
    return F.coalesce(first, F.lit(0))


def _rule_of(shape: SourceShape, numbers: dict[str, int], tokens: Column) -> Column:
    """Return the rule among the sources of one shape; null where none matches."""
    count = len(shape.kinds)
    fits = F.size(tokens) > count if shape.full else F.size(tokens) == count
    for index, kind in enumerate(shape.kinds):
        if kind != FIXED:
            # A "*" covers a "*", also in a subject that is none.
            fits = fits & ~F.get(tokens, F.lit(index)).isin("", FULL)
    # Tokens that all sources of the shape share are compared, and only the others are looked up: a key of several
    # tokens has to be put together, which costs more than finding it.
    keys = [key.split(".") for key in numbers] if shape.fixed else []
    shared = [len({key[n] for key in keys}) == 1 for n in range(len(shape.fixed))]
    for n, index in enumerate(shape.fixed):
        if shared[n]:
            fits = fits & (F.get(tokens, F.lit(index)) == literal(keys[0][n]))
    telling = [n for n, same in enumerate(shared) if not same]
    if not telling:
        return F.when(fits, F.lit(min(numbers.values())))
    parts: list[Column | str] = [F.get(tokens, F.lit(shape.fixed[n])) for n in telling]
    pieces = [literal(piece) if isinstance(piece, str) else piece for piece in join(parts)]
    key = F.concat(*pieces) if len(pieces) > 1 else pieces[0]
    rules = {
        ".".join(tokens_of[n] for n in telling): number
        for tokens_of, number in zip(keys, numbers.values(), strict=True)
    }
    return F.when(fits, looked_up(key, rules))


@dataclass(frozen=True, slots=True)
class _Branch:
    """The value of every destination of one form."""

    form: TargetForm
    target: Column
    subject: Column
    tokens: Column
    bits: Column
    hashes: Sequence[Column]

    def keys(self) -> Iterator[Column]:
        """Yield the input of each ``partition`` of the form."""
        index = 0
        for name, reads in self.form.functions:
            if name == "partition":
                named = [F.get(self.tokens, self._number(index + read).cast("int")) for read in range(reads)]
                yield F.concat(*named) if len(named) > 1 else named[0] if named else self.subject
            index += reads + 2

    def value(self) -> Column:
        if self.form == KEPT:
            return self.subject
        if self.form == LOST:
            return F.lit(None).cast("string")
        index = 0
        partitions = iter(self.hashes)
        delimiters = self._delimiters()
        parts = [self._target_text(0)]
        for step, (name, reads) in enumerate(self.form.functions):
            number, at = self._number(index + reads), self._number(index + reads + 1)
            if name == "partition":
                value = (next(partitions) % number).cast("string")
            elif name == "random":
                value = random_below(self.bits, at, number).cast("string")
            else:
                token = F.get(self.tokens, self._number(index).cast("int"))
                value = self._cut(name, token, number, delimiters)
            parts += [value, self._target_text(step + 1)]
            index += reads + 2
        if self.form.tail:
            parts.append(tail_of(self.subject, self.tokens, self._number(index).cast("int")))
        return F.concat(*parts) if len(parts) > 1 else parts[0]

    def _target_text(self, index: int) -> Column:
        return F.get(self.target["t"], F.lit(index))

    def _number(self, index: int) -> Column:
        return F.get(self.target["n"], F.lit(index))

    def _delimiters(self) -> Iterator[Column]:
        index = len(self.form.functions) + 1
        while True:
            yield self._target_text(index)
            index += 1

    def _cut(self, name: str, token: Column, number: Column, delimiters: Iterator[Column]) -> Column:
        if name == "wildcard":
            return token
        if name in ("split", "characters"):
            delimiter = next(delimiters)
            return split(token, delimiter if name == "split" else None)
        return CUTS[name](token, number.cast("int"))
