"""The in-process index in Spark's Python workers: for micro-batches that are small beside the index.

To broadcast an index costs the same for ten records as for ten million. A Python worker is used again for the next
micro-batch, so it reads the index once from a file and keeps it; only the metadata of the records goes through Python.
"""

from __future__ import annotations

import gc
import marshal
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnout.conditions.anchor import ALWAYS, Anchor
from turnout.spark.matching.overlay import Base, Overlay
from turnout.subscriptions.entries import Entry
from turnout.subscriptions.postings import Postings

__all__ = ["IndexFile", "finder"]

_WANTED = pa.list_(pa.struct([("subscription_id", pa.string()), ("destination", pa.string())]))


class IndexFile:
    """A base written to a file that workers on this machine can read.

    It stays until this process ends: Spark may run a query long after whoever made its plan is gone.
    """

    def __init__(self, base: Base) -> None:
        with tempfile.NamedTemporaryFile(dir=_folder().name, delete=False) as file:
            marshal.dump(_plain(base.entries), file)
        self.path = file.name


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="turnout-index-")


def _plain(value: Any) -> Any:
    """Named tuples as plain ones: marshal, ten times faster to read than pickle here, knows no others."""
    return [*map(_plain, value)] if isinstance(value, list) else _tuple(value)


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, tuple) else value


_bases: dict[str, Postings] = {}
_overlays: dict[tuple[str, int], Postings] = {}


def _base(path: str) -> Postings:
    """The index of a file, read by this worker at most once; the one before it is forgotten."""
    if path not in _bases:
        _bases.clear()
        # A million tuples are no garbage, but looking through them again and again takes longer than reading them.
        gc.disable()
        try:
            plain = marshal.loads(Path(path).read_bytes())  # noqa: S302 - our own file, readable by its owner only
            _bases[path] = Postings(_entries(plain))
            gc.freeze()
        finally:
            gc.enable()
    return _bases[path]


def _entries(plain: Iterable[Any]) -> Iterable[Entry]:
    always = tuple(_tuple(ALWAYS))
    return (Entry(ALWAYS if one[0] == always else Anchor(*one[0]), *one[1:]) for one in plain)


def _overlay(path: str, revision: int, entries: Sequence[Entry]) -> Postings:
    if (path, revision) not in _overlays:
        _overlays.clear()
        _overlays[path, revision] = Postings(entries)
    return _overlays[path, revision]


def finder(file: IndexFile, overlay: Overlay, revision: int, keys: Sequence[str]) -> Callable[[pa.Array], pa.Array]:
    """The function that a worker runs: from arrays of metadata, in the order of *keys*, to who wants the record."""
    path, gone, new = file.path, frozenset(overlay.gone), overlay.entries()

    def find(metadata: pa.Array) -> pa.Array:
        base, over = _base(path), _overlay(path, revision, new)
        found: list[list[tuple[str, str]] | None] = []
        for values in metadata.to_pylist():
            if values is None:
                found.append(None)
                continue
            message = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
            entries = [entry for entry in base.match(message) if entry[1] not in gone]
            entries += over.match(message)
            found.append([(entry[1], destination) for entry in entries for destination in entry[2]])
        return pa.array(found, _WANTED)

    return find
