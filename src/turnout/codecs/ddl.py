"""Spark's notation of a struct (``a INT, b STRING NOT NULL, c ARRAY<DATE>``) as a schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from turnout.base.terminal import nearest
from turnout.records.schema import ANY, DATE, DECIMAL, DIGITS, TIMESTAMP, Field, Schema

_SIMPLE: Mapping[str, Schema] = MappingProxyType(
    {
        "TINYINT": Schema("int8", True),
        "BYTE": Schema("int8", True),
        "SMALLINT": Schema("int16", True),
        "SHORT": Schema("int16", True),
        "INT": Schema("int32", True),
        "INTEGER": Schema("int32", True),
        "BIGINT": Schema("int64", True),
        "LONG": Schema("int64", True),
        "FLOAT": Schema("float32", True),
        "REAL": Schema("float32", True),
        "DOUBLE": Schema("float64", True),
        "BOOLEAN": Schema("boolean", True),
        "STRING": Schema("string", True),
        "BINARY": Schema("bytes", True),
        "DATE": Schema("int32", True, name=DATE, version=1),
        "TIMESTAMP": Schema("int64", True, name=TIMESTAMP, version=1),
        "TIMESTAMP_NTZ": Schema("int64", True, name=TIMESTAMP, version=1),
        "TIMESTAMP_LTZ": Schema("int64", True, name=TIMESTAMP, version=1),
        "VARIANT": Schema(ANY, True),
    }
)
_SIZED = ("VARCHAR", "CHAR", "CHARACTER")
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_NESTED = ("STRUCT", "ARRAY", "MAP")
_MAX_DEPTH = 100
_TYPES = (*_SIMPLE, *_SIZED, *_DECIMALS, *_NESTED)

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<word>\w+)
      | `(?P<quoted>(?:[^`]|``)*)`
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<mark>[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)


class DdlError(ValueError):
    """Raised when a text is no list of columns.

    Attributes:
        position: position of the error, in characters from 0.

    >>> parse_ddl("city STRNG")
    Traceback (most recent call last):
        ...
    turnout.codecs.ddl.DdlError: at character 6: found 'STRNG', expected a type; did you mean STRING?
    """

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"at character {position + 1}: {problem}")
        self.position = position


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared type.

    Attributes:
        schema: its Connect schema: a decimal has its scale there, and not its precision.
        digits: the precision of a decimal.
        inner: the types of a struct's fields in their order, or of an array's or a map's values.
    """

    schema: Schema
    digits: int = DIGITS
    inner: tuple[Declared, ...] = ()


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse_ddl(text: str) -> Declared:
    """Return the struct that a list of columns declares, or ``STRUCT<…>``; each is optional unless it is ``NOT NULL``.

    Raises:
        DdlError: when it cannot be read; names the place and what was expected.

    >>> schema = parse_ddl("city STRING NOT NULL, total DECIMAL(10, 2), tags ARRAY<STRING>").schema
    >>> [(field.name, field.schema.type, field.schema.optional) for field in schema.fields]
    [('city', 'string', False), ('total', 'bytes', True), ('tags', 'array', True)]
    """
    parser = _DdlParser(text)
    declared = parser.whole() if parser.is_struct() else parser.columns("")
    parser.end()
    return declared


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise DdlError(f"found {text[position]!r}, expected a name, a type or punctuation", position)
        kind = str(match.lastgroup)
        if kind != "space":
            yield _Token(kind, match[kind], position)
        position = match.end()
    yield _Token("end", "", len(text))


