"""MessagePack: schemaless values of any shape, with binary data, timestamps and extensions."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.msgpack import Encoder, Ext

from turnout.codecs.codec import Codec, CodecKind, Decoded, ValueNotation, encode_each, with_tombstones
from turnout.codecs.json_reading import SchemalessReader
from turnout.errors import MissingExtraError, RecordError
from turnout.records import BigInt, Block, Moment, Positions, Schema, Struct
from turnout.records.types import DynamicValue, Value

if TYPE_CHECKING:
    from types import ModuleType

MAX_DEPTH: Final = 200
"""Maximum number of arrays and maps inside one another."""

_LIBRARY_DEPTH: Final = 1024
"""Depth at which the library stops."""

_TIMESTAMP: Final = -1
"""Type of the extension that the specification reserves for timestamps."""

_END: Final = secrets.token_bytes(16)
_SENTINEL: Final = b"\xd8\x7f" + _END
"""Extension behind each text. The library ignores bytes behind a value, so they would be lost silently; other processes
cannot write this one."""

_CONTAINERS: Final = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
"""First bytes of maps and arrays."""

_UNSIGNED: Final = b"\xcf"
"""First byte of an unsigned integer of 64 bits, which may be beyond Connect's int64."""

_NESTED: Final = frozenset({dict, list, tuple, Struct})
"""Types of values that can hold a struct."""

