"""GzipDecompress: what compressed bytes hold, up to a size."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar, Final

from turnout.errors import RecordError
from turnout.records import Batch, Schema
from turnout.records.types import Column, DynamicValue
from turnout.transforms.base import Errors
from turnout.transforms.contents import FIELDS, Contents, refused
from turnout.transforms.options import Option

_GZIP: Final = 16 + zlib.MAX_WBITS
"""Window bits by which zlib expects a header of gzip."""

MAX_BATCH: Final = 256 << 20
"""Decompressed bytes of a batch, after which no other content of it is decompressed; a run divides such a batch."""

_FIRST_PIECE: Final = 1 << 10
_LARGEST_PIECE: Final = 1 << 16


def _positive(value: int | None) -> str | None:
    return None if value is not None and value > 0 else "expected a number of bytes above 0"


@dataclass(frozen=True, slots=True)
class GzipDecompress(Contents):
    """See ``summary``. Confluent's transform; `fields` and `max.bytes` are turnout's."""

    summary: ClassVar[str] = "Decompresses bytes that gzip has compressed; a result larger than max.bytes is a failure."
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
        content = bytearray()
        offset = 0
        while offset < len(value) or not offset:
            # A file of gzip may have several members, one after the other.
            offset = self._add_member(memoryview(value), offset, content)
        return bytes(content)

    def _column(self, column: Column, schema: Schema | None, batch: Batch, errors: Errors) -> Column:
        return [self._bounded(index, value, schema, batch, errors) for index, value in enumerate(column)]

    def _bounded(
        self, index: int, value: DynamicValue, schema: Schema | None, batch: Batch, errors: Errors
    ) -> DynamicValue:
        if value is None:
            return None
        if batch.decompressed >= MAX_BATCH:
            batch.has_overflow = True
            errors[index] = RecordError(
                f"the records before it are decompressed to {batch.decompressed:,} bytes, and a batch to at most "
                f"{MAX_BATCH:,}: take fewer records at a time, or a smaller max.bytes"
            )
            return None
        try:
            content = self.converted(value, schema)
        except RecordError as error:
            errors.setdefault(index, error)
            return None
        batch.decompressed += len(content)
        return content

    def _add_member(self, value: memoryview, offset: int, content: bytearray) -> int:
        """Decompress the member at *offset* to the end of *content*, and return the offset after it.

        The value is read in pieces: the library copies what follows a member, and the whole rest for each of many small
        members would be quadratic.
        """
        member = zlib.decompressobj(_GZIP)
        size = _FIRST_PIECE
        while not member.eof:
            piece = value[offset : offset + size]
            if not len(piece):
                raise RecordError("the value is not of gzip: it ends too early")
            try:
                content += member.decompress(piece, self.max_bytes - len(content) + 1)
            except zlib.error as failure:
                raise RecordError(f"the value is not of gzip: {failure}") from failure
            if len(content) > self.max_bytes:
                raise RecordError(f"the value has more than {self.max_bytes:,} bytes when it is decompressed")
            offset += len(piece) - len(member.unused_data)
            size = min(2 * size, _LARGEST_PIECE)
        return offset
