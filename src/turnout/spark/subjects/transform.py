"""Subject transforms, patterns and partition numbers as columns.

A Spark string holds any bytes. Some functions (``split``, regular expressions) go through a Java string, which
replaces bytes that are not UTF-8; here such strings take a second way, as Latin-1, one character per byte.

Arguments are columns, so that one expression serves thousands of mappings whose arguments are data.

FNV-1a needs the bytes as numbers, and Spark SQL has no function that gives them cheaply. But CRC-32 of four
bytes is one-to-one and linear: four table look-ups turn it back into the four bytes, as one number. So a key is
padded *in front* with zero bytes to a fixed length, which makes the hash straight-line arithmetic; a start value
that the padding's steps turn into FNV's own offset undoes the padding. docs/decisions/0002 has the figures.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.errors import ConfigError, Mistake, NotCompilableError
from turnout.subjects.functions import BITS, OFFSET, PRIME
from turnout.subjects.pattern import BLANKS, FULL, PARTIAL, encode, shape_of
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
    table = constant(_null_where_empty(buckets), "array<map<string,int>>")
    bucket = F.get(table, F.crc32(as_bytes(key)).bitwiseAND(F.lit(count - 1)).cast("int"))
    return F.try_element_at(bucket, key)


def _null_where_empty(buckets: Sequence[dict[str, int]]) -> list[dict[str, int] | None]:
    return [bucket or None for bucket in buckets]


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
