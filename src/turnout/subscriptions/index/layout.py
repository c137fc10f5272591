"""A segment as one file: magic, version, a head with its checksum, and the arrays, each on a boundary of 64 bytes."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from turnout.errors import TurnoutError
from turnout.subscriptions.index.arrays import Arrays, Head
from turnout.subscriptions.index.texts import Texts

__all__ = ["IndexFileError", "map_segment", "write_segment"]

_MAGIC = b"TURNOUTX"
_VERSION = 1
_PREFIX = struct.Struct("<8sIIQ")
"""Magic, version, length of the head, its checksum."""
_EDGE = 64


class IndexFileError(TurnoutError):
    """Raised when a file of an index is missing, damaged or of another version.

    Attributes:
        path: which file.
    """

    def __init__(self, path: Path, problem: str, cure: str) -> None:
        super().__init__(f"{path}: {problem}; {cure}")
        self.path = path
        self._parts = (path, problem, cure)

    def __reduce__(self) -> tuple[type[IndexFileError], tuple[Path, str, str]]:
        return type(self), self._parts


def write_segment(path: Path, head: Head, arrays: Arrays) -> None:
    """Write the file, readable by its owner only; it appears under its name when it is whole."""
    flat = dict(_flat(arrays))
    places, at = {}, 0
    for name, array in flat.items():
        places[name] = [at, array.dtype.str, len(array)]
        at = _edge(at + array.nbytes)
    text = json.dumps({**head.as_json(), "arrays": places, "size": at}).encode()
    begun = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(_PREFIX.pack(_MAGIC, _VERSION, len(text), xxhash.xxh64_intdigest(text)))
        file.write(text)
        base = _edge(file.tell())
        _write_arrays(file, base, flat, places)
        file.truncate(base + at)
    begun.rename(path)


def _write_arrays(file: IO[bytes], base: int, flat: dict[str, NDArray[Any]], places: dict[str, list[Any]]) -> None:
    for name, array in flat.items():
        file.seek(base + places[name][0])
        file.write(np.ascontiguousarray(array).data)


def _flat(arrays: Arrays) -> list[tuple[str, NDArray[Any]]]:
    flat: list[tuple[str, NDArray[Any]]] = []
    for field in fields(Arrays):
        value = getattr(arrays, field.name)
        if isinstance(value, Texts):
            flat += [(f"{field.name}.offsets", value.offsets), (f"{field.name}.data", value.data)]
        else:
            flat.append((field.name, value))
    return flat


def _edge(at: int) -> int:
    return -(-at // _EDGE) * _EDGE


def map_segment(path: Path) -> tuple[Head, Arrays]:
    """The segment in the file, whose arrays are read from the disk when they are looked at.

    Raises:
        IndexFileError: there is no such file, or it is none of ours, of another version, or damaged.
    """
    cure = "build the index again, or carry the file here again"
    try:
        mapped = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as problem:
        raise IndexFileError(path, f"cannot be mapped ({problem})", cure) from problem
    if len(mapped) < _PREFIX.size:
        raise IndexFileError(path, "is no segment of an index: it is too short", cure)
    magic, version, length, checksum = _PREFIX.unpack(mapped[: _PREFIX.size].tobytes())
    if magic != _MAGIC:
        raise IndexFileError(path, "is no segment of an index", cure)
    if version != _VERSION:
        raise IndexFileError(
            path,
            f"is a segment of version {version}, and this turnout reads version {_VERSION}",
            "let one version of turnout write and read the folder",
        )
    text = mapped[_PREFIX.size : _PREFIX.size + length].tobytes()
    if len(text) != length or xxhash.xxh64_intdigest(text) != checksum:
        raise IndexFileError(path, "is damaged: the checksum of its head is wrong", cure)
    data = json.loads(text)
    base = _edge(_PREFIX.size + length)
    if len(mapped) < base + data["size"]:
        raise IndexFileError(path, f"is cut off: {len(mapped)} of {base + data['size']} bytes", cure)
    return Head.from_json(data), _arrays(np.asarray(mapped), base, data["arrays"])


def _arrays(mapped: NDArray[np.uint8], base: int, places: dict[str, list[Any]]) -> Arrays:
    def array(name: str) -> NDArray[Any]:
        at, dtype, count = places[name]
        kind = np.dtype(dtype)
        return mapped[base + at : base + at + kind.itemsize * count].view(kind)

    parts: dict[str, Any] = {}
    for field in fields(Arrays):
        if field.name in places:
            parts[field.name] = array(field.name)
        else:
            parts[field.name] = Texts(array(f"{field.name}.offsets"), array(f"{field.name}.data"))
    return Arrays(**parts)
