"""JSON without a schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from turnout.codecs.codec import Decoded, attempt
from turnout.codecs.reading import SchemalessReader
from turnout.codecs.tombstones import with_tombstones
from turnout.codecs.writing import encode_json
from turnout.records import Block, Positions, Schema

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
"""Connect's class for JSON, with and without schemas."""


@dataclass(frozen=True, slots=True)
class SchemalessJson:
    """The format ``json``: any JSON; the JSON null is a tombstone.

    Written is what the values hold, whether they have a schema or not, without it.
    """

    format: ClassVar[str] = "json"
    class_name: ClassVar[str] = JSON_CONVERTER

    _reader: SchemalessReader = field(default_factory=SchemalessReader)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._reader.read)

    def encode(self, block: Block) -> list[bytes | None]:
        """See `Codec.encode`."""
        return attempt(*encode_json(block))

    def schema(self) -> Schema | None:
        """Return None: the format has no schema."""
        return None
