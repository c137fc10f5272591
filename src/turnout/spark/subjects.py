"""Subject transforms, mappings and matching as Spark columns; the same results as ``turnout.subjects``.

A Spark string holds any bytes. Some functions (``split``, regular expressions) go through a Java string, which
replaces bytes that are not UTF-8; here such strings take a second way, as Latin-1, one character per byte.

Arguments are columns, so that one expression serves thousands of mappings whose arguments are data. What grows is the
number of different forms of sources and destinations; with many of them an Arrow function takes over.

FNV-1a needs the bytes as numbers, and Spark SQL has no function that gives them cheaply. But CRC-32 of four
bytes is one-to-one and linear: four table look-ups turn it back into the four bytes, as one number. So a key is
padded *in front* with zero bytes to a fixed length, which makes the hash straight-line arithmetic; a start value
that the padding's steps turn into FNV's own offset undoes the padding. docs/decisions/0002 has the figures.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from turnout.errors import ConfigError, Mistake, NotCompilableError
from turnout.subjects.arrays import Mapper
from turnout.subjects.functions import BITS, OFFSET, PRIME
from turnout.subjects.mapping import KEPT, LOST, MappingProgram, MappingTable, TargetForm
from turnout.subjects.pattern import BLANKS, FIXED, FULL, PARTIAL, SourceShape, decode, encode, shape_of
from turnout.subjects.transform import SubjectTransform, TokenStep

_LATIN1 = "ISO-8859-1"


def literal(text: str) -> Column:
    """Return a text as a column; surrogate escapes become the bytes that they represent."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return from_bytes(F.lit(bytearray(encode(text))))
    return F.lit(text)


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """*body* of *value*, which is computed once: a column has no other way to name a part of itself."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def as_bytes(text: Column) -> Column:
    """Return the bytes of a string."""
    return text.cast("binary")


def from_bytes(data: Column) -> Column:
    """Return the string of bytes, which need not be UTF-8."""
    return data.cast("string")


def as_latin1(text: Column) -> Column:
    """Return a string with one character per byte of *text*."""
    return F.decode(as_bytes(text), _LATIN1)


def from_latin1(text: Column) -> Column:
    """Inverse of `as_latin1`."""
    return from_bytes(F.encode(text, _LATIN1))


def bytes_of(text: Column, start: int | Column, length: int | Column) -> Column:
    """*length* bytes of a string from byte *start*, counted from 1."""
    return from_bytes(F.substring(as_bytes(text), start, length))


def split_tokens(text: Column) -> Column:
    """Return the tokens of a subject, an array of strings."""
    whole = F.split(text, r"\.", -1)
    bytewise = F.transform(F.split(as_latin1(text), r"\.", -1), from_latin1)
    return F.when(F.is_valid_utf8(text), whole).otherwise(bytewise)


def join(parts: Sequence[Column | str]) -> list[Column | str]:
    """Parts with dots between them, neighbouring texts as one: each piece of a concatenation costs a copy."""
    merged: list[Column | str] = []
    for index, part in enumerate(parts):
        for piece in [".", part] if index else [part]:
            last = merged[-1] if merged else None
            if isinstance(piece, str) and isinstance(last, str):
                merged[-1] = last + piece
            else:
                merged.append(piece)
    return merged


def draw_bits(seed: Sequence[Column | str], *, what: str) -> Column:
    """53 random bits that depend on the seed columns alone: a record keeps its choices when it is run again.

    Raises:
        ConfigError: when there is no seed.
    """
    if not seed:
        raise ConfigError([Mistake("seed", f"{what} makes random choices: name columns that identify a record")])
    return F.shiftrightunsigned(F.xxhash64(*seed), 64 - BITS)


def draw_of(bits: Column) -> Column:
    """Return the draw as the pure library takes it, a double in [0, 1)."""
    return bits.cast("double") * F.lit(2.0**-BITS)


def percent(bits: Column) -> Column:
    """Return the number from 0 to 99 that weights are compared with."""
    return (draw_of(bits) * F.lit(100.0)).cast("int")


def random_below(bits: Column, index: int | Column, number: Column) -> Column:
    """Return the value of ``random(number)`` at token *place* of a destination; *number* is above 0."""
    at = F.lit(index).cast("long") if isinstance(index, int) else index
    return F.pmod(F.xxhash64(bits, at), number.cast("long"))


_MAX_LISTED_NUMBERS = 8


def constant(value: object, ddl: str) -> Column:
    """Return a nested Python value as one constant: Spark folds the parsing of its JSON while it plans.

    Raises:
        NotCompilableError: when a text in it has bytes that are not UTF-8, which JSON cannot carry.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotCompilableError(value, "a subject that is not UTF-8 in a table of mappings") from None
    return F.from_json(F.lit(text), ddl)