class _DdlParser:
    """Parser of one text, from left to right."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self._depth = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def is_struct(self) -> bool:
        """Return True if the text is the type of a struct, and not its columns."""
        return self._is("STRUCT") and self.tokens[1].text == "<"

    def whole(self) -> Declared:
        return self._type()

    def end(self) -> None:
        if self.next.kind != "end":
            raise self._unexpected("a comma or the end")

    def columns(self, closing: str) -> Declared:
        """Columns up to the end, or up to *closing*, which is not consumed."""
        names: dict[str, Schema] = {}
        inner: list[Declared] = []
        while not (closing and not names and self.next.text == closing):
            token = self.next
            name, declared = self._column()
            if name in names:
                raise DdlError(f"the column {name!r} occurs twice", token.position)
            names[name] = declared.schema
            inner.append(declared)
            if not self._take_mark(","):
                break
        fields = tuple(Field(name, schema) for name, schema in names.items())
        return Declared(Schema("struct", True, fields=fields), inner=tuple(inner))

    def _column(self) -> tuple[str, Declared]:
        token = self.next
        if token.kind not in ("word", "quoted"):
            raise self._unexpected("a column's name")
        self.at += 1
        self._take_mark(":")
        declared = self._type()
        if self._take_word("NOT"):
            if not self._take_word("NULL"):
                raise self._unexpected("NULL after NOT")
            declared = Declared(declared.schema.with_(optional=False), declared.digits, declared.inner)
        if self._take_word("COMMENT"):
            if self.next.kind != "text":
                raise self._unexpected("a text in quotes after COMMENT")
            self.at += 1
        return token.text.replace("``", "`") if token.kind == "quoted" else token.text, declared

    def _type(self) -> Declared:
        token = self.next
        name = token.text.upper()
        if token.kind != "word" or name not in _TYPES:
            raise self._unexpected("a type", nearest(name, _TYPES) if token.kind == "word" else None)
        self.at += 1
        if name in _DECIMALS:
            return self._decimal()
        if name in _NESTED:
            if self._depth == _MAX_DEPTH:
                raise DdlError(f"expected at most {_MAX_DEPTH} types inside of each other", token.position)
            self._depth += 1
            declared = self._nested(name)
            self._depth -= 1
            return declared
        if name in _SIZED:
            self._numbers(1, 1)
            return Declared(_SIMPLE["STRING"])
        return Declared(_SIMPLE[name])

    def _decimal(self) -> Declared:
        position = self.next.position
        numbers = self._numbers(1, 2) if self.next.text == "(" else [10]
        digits, scale = (*numbers, 0)[:2]
        if not 1 <= digits <= DIGITS:
            raise DdlError(f"found {digits} digits, expected 1 to {DIGITS}", position)
        if scale > digits:
            raise DdlError(f"found a scale of {scale}, expected at most the {digits} digits", position)
        schema = Schema("bytes", True, name=DECIMAL, version=1, parameters=(("scale", str(scale)),))
        return Declared(schema, digits)

    def _nested(self, name: str) -> Declared:
        self._mark("<")
        if name == "STRUCT":
            declared = self.columns(">")
            self._mark(">")
            return declared
        if name == "MAP":
            position = self.next.position
            key = self._type().schema
            if key.type != "string":
                raise DdlError("a map in JSON has names as keys, expected MAP<STRING, …>", position)
            self._mark(",")
            values = self._type()
            schema = Schema("map", True, keys=key, values=values.schema)
        else:
            values = self._type()
            schema = Schema("array", True, values=values.schema)
        self._mark(">")
        return Declared(schema, inner=(values,))

    def _numbers(self, least: int, most: int) -> list[int]:
        """Whole numbers in parentheses."""
        self._mark("(")
        numbers: list[int] = []
        while len(numbers) < most:
            if not self.next.text.isdecimal() or len(self.next.text) > 9:
                raise self._unexpected("a whole number")
            numbers.append(int(self.next.text))
            self.at += 1
            if len(numbers) < least or len(numbers) == most or not self._take_mark(","):
                break
        self._mark(")")
        return numbers

    def _is(self, word: str) -> bool:
        return self.next.kind == "word" and self.next.text.upper() == word

    def _take_word(self, word: str) -> bool:
        matches = self._is(word)
        self.at += matches
        return matches

    def _take_mark(self, mark: str) -> bool:
        matches = self.next.kind == "mark" and self.next.text == mark
        self.at += matches
        return matches

    def _mark(self, mark: str) -> None:
        if not self._take_mark(mark):
            raise self._unexpected(repr(mark))

    def _unexpected(self, expected: str, guess: str | None = None) -> DdlError:
        token = repr(self.next.text) if self.next.kind != "end" else "the end"
        hint = f"; did you mean {guess}?" if guess else ""
        return DdlError(f"found {token}, expected {expected}{hint}", self.next.position)
