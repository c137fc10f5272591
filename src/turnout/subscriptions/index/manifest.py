"""Manifests of index revisions: a small file for each, with tombstone bitmaps, and the index that one describes."""

from __future__ import annotations

import json
import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import xxhash
from numpy.typing import NDArray

from turnout.base.files import replace_file
from turnout.subscriptions.index.index import Index
from turnout.subscriptions.index.layers import Layer
from turnout.subscriptions.index.layout import IndexFileError
from turnout.subscriptions.index.segment import Segment

_FORMAT = 1
_CURE = "build the index again, or carry the file here again"
_GONE = struct.Struct("<8sIIQ")
"""Magic, version, how many subscriptions, checksum of the bits."""
_MAGIC = b"TURNOUTG"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Names of a segment's file and of its tombstone bitmap in the folder; "" if it has no tombstones."""

    segment: str
    gone: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parts of one revision."""

    revision: int
    parts: tuple[SegmentFiles, ...]

    def names(self) -> list[str]:
        """The files that the parts are in."""
        return [name for part in self.parts for name in (part.segment, part.gone) if name]

    def write(self, folder: Path) -> None:
        """Write it; a reader sees the old one or this one."""
        data = {
            "format": _FORMAT,
            "revision": self.revision,
            "parts": [[part.segment, part.gone] for part in self.parts],
        }
        # No fsync, here and below: a damaged file is recognised, and the index is built again from the store.
        replace_file(manifest_path(folder, self.revision), json.dumps(data), fsync=False)

    @classmethod
    def read(cls, folder: Path, revision: int) -> Manifest:
        """The manifest of a revision.

        Raises:
            IndexFileError: there is none, or it cannot be read.
        """
        path = manifest_path(folder, revision)
        try:
            data = json.loads(path.read_bytes())
        except OSError as problem:
            raise IndexFileError(path, f"cannot be read ({problem})", _CURE) from problem
        except ValueError as problem:
            raise IndexFileError(path, "is damaged: it is no JSON", _CURE) from problem
        version = data.get("format") if isinstance(data, dict) else None
        if version != _FORMAT:
            raise IndexFileError(
                path,
                f"is of format {version}, and this turnout reads format {_FORMAT}",
                "let one version of turnout write and read the folder",
            )
        return cls(data["revision"], tuple(SegmentFiles(segment, gone) for segment, gone in data["parts"]))


def manifest_path(folder: Path, revision: int) -> Path:
    """Return the path of a revision's manifest."""
    return folder / f"revision-{revision}.json"


def write_gone(path: Path, gone: NDArray[np.bool_]) -> None:
    """Write the tombstone bitmap of a segment."""
    bits = np.packbits(gone).tobytes()
    replace_file(path, _GONE.pack(_MAGIC, _FORMAT, len(gone), xxhash.xxh64_intdigest(bits)) + bits, fsync=False)


def read_gone(path: Path, count: int) -> NDArray[np.bool_]:
    """Return the tombstones of a segment's subscriptions, *count* in all.

    Raises:
        IndexFileError: the file is missing or damaged, or belongs to another segment.
    """
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise IndexFileError(path, f"cannot be read ({problem})", _CURE) from problem
    bits = data[_GONE.size :]
    if len(data) < _GONE.size or data[: _GONE.size] != _GONE.pack(_MAGIC, _FORMAT, count, xxhash.xxh64_intdigest(bits)):
        raise IndexFileError(path, "is damaged, or does not belong to its segment", _CURE)
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count).view(np.bool_)


_Identity: TypeAlias = tuple[str, int, int, int]

_FOLDERS = 4
"""Number of folders whose latest index stays open, so that the next revision reuses its caches."""

_segments: WeakValueDictionary[_Identity, Segment] = WeakValueDictionary()
_latest: OrderedDict[Path, Index] = OrderedDict()
_lock = threading.Lock()


def open_index(folder: Path, revision: int) -> Index:
    """The index of a revision; see `Index.open`."""
    folder = Path(folder).absolute()
    manifest = Manifest.read(folder, revision)
    with _lock:
        layers = []
        for part in manifest.parts:
            segment = _segment(folder / part.segment)
            layers.append(Layer(segment, read_gone(folder / part.gone, len(segment)) if part.gone else None))
        index = _latest[folder] = Index(layers, revision)
        _latest.move_to_end(folder)
        while len(_latest) > _FOLDERS:
            _latest.popitem(last=False)
    return index


def _segment(path: Path) -> Segment:
    try:
        status = path.stat()
    except OSError as problem:
        raise IndexFileError(path, f"cannot be read ({problem})", "build the index again") from problem
    identity = str(path), status.st_ino, status.st_mtime_ns, status.st_size
    segment = _segments.get(identity)
    if segment is None:
        segment = _segments[identity] = Segment.open(path)
        # Now: the first message would wait for it.
        _ = segment.matcher
    return segment