def looked_up(key: Column, numbers: Mapping[str, int]) -> Column:
    """Return the number of a text in *numbers*; null without one.

    A few keys are compared in turn; more are spread over buckets by their CRC, so that the cost does not
    depend on how many there are.
    """
    if len(numbers) <= _MAX_LISTED_NUMBERS:
        mapped = F.lit(None).cast("int")
        for text, number in numbers.items():
            mapped = F.when(key == literal(text), F.lit(number)).otherwise(mapped)
        return mapped
    count = 1 << (len(numbers) - 1).bit_length()
    buckets: list[dict[str, int]] = [{} for _ in range(count)]
    for text, number in numbers.items():
        buckets[zlib.crc32(text.encode("utf-8", "surrogateescape")) & (count - 1)][text] = number
    table = constant([bucket or None for bucket in buckets], "array<map<string,int>>")
    bucket = F.get(table, F.crc32(as_bytes(key)).bitwiseAND(F.lit(count - 1)).cast("int"))
    return F.try_element_at(bucket, key)


# One well-formed UTF-8 sequence, or else one byte, of a string that is read as Latin-1.
_ONE_CHARACTER = (
    "[\\x00-\\x7F]|[\\xC2-\\xDF][\\x80-\\xBF]|\\xE0[\\xA0-\\xBF][\\x80-\\xBF]"
    "|[\\xE1-\\xEC\\xEE\\xEF][\\x80-\\xBF]{2}|\\xED[\\x80-\\x9F][\\x80-\\xBF]"
    "|\\xF0[\\x90-\\xBF][\\x80-\\xBF]{2}|[\\xF1-\\xF3][\\x80-\\xBF]{3}|\\xF4[\\x80-\\x8F][\\x80-\\xBF]{2}"
    "|[\\x80-\\xFF]"
)


def _split_from_left(token: Column, number: Column) -> Column:
    return F.concat(bytes_of(token, F.lit(1), number), F.lit("."), bytes_of(token, number + 1, F.octet_length(token)))


def _split_from_right(token: Column, number: Column) -> Column:
    head = F.octet_length(token) - number
    return F.concat(bytes_of(token, F.lit(1), head), F.lit("."), bytes_of(token, head + 1, number))


def _slices(token: Column, start: Column, size: Column) -> Column:
    starts = F.sequence(start, F.octet_length(token) - 1, size)
    return F.array_join(F.transform(starts, lambda at: bytes_of(token, at + 1, size)), ".")


def _slice_from_left(token: Column, size: Column) -> Column:
    return _slices(token, F.lit(0), size)


def _slice_from_right(token: Column, size: Column) -> Column:
    head = F.octet_length(token) % size
    front = F.when(head > 0, F.concat(bytes_of(token, F.lit(1), head), F.lit("."))).otherwise(F.lit(""))
    return F.concat(front, _slices(token, head, size))


def _left_part(token: Column, number: Column) -> Column:
    return bytes_of(token, F.lit(1), number)


def _right(token: Column, number: Column) -> Column:
    return bytes_of(token, F.octet_length(token) - number + 1, number)


