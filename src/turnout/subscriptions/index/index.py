"""The index of all subscriptions at one revision, and manifests of revisions: small files, with tombstone bitmaps."""

from __future__ import annotations

import json
import struct
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, cast
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from turnout.base.clocks import milliseconds_now
from turnout.base.files import replace_file
from turnout.base.multivalued import Metadata
from turnout.loops import loops_are_compiled
from turnout.subscriptions.index.arrays import IndexFileError, Indices, Ints, indices_of
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.flat_messages import Column, FlatMessages, JsonMessages, KeyNumbers, object_of
from turnout.subscriptions.index.layers import Deliveries, Layer, Layers, Matches, RecordTimes
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.index.segment_matcher import MOST_OBJECTS, SegmentMatcher
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import Snapshot
from turnout.subscriptions.store import Store

ROWS = 16384
"""Rows of a batch that are processed at a time."""


class Index:
    """All subscriptions of one revision. It is never changed, and safe to use from several threads.

    Attributes:
        revision: revision of the store.
        keys: those of leaves: metadata keys that some condition tests, and `turnout.base.multivalued.ANY_KEY`.
        expires: whether some subscription expires: only then times are checked.
        projects: whether some subscription has a projection.
    """

    def __init__(self, layers: Sequence[Layer], revision: int) -> None:
        self.revision = revision
        self.keys: tuple[str, ...] = tuple(dict.fromkeys(key for layer in layers for key in layer.segment.head.keys))
        varied = frozenset[str]().union(*(layer.segment.varied_keys for layer in layers))
        self._key_numbers = KeyNumbers(self.keys, varied)
        self._layers = Layers(layers)
        self._keys_of = [_keys_of(self.keys, layer.segment.head.keys) for layer in layers]
        self.expires = any(layer.segment.expires for layer in layers)
        self.projects = any(len(layer.segment.arrays.project) for layer in layers)

    @classmethod
    def of(
        cls, subscriptions: Iterable[Subscription] | Snapshot | Store, *, sample: Collection[Mapping[str, str]] = ()
    ) -> Index:
        """An index in memory of these subscriptions, or of everything in a store.

        Args:
            subscriptions: no two of the same id.
            sample: metadata of typical messages: look-ups prefer values that are rare in it.
        """
        if isinstance(subscriptions, Store):
            subscriptions = subscriptions.snapshot()
        revision = subscriptions.revision if isinstance(subscriptions, Snapshot) else 0
        segment = build(subscriptions, Costs(sample))
        # Now: the first message would wait for it.
        _ = segment.matcher
        return cls([Layer(segment)], revision)

    @classmethod
    def open(cls, folder: Path, revision: int) -> Index:
        """The index that an `IndexFolder` wrote for this revision, mapped into memory.

        Raises:
            IndexFileError: one of its files is missing, damaged or of another version.
        """
        return open_index(folder, revision)

    def __len__(self) -> int:
        return self._layers.subscription_count()

    def match(
        self,
        columns: Mapping[str, Column],
        count: int,
        alive: Sequence[int] | NDArray[np.generic] | None = None,
        *,
        times: RecordTimes = None,
        now: int | None = None,
    ) -> Matches:
        """The subscriptions that each row of a batch matches.

        Args:
            columns: metadata by the keys of leaves, one value for each row; keys that no condition tests are passed
                over.
            count: how many rows there are.
            alive: the rows to match, in ascending order, or a mask of them; None for all.
            times: of each row's record, in milliseconds since 1970, for subscriptions that expire; None, for all or
                some, is now.
            now: the time by the clock, in milliseconds since 1970, if not that of this machine.
        """
        rows = _rows_of(alive, count)
        parts = []
        for begin in range(0, len(rows), ROWS):
            some = rows[begin : begin + ROWS]
            found = self._matched(self._key_numbers.of_columns(columns, some))
            parts.append(Matches(some.take(found.rows), found.subscriptions))
        return self._current(_joined(parts), times, now)

    def match_messages(
        self, messages: Sequence[Metadata], *, times: RecordTimes = None, now: int | None = None
    ) -> Matches:
        """Return the subscriptions that each message, given by its metadata, matches; see `match`."""
        parts = []
        for begin in range(0, len(messages), ROWS):
            found = self._matched_messages(messages if len(messages) <= ROWS else messages[begin : begin + ROWS])
            parts.append(Matches(found.rows + begin, found.subscriptions) if begin else found)
        return self._current(_joined(parts), times, now)

    def _matched_messages(self, messages: Sequence[Metadata]) -> Matches:
        """Return the matches of messages, of which those whose values may have variants are matched by themselves."""
        if len(messages) <= MOST_OBJECTS and len(self._matchers) == 1 and loops_are_compiled():
            found = self._matched_objects(messages)
            if found is not None:
                return found
        separate = self._key_numbers.rows_with_variants(messages)
        if not 0 < len(separate) < len(messages):
            return self._matched(self._key_numbers.of_messages(messages))
        assert isinstance(messages, JsonMessages)
        parts = []
        for rows in (np.delete(np.arange(len(messages)), separate), np.array(separate)):
            found = self._matched(self._key_numbers.of_messages(messages.take(rows.tolist())))
            parts.append(Matches(rows.take(found.rows), found.subscriptions))
        found = _joined(parts)
        return found.take(np.argsort(found.rows, kind="stable"))

    def _matched(self, flat: FlatMessages) -> Matches:
        """Return the matches of messages, those with expired subscriptions too."""
        return self._numbered([matcher.matched(flat, key_of) for matcher, key_of in self._matchers])

    def _matched_objects(self, messages: Sequence[Metadata]) -> Matches | None:
        """Return the matches of a few messages, as objects of JSON for one segment; None if that does not decide."""
        texts = messages.texts if isinstance(messages, JsonMessages) else list(map(object_of, messages))
        ((matcher, _),) = self._matchers
        found = None if None in texts else matcher.matched_objects(cast("Sequence[bytes]", texts))
        return None if found is None else self._numbered([found])

    def _numbered(self, of_segments: Iterable[tuple[Indices, Indices]]) -> Matches:
        """Return the matches of all segments, with the numbers of the index and without deleted subscriptions."""
        parts = []
        for ((_, gone), first), (rows, subscriptions) in zip(self._layers, of_segments, strict=True):
            if gone is not None and len(rows):
                here = indices_of(~gone.take(subscriptions))
                rows, subscriptions = rows.take(here), subscriptions.take(here)
            parts.append(Matches(rows, subscriptions + first if first else subscriptions))
        found = _joined(parts)
        if len(parts) < 2:
            return found
        # Sixteen bits are sorted by counting.
        return found.take(np.argsort(found.rows.astype(np.uint16), kind="stable"))

    def match_one(self, message: Metadata | bytes) -> list[Sequence[int]]:
        """Return the subscriptions that one message, or the JSON of one, matches, by segment.

        Deleted and expired ones are among them.
        """
        text = message if isinstance(message, bytes) else object_of(message)
        flat: FlatMessages | None = None
        found: list[Sequence[int]] = []
        for matcher, key_of in self._matchers:
            own = None if text is None else matcher.matched_object(text)
            if own is None:
                if flat is None:
                    one = JsonMessages((message,)) if isinstance(message, bytes) else (message,)
                    flat = self._key_numbers.of_messages(one)
                own = matcher.matched(flat, key_of)[1].tolist()
            found.append(own)
        return found

    @cached_property
    def _matchers(self) -> list[tuple[SegmentMatcher, Ints]]:
        """The matchers of the segments, each with the segment's numbers of keys."""
        return [(layer.segment.matcher, key_of) for (layer, _), key_of in zip(self._layers, self._keys_of, strict=True)]

    def _current(self, matches: Matches, times: RecordTimes, now: int | None) -> Matches:
        """Return the matches without those of expired subscriptions."""
        if not self.expires or not len(matches.rows):
            return matches
        return self._layers.unexpired(matches, times, milliseconds_now() if now is None else now)

    def deliveries(self, matches: Matches) -> Deliveries:
        """Return the matches, one for each destination that their subscriptions have."""
        return self._layers.deliveries(matches)

    def projections(self, numbers: NDArray[np.int64]) -> list[tuple[str, NDArray[np.int64]]]:
        """Return each projection of some subscriptions, with the indices of those that have it."""
        return self._layers.projections(numbers)

    def subscription_ids(self, numbers: NDArray[np.int64]) -> pa.StringArray:
        """Return the ids of subscriptions."""
        return self._layers.subscription_ids(numbers)

    def destinations(self, numbers: NDArray[np.int64]) -> pa.StringArray:
        """Return the texts of destinations."""
        return self._layers.destinations(numbers)


def _keys_of(keys: Sequence[str], own: Sequence[str]) -> NDArray[np.int32]:
    """Return the number of each key among others, -1 for none; the last one is for unknown keys."""
    numbers = {key: number for number, key in enumerate(own)}
    key_of = np.array([*(numbers.get(key, -1) for key in keys), -1], np.int32)
    key_of.flags.writeable = False
    return key_of


def _joined(parts: Sequence[Matches]) -> Matches:
    """Return all matches in one."""
    if len(parts) == 1:
        return parts[0]
    none = np.zeros(0, np.int64)
    return Matches(
        np.concatenate([none, *(part.rows for part in parts)]),
        np.concatenate([none, *(part.subscriptions for part in parts)]),
    )


def _rows_of(alive: Sequence[int] | NDArray[np.generic] | None, count: int) -> Indices:
    if alive is None:
        return np.arange(count)
    rows = np.asarray(alive)
    return indices_of(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)


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
