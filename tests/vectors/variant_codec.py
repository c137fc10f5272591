"""Schemaless vector values ↔ Spark variants, with the widths that a variant's bytes can tell."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

from pyspark.sql.types import VariantVal

_INT_HEADERS = {"$int8": (3, "<b"), "$int16": (4, "<h"), "$int32": (5, "<i"), "$int64": (6, "<q")}


def encode(value: Any) -> VariantVal:
    """A vector's schemaless value as a variant."""
    names: dict[str, int] = {}
    _names(value, names)
    ordered = sorted(names, key=lambda name: name.encode())
    names = {name: at for at, name in enumerate(ordered)}
    texts = [name.encode() for name in ordered]
    offsets, total = [], 0
    for text in texts:
        offsets.append(total)
        total += len(text)
    offsets.append(total)
    header = bytes([0b11_0_1_0001])
    metadata = (
        header + struct.pack("<I", len(texts)) + b"".join(struct.pack("<I", o) for o in offsets) + b"".join(texts)
    )
    return VariantVal(_encode(value, names), metadata)


def _names(value: Any, names: dict[str, int]) -> None:
    if isinstance(value, dict) and not _is_tag(value):
        for name, inner in value.items():
            names.setdefault(name, 0)
            _names(inner, names)
    elif isinstance(value, list):
        for inner in value:
            _names(inner, names)


def _is_tag(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith("$")


def _primitive(type_: int, body: bytes = b"") -> bytes:
    return bytes([type_ << 2]) + body


def _encode(value: Any, names: dict[str, int]) -> bytes:
    if value is None:
        return _primitive(0)
    if isinstance(value, bool):
        return _primitive(1 if value else 2)
    if isinstance(value, int):
        return _primitive(6, struct.pack("<q", value))
    if isinstance(value, float):
        return _primitive(7, struct.pack("<d", value))
    if isinstance(value, str):
        text = value.encode()
        return _primitive(16, struct.pack("<I", len(text)) + text)
    if isinstance(value, list):
        return _container(0b0_1_11 << 2 | 3, [_encode(item, names) for item in value], None)
    if _is_tag(value):
        return _tagged(*next(iter(value.items())))
    pairs = sorted(((names[name], _encode(inner, names)) for name, inner in value.items()), key=lambda pair: pair[0])
    ordered = sorted(pairs, key=lambda pair: pair[0])
    return _container(0b1_11_11 << 2 | 2, [body for _, body in ordered], [at for at, _ in ordered])


def _container(header: int, bodies: list[bytes], ids: list[int] | None) -> bytes:
    """An array or object with four-byte counts, ids and offsets."""
    offsets, total = [], 0
    for body in bodies:
        offsets.append(total)
        total += len(body)
    offsets.append(total)
    head = bytes([header]) + struct.pack("<I", len(bodies))
    listed = b"".join(struct.pack("<I", one) for one in ids or [])
    return head + listed + b"".join(struct.pack("<I", one) for one in offsets) + b"".join(bodies)


def _tagged(tag: str, inner: Any) -> bytes:
    if tag in _INT_HEADERS:
        type_, form = _INT_HEADERS[tag]
        return _primitive(type_, struct.pack(form, inner))
    if tag == "$float32":
        return _primitive(14, struct.pack("<f", float(inner)))
    if tag == "$float":
        return _primitive(7, struct.pack("<d", float(inner)))
    if tag == "$bytes":
        body = bytes.fromhex(inner)
        return _primitive(15, struct.pack("<I", len(body)) + body)
    if tag in ("$timestamp", "$date", "$time"):
        return _primitive(12, struct.pack("<q", inner * 1000))
    if tag in ("$decimal", "$bigint"):
        number = Decimal(inner)
        sign, digits, exponent = number.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        scale = -int(exponent)
        if scale < 0 or len(digits) > 38:
            raise ValueError("decimal scale")
        return _primitive(10, bytes([scale]) + unscaled.to_bytes(16, "little", signed=True))
    raise ValueError("value against its schema")


# --- decoding -------------------------------------------------------------------------------------------------------


class Int(int):
    """An integer of a variant, with the bits of its encoding."""

    bits: int


class Float32(float):
    """A float32 of a variant."""


class Millis(int):
    """A timestamp of a variant, in epoch milliseconds."""


def decode(variant: VariantVal | None) -> Any:
    """Plain Python, with the classes above where a variant says more than Python."""
    if variant is None:
        return None
    return _Decoder(bytes(variant.value), bytes(variant.metadata)).at(0)


class _Decoder:
    def __init__(self, value: bytes, metadata: bytes) -> None:
        self.value = value
        size = (metadata[0] >> 6) + 1
        count = self._uint(metadata, 1, size)
        starts = [self._uint(metadata, 1 + size * (n + 1), size) for n in range(count + 1)]
        base = 1 + size * (count + 2)
        self.names = [metadata[base + starts[n] : base + starts[n + 1]].decode() for n in range(count)]

    @staticmethod
    def _uint(data: bytes, at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    def at(self, at: int) -> Any:
        head = self.value[at]
        basic, rest = head & 3, head >> 2
        if basic == 0:
            return self._primitive(rest, at + 1)
        if basic == 1:
            return self.value[at + 1 : at + 1 + rest].decode()
        return self._object(rest, at + 1) if basic == 2 else self._array(rest, at + 1)

    def _primitive(self, type_: int, at: int) -> Any:
        data = self.value
        if type_ in (3, 4, 5, 6):
            size = 1 << (type_ - 3)
            found = Int(int.from_bytes(data[at : at + size], "little", signed=True))
            found.bits = size * 8
            return found
        if type_ in (8, 9, 10):
            size = {8: 4, 9: 8, 10: 16}[type_]
            unscaled = int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True)
            digits = tuple(map(int, str(abs(unscaled))))
            return Decimal((1 if unscaled < 0 else 0, digits, -data[at]))
        if type_ in (12, 13):
            return Millis(struct.unpack_from("<q", data, at)[0] // 1000)
        if type_ == 11:
            return Millis(struct.unpack_from("<i", data, at)[0] * 86_400_000)
        if type_ in (15, 16):
            size = self._uint(data, at, 4)
            body = data[at + 4 : at + 4 + size]
            return body.decode() if type_ == 16 else body
        if type_ == 14:
            return Float32(struct.unpack_from("<f", data, at)[0])
        if type_ == 7:
            return struct.unpack_from("<d", data, at)[0]
        return {0: None, 1: True, 2: False}[type_]

    def _object(self, rest: int, at: int) -> dict[str, Any]:
        offset_size, id_size, large = (rest & 3) + 1, ((rest >> 2) & 3) + 1, rest >> 4 & 1
        size = 4 if large else 1
        count = self._uint(self.value, at, size)
        ids, offsets = at + size, at + size + count * id_size
        base = offsets + (count + 1) * offset_size
        found = {}
        for n in range(count):
            name = self.names[self._uint(self.value, ids + n * id_size, id_size)]
            found[name] = self.at(base + self._uint(self.value, offsets + n * offset_size, offset_size))
        return found

    def _array(self, rest: int, at: int) -> list[Any]:
        offset_size, large = (rest & 3) + 1, rest >> 2 & 1
        size = 4 if large else 1
        count = self._uint(self.value, at, size)
        offsets = at + size
        base = offsets + (count + 1) * offset_size
        return [self.at(base + self._uint(self.value, offsets + n * offset_size, offset_size)) for n in range(count)]