def _longer(apply: Callable[[Column, Column], Column]) -> Callable[[Column, Column], Column]:
    """Return a cut that leaves tokens alone which are not longer than the number."""
    return lambda token, number: F.when(F.octet_length(token) > number, apply(token, number)).otherwise(token)


CUTS: dict[str, Callable[[Column, Column], Column]] = {
    "splitfromleft": _longer(_split_from_left),
    "splitfromright": _longer(_split_from_right),
    "slicefromleft": _longer(_slice_from_left),
    "slicefromright": _longer(_slice_from_right),
    "left": _longer(_left_part),
    "right": _longer(_right),
}
"""Functions of a token and a number above 0, by name."""


def split(token: Column, delimiter: Column | None) -> Column:
    """Compute ``split``: cut at *delimiter*, or between characters if it is None.

    Tokens have no dots, so the delimiter is first replaced by one. Empty pieces vanish, except that two
    delimiters at the start leave one empty token before the rest, as in the server.
    """
    if delimiter is None:
        whole = F.array_join(F.split(token, ""), ".")
        bytewise = from_latin1(F.array_join(F.regexp_extract_all(as_latin1(token), F.lit(_ONE_CHARACTER), 0), "."))
        return F.when(F.is_valid_utf8(token), whole).otherwise(bytewise)
    dotted = F.replace(token, delimiter, F.lit("."))
    pieces = F.array_join(F.filter(split_tokens(dotted), lambda piece: piece != ""), ".")
    quirk = dotted.startswith("..") & (pieces != "")
    general = F.when(quirk, F.concat(F.lit("."), pieces)).otherwise(pieces)
    return F.when(F.contains(dotted, F.lit("..")), general).otherwise(F.btrim(dotted, F.lit(".")))


STRAIGHT = 16
"""Keys of at most this many bytes are hashed by straight-line code, longer ones by a loop.

More would be faster for longer keys, but a generated method of more than 8,000 bytes of bytecode is never
compiled by the JVM, and everything in it then runs fifty times slower (seen with 16 and 32 side by side).
"""

_MASK = 2**32 - 1
_WORD = 4


def fnv1a(text: Column) -> Column:
    """Return the hash of a string's bytes, a long from 0 to 2**32 - 1; null for null.

    Spark shares the parts of this expression that repeat only where it is sure to evaluate them: keep it out of
    the branches of a CASE, or a row costs several times as much.
    """
    # greatest() skips nulls and, unlike coalesce(), is sure to evaluate every argument.
    return F.greatest(_straight(text), hash_by_loop(F.when(F.octet_length(text) > STRAIGHT, text)))


def _straight(text: Column) -> Column:
    """Return the hash of a string of at most `STRAIGHT` bytes; null for a longer one."""
    backwards = pow(PRIME, -1, _MASK + 1)
    starts = [OFFSET * pow(backwards, STRAIGHT - n, _MASK + 1) % (_MASK + 1) for n in range(STRAIGHT + 1)]
    # Past the end of the start values there is null, and so for longer keys.
    state = F.get(constant(starts, "array<bigint>"), F.octet_length(text))
    text_or_empty = F.coalesce(text, F.lit(""))
    zeros = F.substring(F.lit(bytearray(STRAIGHT)), F.lit(1), F.lit(STRAIGHT) - F.octet_length(text_or_empty))
    data = F.concat(zeros, as_bytes(text_or_empty))
    for word in range(0, STRAIGHT, _WORD):
        four = _number(F.substring(data, word + 1, _WORD))
        for shift in range(0, 8 * _WORD, 8):
            state = _step(state, F.shiftright(four, shift).bitwiseAND(F.lit(255)))
    return state


def _step(state: Column, byte: Column) -> Column:
    return (state.bitwiseXOR(byte) * F.lit(PRIME)).bitwiseAND(F.lit(_MASK))


