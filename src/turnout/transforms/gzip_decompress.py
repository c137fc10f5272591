"""GzipDecompress: what compressed bytes hold, up to a size."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar, Final

from turnout.errors import RecordError
from turnout.records import Schema
from turnout.records.types import DynamicValue
from turnout.transforms.contents import FIELDS, Contents, refused
from turnout.transforms.options import Option

_GZIP: Final = 16 + zlib.MAX_WBITS
"""Window bits by which zlib expects a header of gzip."""


def _positive(value: int | None) -> str | None:
    return None if value is not None and value > 0 else "expected a number of bytes above 0"


@dataclass(frozen=True, slots=True)
class GzipDecompress(Contents):
    """See ``summary``. Confluent's transform; `fields` and `max.bytes` are turnout's."""

    summary: ClassVar[str] = "Decompresses bytes that gzip has compressed; what is larger than max.bytes is a failure."
    java_names: ClassVar[tuple[str, ...]] = ("io.confluent.connect.transforms.GzipDecompress",)
    options: ClassVar[tuple[Option, ...]] = (
        FIELDS,
        Option("max.bytes", "INT", "The largest decompressed content, in bytes.", default=16 << 20, check=_positive),
    )

    max_bytes: int = 16 << 20

    def schema_of(self, schema: Schema) -> Schema:
        """See `Contents.schema_of`."""
        if schema.type != "bytes" or schema.logical:
            raise RecordError(f"expected bytes, found {schema.logical or schema.type}")
        return schema

    def converted(self, value: DynamicValue, schema: Schema | None) -> bytes:  # noqa: ARG002 - as the others
        """See `Contents.converted`."""
        if not isinstance(value, bytes):
            raise refused(value, "bytes")
        parts: list[bytes] = []
        left, rest = self.max_bytes, bytes(value)
        while rest or not parts:
            # A file of gzip may have several members, one behind the other.
            member = zlib.decompressobj(_GZIP)
            try:
                parts.append(member.decompress(rest, left + 1))
            except zlib.error as failure:
                raise RecordError(f"the value is not of gzip: {failure}") from failure
            left -= len(parts[-1])
            if left < 0:
                raise RecordError(f"the value has more than {self.max_bytes:,} bytes when it is decompressed")
            if not member.eof:
                raise RecordError("the value is not of gzip: it ends too early")
            rest = member.unused_data
        return b"".join(parts)
