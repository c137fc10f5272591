"""Opening an index from its folder: parts shared with the previous revision are mapped and warmed up once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

from turnout.subscriptions.index.index import Index
from turnout.subscriptions.index.layers import Layer
from turnout.subscriptions.index.layout import IndexFileError
from turnout.subscriptions.index.manifest import Manifest, read_gone
from turnout.subscriptions.index.segment import Segment

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