def _number(four: Column) -> Column:
    """Four bytes as a number, the first one lowest: the inverse of their CRC-32."""
    crc = F.crc32(four)
    number: Column | None = None
    for index, table in enumerate(_inverse_tables()):
        byte = F.shiftright(crc, 8 * index).bitwiseAND(F.lit(255)).cast("int")
        # Never out of range; the coalesce declares it to Spark, which saves two thirds of the code.
        part = F.coalesce(F.get(constant(table, "array<bigint>"), byte), F.lit(0).cast("long"))
        number = part if number is None else number.bitwiseXOR(part)
    assert number is not None
    return number


@cache
def _inverse_tables() -> tuple[list[int], ...]:
    """For each byte of a CRC-32, what it contributes to the four bytes that have it."""
    empty_crc = zlib.crc32(bytes(_WORD))
    # Pairs of a CRC (less the constant part) and the word that has it, one pair per leading bit.
    pairs: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        word = 1 << bit
        crc = zlib.crc32(word.to_bytes(_WORD, "little")) ^ empty_crc
        while crc and crc.bit_length() in pairs:
            other_crc, other_word = pairs[crc.bit_length()]
            crc, word = crc ^ other_crc, word ^ other_word
        pairs[crc.bit_length()] = (crc, word)

    def inverse(crc: int) -> int:
        word = 0
        while crc:
            other_crc, other_word = pairs[crc.bit_length()]
            crc, word = crc ^ other_crc, word ^ other_word
        return word

    tables = tuple([inverse(byte << (8 * index)) for byte in range(256)] for index in range(_WORD))
    tables[0][:] = [word ^ inverse(empty_crc) for word in tables[0]]
    return tables


def hash_by_loop(text: Column) -> Column:
    """Return the hash of a string of any length, one character at a time."""
    is_ascii = F.is_valid_utf8(text) & (F.octet_length(text) == F.char_length(text))
    characters = F.split(F.when(is_ascii, text).otherwise(as_latin1(text)), "")
    start = F.lit(OFFSET).cast("long")
    hashed = F.aggregate(characters, start, lambda state, character: _step(state, F.ascii(character).cast("long")))
    # The empty string splits into one empty piece, which is no byte.
    return F.when(F.octet_length(text) == 0, start).otherwise(hashed)


def subject_matches(pattern: str, column: Column | str) -> Column:
    """Return a column that is true if a subscription on *pattern* receives the subject; never null.

    As `turnout.subjects.matches`: a pattern or a subject with an empty token matches nothing.
    """
    subject = F.col(column) if isinstance(column, str) else column
    pattern_tokens = pattern.split(".")
    if "" in pattern_tokens or FULL in pattern_tokens[:-1]:
        return F.lit(False) & subject.isNotNull()
    if PARTIAL not in pattern_tokens and FULL not in pattern_tokens:
        return F.coalesce(subject == literal(pattern), F.lit(False))
    tokens = split_tokens(subject)
    fits = tokens_fit(tokens, pattern_tokens) & ~F.array_contains(tokens, "")
    return F.coalesce(fits, F.lit(False))


def tokens_fit(tokens: Column, pattern_tokens: Sequence[str]) -> Column:
    """Return a column that is true if the number of tokens fits and the fixed ones are equal."""
    full = pattern_tokens[-1] == FULL
    fits = F.size(tokens) >= len(pattern_tokens) if full else F.size(tokens) == len(pattern_tokens)
    for index, pattern_token in enumerate(pattern_tokens):
        if pattern_token not in (PARTIAL, FULL):
            fits = fits & (F.get(tokens, F.lit(index)) == literal(pattern_token))
    return fits


def is_literal(tokens: Column) -> Column:
    """Return a column that is true if no token is empty or a wildcard, as in every published subject."""
    return ~(F.array_contains(tokens, "") | F.array_contains(tokens, PARTIAL) | F.array_contains(tokens, FULL))


def subject_is_publishable(column: Column | str) -> Column:
    """Return a column that is true if a message with this subject can reach a subscriber; never null, false for null.

    False for an empty token, a wildcard, a blank, and for bytes that are not UTF-8: a server delivers the last,
    but most clients (and Kafka) cannot name such a subject.
    """
    subject = F.col(column) if isinstance(column, str) else column
    blank = F.lit(False)
    for character in BLANKS:
        blank = blank | F.contains(subject, F.lit(character))
    return F.coalesce(F.is_valid_utf8(subject) & ~blank & is_literal(split_tokens(subject)), F.lit(False))