_MOMENTS: Final = range(-(2**63) // 1000, 2**63 // 1000)
"""Milliseconds of the timestamps that are read as such: their microseconds fit 64 bits."""


class PreciseMoment(Moment):
    """Timestamp that is finer than a millisecond, and is written as it was read.

    Attributes:
        nanoseconds: those beyond the millisecond, below a million.

    >>> moment = PreciseMoment.of(7, 250)
    >>> moment == Moment(7), moment.nanoseconds
    (True, 250)
    """

    nanoseconds: int

    @classmethod
    def of(cls, milliseconds: int, nanoseconds: int) -> PreciseMoment:
        """Return the moment *nanoseconds* after *milliseconds* since 1970."""
        moment = cls(milliseconds)
        moment.nanoseconds = nanoseconds
        return moment


class Extension(bytes):
    """Extension of an unknown type, which is written as it was read.

    Attributes:
        kind: the extension's type, from -128 to 127.
    """

    kind: int

    @classmethod
    def of(cls, kind: int, data: bytes) -> Extension:
        """Return the extension of this type and content."""
        extension = cls(data)
        extension.kind = kind
        return extension


class MessagePack:
    """The format ``msgpack``: schemaless values.

    Timestamps are date objects, other extensions bytes, and integers from 2^63 on `BigInt`. Values with a schema are
    written as their contents: structs as maps, date objects as timestamps, decimals as texts.

    Source: the MessagePack specification, with the timestamp extension type.
    """

    format: ClassVar[str] = "msgpack"
    class_name: ClassVar[str] = "turnout.codecs.msgpack.MessagePack"

    def __init__(self) -> None:
        self._library = _library()
        self._reader = SchemalessReader(self._read, self._read, "MessagePack")

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`. A nil is a tombstone."""
        return with_tombstones(rows, texts, self._reader.read)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        return encode_each(block, _write if _is_flat(block) else lambda value: _write(_without_structs(value)))

    def schema(self) -> Schema | None:
        """Return None: the format has no schema."""
        return None

    def _read(self, text: bytes) -> DynamicValue:
        """Return the value of a text.

        Raises:
            ValueError: it is no MessagePack, nested too deep, or has bytes left over.
        """
        head = b"\x92"
        if len(text) - len(text.translate(None, _CONTAINERS)) > MAX_DEPTH:
            # Only such a text may be too deep. Inside so many arrays the library's own limit is ours.
            head = b"\x91" * (_LIBRARY_DEPTH - MAX_DEPTH - 2) + head
        found = self._library.unpackb(
            head + text + _SENTINEL, ext_hook=_extension, option=self._library.OPT_NON_STR_KEYS
        )
        while len(found) == 1:
            (found,) = found
        value, end = found
        if end is not _SENTINEL:
            raise ValueError("there are bytes behind the value")
        return _checked(value) if _UNSIGNED in text else value


def _is_flat(block: Block) -> bool:
    columns = block.columns.values() if block.kind == "object" else [block.values] if block.kind == "plain" else []
    return all(_NESTED.isdisjoint(map(type, column)) for column in columns)


def _write(value: Value) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        raise RecordError(f"the value cannot be written as MessagePack: {failure}") from failure


def _without_structs(value: DynamicValue) -> DynamicValue:
    """Return a value with maps in place of structs, which msgspec would write with their schemas."""
    if isinstance(value, Struct):
        value = value.fields
    if type(value) is dict:
        return {name: _without_structs(item) for name, item in value.items()}
    if type(value) is list or type(value) is tuple:
        return [_without_structs(item) for item in value]
    return value


def _plain(value: Value) -> DynamicValue:
    """Return a value as something that msgspec writes."""
    if isinstance(value, Moment):
        return Ext(_TIMESTAMP, _timestamp_bytes(value))
    if isinstance(value, Extension):
        return Ext(value.kind, bytes(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"a {type(value).__name__} has no form in it")


_encode: Final = Encoder(enc_hook=_plain).encode


def _library() -> ModuleType:
    try:
        import ormsgpack
    except ImportError as absent:
        raise MissingExtraError("msgpack", "ormsgpack") from absent
    return ormsgpack


def _extension(kind: int, data: bytes) -> DynamicValue:
    """Return the value of an extension; a timestamp out of bounds is kept as an extension of unknown type."""
    if kind == 127 and data == _END:
        return _SENTINEL
    moment = _moment(data) if kind == _TIMESTAMP else None
    return Extension.of(kind, data) if moment is None else moment


def _moment(data: bytes) -> Moment | None:
    if len(data) == 4:
        return Moment(int.from_bytes(data, "big") * 1000)
    if len(data) == 8:
        both = int.from_bytes(data, "big")
        nanoseconds, seconds = both >> 34, both & (1 << 34) - 1
    elif len(data) == 12:
        nanoseconds, seconds = struct.unpack(">Iq", data)
    else:
        return None
    milliseconds = seconds * 1000 + nanoseconds // 1_000_000
    if nanoseconds >= 1_000_000_000 or milliseconds not in _MOMENTS:
        return None
    rest = nanoseconds % 1_000_000
    return PreciseMoment.of(milliseconds, rest) if rest else Moment(milliseconds)


def _timestamp_bytes(moment: Moment) -> bytes:
    """Return the shortest of the three forms of a timestamp."""
    seconds, milliseconds = divmod(int(moment), 1000)
    rest = moment.nanoseconds if isinstance(moment, PreciseMoment) else 0
    nanoseconds = milliseconds * 1_000_000 + rest
    if not nanoseconds and 0 <= seconds < 1 << 32:
        return seconds.to_bytes(4, "big")
    if 0 <= seconds < 1 << 34:
        return (nanoseconds << 34 | seconds).to_bytes(8, "big")
    try:
        return struct.pack(">Iq", nanoseconds, seconds)
    except struct.error:
        raise ValueError(f"no timestamp is {int(moment)} milliseconds from 1970") from None


def _checked(value: DynamicValue) -> DynamicValue:
    """Return a value in which integers beyond 64 bits with a sign are `BigInt`."""
    if type(value) is int:
        return value if value < 2**63 else BigInt(value)
    if type(value) is dict:
        return {_checked(name): _checked(item) for name, item in value.items()}
    if type(value) is list:
        return [_checked(item) for item in value]
    return value


def _codec() -> Codec:
    return MessagePack()


KIND: Final = CodecKind(
    "msgpack",
    MessagePack.class_name,
    "MessagePack: schemaless values of any shape, with bytes, timestamps and keys that are no texts",
    _codec,
    notation=ValueNotation,
)
