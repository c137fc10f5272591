"""Notation of keys and values in tests, ``explain`` and the sandbox: plain JSON for the bytes of a format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from turnout.codecs.codec import Codec, EncodeErrors
from turnout.codecs.json_reading import Reader
from turnout.errors import RecordError
from turnout.records import group
from turnout.records.block import rows_of
from turnout.records.text import json_of
from turnout.records.types import Value


class Notation(Protocol):
    """Keys or values of a format as plain JSON.

    >>> from turnout.codecs import Format, notation_of
    >>> notation_of(Format("boolean")).decode(bytes([1]))
    True
    """

    def encode(self, plain: Value) -> bytes | None:
        """Return the bytes of a written value.

        Raises:
            ValueError: it has no bytes; names the expected form.
        """
        ...

    def decode(self, content: bytes | None) -> Value:
        """Return the notation of these bytes; the bytes themselves if they cannot be decoded."""
        ...


@dataclass(frozen=True, slots=True)
class TextNotation:
    """Notation of bytes that are text: a text stands for its bytes, anything else for its JSON.

    >>> TextNotation().encode("x"), TextNotation().encode({"n": 1}), TextNotation().decode(b'{"n": 1}')
    (b'x', b'{"n": 1}', {'n': 1})
    """

    codec: Codec | None = None

    def encode(self, plain: Value) -> bytes | None:
        """See `Notation.encode`."""
        if plain is None:
            return None
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, default=_date_text)
        return text.encode()

    def decode(self, content: bytes | None) -> Value:
        """Return the bytes as JSON if they are JSON, else as text; see `Notation.decode`."""
        if content is None:
            return None
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content
        try:
            plain: Value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return plain


@dataclass(frozen=True, slots=True)
class ValueNotation:
    """Notation of bytes that are no text: the decoded value, as JSON. A text that is no value stands for its bytes.

    >>> from turnout.codecs import Format, notation_of
    >>> notation = notation_of(Format("long"))
    >>> list(notation.encode(17)), notation.decode(bytes([0, 0, 0, 0, 0, 0, 1, 0])), notation.decode(b"x")
    ([0, 0, 0, 0, 0, 0, 0, 17], 256, 'x')
    """

    codec: Codec

    def encode(self, plain: Value) -> bytes | None:
        """See `Notation.encode`."""
        (block,) = group(rows_of(1), self.codec.schema(), [plain], checked=False)
        try:
            return self.codec.encode(block)[0]
        except (RecordError, EncodeErrors) as failure:
            if isinstance(plain, str):
                return plain.encode()
            reason = failure if isinstance(failure, RecordError) else failure.errors[0]
            raise ValueError(str(reason)) from failure

    def decode(self, content: bytes | None) -> Value:
        """See `Notation.decode`."""
        blocks, errors = self.codec.decode(rows_of(1), [content])
        if errors:
            return TextNotation().decode(content)
        (block,) = (block for block in blocks if len(block))
        plain: Value = json_of(block.whole()[0], block.schema)
        return plain


@dataclass(frozen=True, slots=True)
class SchemaNotation(ValueNotation):
    """Notation of bytes that are values of one schema: plain JSON, read by that schema.

    Times are ISO 8601 texts, decimals numbers, bytes base64; a field that is left out is null. A text that is no value
    stands for its bytes.
    """

    def encode(self, plain: Value) -> bytes | None:
        """See `Notation.encode`."""
        schema = self.codec.schema()
        if plain is None or schema is None:
            return ValueNotation.encode(self, plain)
        text = json.dumps(plain, ensure_ascii=False, default=_date_text).encode()
        blocks, errors = Reader.plain(schema).read(rows_of(1), [text])
        if errors:
            if isinstance(plain, str):
                return plain.encode()
            raise ValueError(str(errors[0]))
        (block,) = blocks
        try:
            return self.codec.encode(block)[0]
        except (RecordError, EncodeErrors) as failure:
            reason = failure if isinstance(failure, RecordError) else failure.errors[0]
            raise ValueError(str(reason)) from failure


def _date_text(value: object) -> str:
    """Return a value that YAML parsed as a time as the text it was written as."""
    if isinstance(value, date):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"no JSON for {value!r}")