def transform_subject(
    transform: SubjectTransform,
    column: Column | str,
    *,
    seed: Sequence[Column | str] = (),
    unmatched: Column | None = None,
) -> Column:
    """Transform the column's subjects.

    Args:
        transform: the transform.
        column: the subjects, strings. Their bytes are kept as they are, UTF-8 or not.
        seed: columns that identify a record; needed where the destination has ``random(n)``.
        unmatched: the value where the source does not match or the subject is no literal subject; null if not
            given. ``F.raise_error(…)`` fails the query there, the column itself keeps the subject.

    Returns:
        A string column; null where the subject is null. A cut through a character gives bytes that are not
        UTF-8, as in the server: see `subject_is_publishable`.

    Raises:
        ConfigError: when the destination has ``random(n)`` and there is no seed.
    """
    subject = F.col(column) if isinstance(column, str) else column
    if transform.is_identity or (transform.source == FULL and transform.destination == FULL):
        return subject
    tokens = split_tokens(subject)
    bits = draw_bits(seed, what=f"the transform to {transform.destination!r}") if transform.is_random else F.lit(0)
    parts: list[Column | str] = [
        step.literal if step.literal is not None else _value(step, index, subject, tokens, bits)
        for index, step in enumerate(transform.steps)
    ]
    if transform.tail is not None:
        parts.append(tail_of(subject, tokens, F.lit(transform.tail)))
    # Not CASE WHEN matches THEN parts: Spark shares repeated parts of an expression only outside branches.
    head, *others = join(parts)
    matches = _matches(transform.source, subject, tokens)
    if isinstance(head, str):
        head = F.when(matches, literal(head))
    else:
        others = [head, *others]
        head = F.when(matches, F.lit(""))
    result = F.concat(head, *[literal(part) if isinstance(part, str) else part for part in others]) if others else head
    return result if unmatched is None else F.coalesce(result, F.when(subject.isNotNull(), unmatched))


def _matches(source: str, subject: Column, tokens: Column) -> Column:
    """Return a column that is true if a literal subject matches the source."""
    if shape_of(source).is_literal:
        return subject == literal(source)
    pattern_tokens = source.split(".")
    fits = tokens_fit(tokens, pattern_tokens)
    if pattern_tokens[-1] == FULL:
        return fits & is_literal(tokens)
    # Tokens equal to one of the source are literal: only the others are left to compare.
    for index, pattern_token in enumerate(pattern_tokens):
        if pattern_token == PARTIAL:
            fits = fits & ~F.get(tokens, F.lit(index)).isin("", PARTIAL, FULL)
    return fits


def tail_of(subject: Column, tokens: Column, skipped: Column) -> Column:
    """Return the tokens that ``>`` matches, joined: all but the first *skipped*; at least one token is left."""
    return F.call_function("substring_index", subject, F.lit("."), skipped - F.size(tokens))


def _value(step: TokenStep, index: int, subject: Column, tokens: Column, bits: Column) -> Column | str:
    """Return the value of one placeholder."""
    call = step.call
    assert call is not None
    number = call.number or 0
    named = [F.get(tokens, F.lit(token)) for token in step.tokens]
    if call.function == "wildcard":
        return named[0]
    if call.function == "partition":
        buckets = number % 2**32
        key = F.concat(*named) if len(named) > 1 else named[0] if named else subject
        return (fnv1a(key) % F.lit(buckets).cast("long")).cast("string") if buckets else "0"
    if call.function == "random":
        return random_below(bits, index, F.lit(abs(number))).cast("string") if number else "0"
    if call.function == "split":
        return split(named[0], literal(call.delimiter) if call.delimiter else None)
    return CUTS[call.function](named[0], F.lit(number)) if number > 0 else named[0]


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
