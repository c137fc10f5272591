"""A custom codec: texts by name, as ``carrier=AA;delay=17``.

A package registers it in its pyproject.toml; routes can then use ``value: {format: pairs}``::

    [project.entry-points."turnout.codecs"]
    pairs = "pairs:KIND"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from turnout.codecs import CodecKind, Kind, Option, ValueNotation, decode_each, encode_each
from turnout.codecs.codec import Decoded
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema


class Pairs:
    """The format ``pairs``: schemaless objects of texts."""

    format = "pairs"
    class_name = "example.PairsConverter"

    def __init__(self, separator: str) -> None:
        self._separator = separator

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        return decode_each(rows, texts, self._read)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        return encode_each(block, self._write)

    def schema(self) -> Schema | None:
        return None

    def _read(self, text: bytes) -> dict[str, str]:
        pairs = [pair.partition("=") for pair in text.decode("utf-8", "replace").split(self._separator)]
        wrong = next((name for name, equals, _ in pairs if not equals), None)
        if wrong is not None:
            raise RecordError(f"expected name=text, found {wrong!r}")
        return {name: value for name, _, value in pairs}

    def _write(self, value: object) -> bytes:
        if not isinstance(value, Mapping):
            raise RecordError(f"expected an object, found {value!r}")
        return self._separator.join(f"{name}={text}" for name, text in value.items()).encode()


def _separator(text: object) -> str:
    if not isinstance(text, str) or not text or "=" in text:
        raise ValueError(f"expected a text without =, found {text!r}")
    return text


KIND: Final = CodecKind(
    "pairs",
    Pairs.class_name,
    "texts by name: `carrier=AA;delay=17`",
    Pairs,
    settings=(Option("separator", Kind(_separator, {"type": "string", "minLength": 1}), "what is between pairs", ";"),),
    notation=ValueNotation,
)
