"""Reader of Avro object container files (Avro 1.12, "Object Container Files"): their schema, and their values."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from turnout.codecs.avro.reading import MalformedError, reader_of
from turnout.codecs.avro.types import parse_schema
from turnout.records.types import DynamicValue

MAX_BLOCK: Final = 256 << 20
"""Bytes of a block that is unpacked: files have some 16 or 64 KB, and a small one may claim any number."""

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_CHECKSUM: Final = 4
_MAX_EMPTY: Final = 1_000_000
"""Values of a block that take no bytes."""

_metadata = reader_of(parse_schema('{"type": "map", "values": "bytes"}'))
_long = reader_of(parse_schema("long"))
_bytes = reader_of(parse_schema("bytes"))


class AvroObjectFile:
    """Values of one file.

    Args:
        content: content of the whole file.

    Attributes:
        type: Avro type of the values.
        codec: name of the compression of its blocks.

    Raises:
        MalformedError: it is no such file, or its schema or compression is not supported.
    """

    def __init__(self, content: bytes) -> None:
        if not content.startswith(_MAGIC):
            raise MalformedError(f"expected an Avro object file, which begins with {_MAGIC!r}, found {content[:4]!r}")
        metadata, end = _metadata(content, len(_MAGIC))
        self.codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
        if self.codec not in _CODECS:
            raise MalformedError(f"expected one of the codecs {', '.join(_CODECS)}, found {self.codec!r:.60}")
        if "avro.schema" not in metadata:
            raise MalformedError("expected the schema as avro.schema in the file's metadata, found none")
        try:
            self.type = parse_schema(metadata["avro.schema"].decode())
        except ValueError as wrong:
            raise MalformedError(f"its schema: {wrong}") from None
        self._content, self._begin = content, end + _SYNC
        self._sync = content[end : end + _SYNC]
        if len(self._sync) < _SYNC:
            raise MalformedError("the file ends within its header")

    def blocks(self) -> Iterator[list[DynamicValue]]:
        """Yield the values of each block, as their Connect schema has them.

        Raises:
            MalformedError: a block is cut off, damaged or not of the schema; those before it were given.
        """
        read, unpack, at = reader_of(self.type), _CODECS[self.codec], self._begin
        while at < len(self._content):
            start = at
            try:
                count, at = _long(self._content, at)
                data, at = _bytes(self._content, at)
                if self._content[at : at + _SYNC] != self._sync:
                    raise MalformedError("expected the file's sync marker behind the block")  # noqa: TRY301 - as the others
                yield _values(read, unpack(data), count)
            except MalformedError as wrong:
                raise MalformedError(f"the block at byte {start}: {wrong}") from None
            at += _SYNC


def _values(read: Callable[[bytes, int], tuple[DynamicValue, int]], data: bytes, count: int) -> list[DynamicValue]:
    if not 0 <= count <= max(len(data), _MAX_EMPTY):
        raise MalformedError(f"expected the values of {len(data)} bytes, found the count {count}")
    values, at = [], 0
    for _ in range(count):
        value, at = read(data, at)
        values.append(value)
    if at != len(data):
        raise MalformedError(f"expected the end of the block after {count} values, found {len(data) - at} bytes more")
    return values


@contextmanager
def _as_malformed(*failures: type[Exception]) -> Iterator[None]:
    try:
        yield
    except failures as wrong:
        raise MalformedError(f"it cannot be unpacked: {wrong}") from None


def _check_size(size: int) -> None:
    if size > MAX_BLOCK:
        raise MalformedError(f"expected at most {MAX_BLOCK} bytes unpacked, found more")


def _limited(data: bytes) -> bytes:
    _check_size(len(data))
    return data


def _deflate(data: bytes) -> bytes:
    with _as_malformed(zlib.error):
        return _limited(zlib.decompressobj(-15).decompress(data, MAX_BLOCK + 1))


def _bzip2(data: bytes) -> bytes:
    with _as_malformed(OSError, EOFError):
        return _limited(bz2.BZ2Decompressor().decompress(data, MAX_BLOCK + 1))


def _xz(data: bytes) -> bytes:
    with _as_malformed(lzma.LZMAError, EOFError):
        return _limited(lzma.LZMADecompressor(memlimit=MAX_BLOCK).decompress(data, MAX_BLOCK + 1))


def _zstandard(data: bytes) -> bytes:
    import pyarrow as pa

    with _as_malformed(OSError), pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return _limited(stream.read(MAX_BLOCK + 1))


def _snappy(data: bytes) -> bytes:
    """Unpack a block with its length as a varint before it and the CRC-32 of its content behind it."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    unpacked = _raw("snappy", data[:-_CHECKSUM], size)
    if zlib.crc32(unpacked) != int.from_bytes(data[-_CHECKSUM:], "big"):
        raise MalformedError("its checksum is wrong")
    return unpacked


def _lz4(data: bytes) -> bytes:
    """Unpack a block with its length in four bytes before it, little endian."""
    return _raw("lz4_raw", data[4:], int.from_bytes(data[:4], "little"))


def _raw(codec: str, data: bytes, size: int) -> bytes:
    import pyarrow as pa

    _check_size(size)
    with _as_malformed(OSError, pa.ArrowInvalid):
        unpacked: bytes = pa.decompress(data, size, codec, asbytes=True)
    return unpacked


_CODECS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _bzip2,
    "xz": _xz,
    "lz4": _lz4,
}
