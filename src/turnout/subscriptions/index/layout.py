"""A segment as one file: magic, version, a head with its checksum, and the arrays, each on a boundary of 64 bytes.

The head has a checksum of the arrays, too. It is verified if a file has outlived its writer. Readers do not verify it:
they map the file to read little of it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from turnout.base.files import new_file
from turnout.base.untrusted import JsonObject
from turnout.errors import TurnoutError
from turnout.subscriptions.index.arrays import Arrays, Head, Texts

_MAGIC = b"TURNOUTX"
_VERSION = 8
_PREFIX = struct.Struct("<8sIIQ")
"""Magic, version, length of the head, its checksum."""
_EDGE = 64
_CURE = "build the index again, or carry the file here again"


class IndexFileError(TurnoutError):
    """Raised when a file of an index is missing, damaged or of another version.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, problem: str, cure: str) -> None:
        super().__init__(f"{path}: {problem}; {cure}")
        self.path = path
        self._parts = (path, problem, cure)

    def __reduce__(self) -> tuple[type[IndexFileError], tuple[Path, str, str]]:
        return type(self), self._parts


def write_segment(path: Path, head: Head, arrays: Arrays) -> None:
    """Write the file, readable by its owner only; it appears under its name when it is whole."""
    flat = {name: np.ascontiguousarray(array) for name, array in _flat(arrays)}
    offsets, at = {}, 0
    for name, array in flat.items():
        offsets[name] = [at, array.dtype.str, len(array)]
        at = _edge(at + array.nbytes)
    about = {"arrays": offsets, "size": at, "checksum": _checksum(flat)}
    text = json.dumps({**head.as_json(), **about}).encode()
    # No fsync: a damaged segment is recognised and built again from the store.
    with new_file(path, fsync=False) as file:
        file.write(_PREFIX.pack(_MAGIC, _VERSION, len(text), xxhash.xxh64_intdigest(text)))
        file.write(text)
        base = _edge(file.tell())
        _write_arrays(file, base, flat, offsets)
        file.truncate(base + at)


def _write_arrays(file: IO[bytes], base: int, flat: dict[str, NDArray[Any]], offsets: dict[str, list[Any]]) -> None:
    for name, array in flat.items():
        file.seek(base + offsets[name][0])
        file.write(array.data)


def _checksum(flat: dict[str, NDArray[Any]]) -> str:
    digest = xxhash.xxh3_64()
    for array in flat.values():
        digest.update(array.data)
    return digest.hexdigest()


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


def in_one(arrays: Arrays) -> tuple[Arrays, NDArray[np.uint8]]:
    """Return a copy of the arrays within one array of bytes, as they are in a file, and that array."""
    offsets: dict[str, list[Any]] = {}
    at = 0
    flat = dict(_flat(arrays))
    for name, array in flat.items():
        offsets[name] = [at, array.dtype.str, len(array)]
        at = _edge(at + array.nbytes)
    image = np.zeros(at, np.uint8)
    for name, array in flat.items():
        begin = offsets[name][0]
        image[begin : begin + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
    image.flags.writeable = False
    return _arrays(image, 0, offsets), image


def map_segment(path: Path) -> tuple[Head, Arrays, NDArray[np.uint8]]:
    """Return the segment in a file, whose arrays are read from disk on access, and all of them as bytes.

    Raises:
        IndexFileError: there is no such file, or it is none of ours, of another version, or damaged.
    """
    head, arrays, image, _ = _mapped(path)
    return head, arrays, image


def checked_segment(path: Path) -> tuple[Head, Arrays]:
    """The segment in the file, all of which has been read: a power cut leaves zeros where arrays were.

    Raises:
        IndexFileError: there is no such file, or it is none of ours, of another version, or damaged anywhere.
    """
    head, arrays, _, checksum = _mapped(path)
    if _checksum(dict(_flat(arrays))) != checksum:
        raise IndexFileError(path, "is damaged: the checksum of its arrays is wrong", _CURE)
    return head, arrays


def _mapped(path: Path) -> tuple[Head, Arrays, NDArray[np.uint8], str]:
    """Return the head, the arrays, all of them as bytes, and the checksum that they should have."""
    try:
        mapped = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as problem:
        raise IndexFileError(path, f"cannot be mapped ({problem})", _CURE) from problem
    data, base = _head(path, mapped)
    if len(mapped) < base + data["size"]:
        raise IndexFileError(path, f"is cut off: {len(mapped)} of {base + data['size']} bytes", _CURE)
    image = np.asarray(mapped)[base : base + data["size"]]
    return Head.from_json(data), _arrays(image, 0, data["arrays"]), image, data["checksum"]


def _head(path: Path, mapped: NDArray[np.uint8]) -> tuple[JsonObject, int]:
    """Return the header of the file, and the offset of its arrays."""
    if len(mapped) < _PREFIX.size:
        raise IndexFileError(path, "is no segment of an index: it is too short", _CURE)
    magic, version, length, checksum = _PREFIX.unpack(mapped[: _PREFIX.size].tobytes())
    if magic != _MAGIC:
        raise IndexFileError(path, "is no segment of an index", _CURE)
    if version != _VERSION:
        raise IndexFileError(
            path,
            f"is a segment of version {version}, and this turnout reads version {_VERSION}",
            "let one version of turnout write and read the folder",
        )
    text = mapped[_PREFIX.size : _PREFIX.size + length].tobytes()
    if len(text) != length or xxhash.xxh64_intdigest(text) != checksum:
        raise IndexFileError(path, "is damaged: the checksum of its head is wrong", _CURE)
    return json.loads(text), _edge(_PREFIX.size + length)


def _arrays(mapped: NDArray[np.uint8], base: int, offsets: dict[str, list[Any]]) -> Arrays:
    def array(name: str) -> NDArray[Any]:
        at, dtype, count = offsets[name]
        kind = np.dtype(dtype)
        return mapped[base + at : base + at + kind.itemsize * count].view(kind)

    parts: JsonObject = {}
    for field in fields(Arrays):
        if field.name in offsets:
            parts[field.name] = array(field.name)
        else:
            parts[field.name] = Texts(array(f"{field.name}.offsets"), array(f"{field.name}.data"))
    return Arrays(**parts)
