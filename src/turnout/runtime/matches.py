"""Immutable file of matches: for each subscription, the ascending sequences of the records that matched it.

Subscriptions are 64-bit hashes of their ids. The sequences of one are stored in runs of at most 512: an entry with the
subscription, the first sequence and the place of the run, and the differences to the following sequences as variable
length integers. Entries are sorted by subscription and first sequence, so that a page of a feed is found by binary
search, whatever the file holds of others.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from turnout.base.background import Background
from turnout.base.caches import LruCache
from turnout.base.files import private_folder, replace_file
from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.errors import TurnoutError
from turnout.nats.protocol.positions import Origin
from turnout.runtime.offsets import committed

if TYPE_CHECKING:
    from turnout.routes import Route

Sequences: TypeAlias = NDArray[np.int64]
SubscriptionHashes: TypeAlias = NDArray[np.uint64]

_MAGIC: Final = b"TURNOUT\x01"
_HEAD: Final = struct.Struct("<8sQQQQ")
"""Magic, base of the first sequences, entries, matches, bytes of differences."""

_RUN: Final = 512
"""Matches in one run: maximum number to decode before the first match of a page."""

_MOST_SPAN: Final = (1 << 32) - 1
"""Difference of the sequences in one file: first sequences are stored as 32 bits above the base."""


class MatchFileError(TurnoutError):
    """Raised when a file of matches is damaged or of another version."""


class Matches(NamedTuple):
    """Matches as parallel columns: hash of the subscription, sequence of the record."""

    subscriptions: SubscriptionHashes
    sequences: Sequences

    @classmethod
    def none(cls) -> Self:
        """Return no matches."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64))

    @classmethod
    def joined(cls, parts: list[Matches]) -> Self:
        """Return all matches of the parts, in their order."""
        if not parts:
            return cls.none()
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def distinct(self) -> Matches:
        """Return each match once, sorted by subscription and sequence."""
        order = np.lexsort((self.sequences, self.subscriptions))
        subscriptions, sequences = self.subscriptions[order], self.sequences[order]
        if len(order):
            again = (subscriptions[1:] == subscriptions[:-1]) & (sequences[1:] == sequences[:-1])
            first = np.concatenate([[True], ~again])
            subscriptions, sequences = subscriptions[first], sequences[first]
        return Matches(subscriptions, sequences)


def encode(matches: Matches) -> bytes:
    """Return the content of a file with these matches.

    Raises:
        ValueError: the sequences are more than 2³² apart.
    """
    subscriptions, sequences = matches.distinct()
    count = len(sequences)
    base = int(sequences.min()) if count else 0
    if count and int(sequences.max()) - base > _MOST_SPAN:
        raise ValueError("expected sequences of one part of a stream, found some that are more than 2^32 apart")
    is_entry = _run_starts(subscriptions)
    entries = np.flatnonzero(is_entry)
    differences = np.diff(sequences, prepend=0)[~is_entry].astype(np.uint64)
    lengths = _lengths(differences)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    # Matches before an entry that are not entries themselves have a difference.
    starts = ends[entries - np.arange(len(entries))]
    data = _varints(differences, lengths)
    return b"".join(
        (
            _HEAD.pack(_MAGIC, base, len(entries), count, len(data)),
            subscriptions[entries].astype("<u8").tobytes(),
            (sequences[entries] - base).astype("<u4").tobytes(),
            np.append(starts, len(data)).astype("<u8" if len(data) > _MOST_SPAN else "<u4").tobytes(),
            data,
        )
    )


class MatchFile:
    """File of matches, mapped into memory.

    Args:
        path: path of the file.

    Raises:
        MatchFileError: it is damaged, or no such file.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        content = np.memmap(path, np.uint8, "r")
        if len(content) < _HEAD.size:
            raise MatchFileError(f"{path}: expected a file of matches, found {len(content)} bytes")
        magic, self._base, entries, self.matches, size = _HEAD.unpack(content[: _HEAD.size].tobytes())
        width = 8 if size > _MOST_SPAN else 4
        if magic != _MAGIC or len(content) != _HEAD.size + 12 * entries + width * (entries + 1) + size:
            raise MatchFileError(f"{path}: expected a file of matches, found something else, or a part of one")
        at = _HEAD.size
        self._subscriptions = content[at : at + 8 * entries].view("<u8")
        at += 8 * entries
        self._firsts = content[at : at + 4 * entries].view("<u4")
        at += 4 * entries
        self._starts = content[at : at + width * (entries + 1)].view("<u8" if width == 8 else "<u4")
        self._data = content[at + width * (entries + 1) :]

    def sequences(self, subscription: int, after: int, limit: int) -> Sequences:
        """Return the sequences of a subscription above *after*, ascending, and at least *limit* if there are so many.

        Args:
            subscription: hash of its id.
            after: a sequence.
            limit: number of the sequences that are needed; the rest of a run is returned with them.
        """
        low, high = (int(np.searchsorted(self._subscriptions, np.uint64(subscription), side)) for side in _SIDES)
        firsts = self._firsts[low:high]
        run = low + max(0, int(np.searchsorted(firsts, max(0, after - self._base), "right")) - 1)
        found: list[Sequences] = []
        missing = limit
        while run < high and missing > 0:
            sequences = self._run(run)
            sequences = sequences[np.searchsorted(sequences, after, "right") :]
            found.append(sequences)
            missing -= len(sequences)
            run += 1
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _run(self, number: int) -> Sequences:
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        steps = np.concatenate([[self._base + int(self._firsts[number])], decoded(self._data[start:end])])
        return np.cumsum(steps.astype(np.int64))

    def all(self) -> Matches:
        """Return all matches, sorted by subscription and sequence."""
        differences = decoded(self._data).astype(np.int64)
        ends = np.cumsum(np.concatenate([[0], (self._data < 0x80)]))  # how many differences end before each byte
        counts = np.diff(ends[self._starts.astype(np.int64)]) + 1
        entries = np.cumsum(counts) - counts
        steps = np.zeros(self.matches, np.int64)
        inside = np.ones(self.matches, np.bool_)
        inside[entries] = False
        steps[inside] = differences
        sums = np.cumsum(steps)
        firsts = self._base + self._firsts.astype(np.int64)
        sequences = sums + np.repeat(firsts - sums[entries], counts)
        return Matches(np.repeat(np.asarray(self._subscriptions, np.uint64), counts), sequences)


_SIDES: Final = ("left", "right")


def _run_starts(subscriptions: SubscriptionHashes) -> NDArray[np.bool_]:
    """Return a mask of the sorted matches that begin a run."""
    count = len(subscriptions)
    if not count:
        return np.zeros(0, np.bool_)
    is_new = np.concatenate([[True], subscriptions[1:] != subscriptions[:-1]])
    begins = np.flatnonzero(is_new)
    within = np.arange(count) - np.repeat(begins, np.diff(np.append(begins, count)))
    return np.equal(within % _RUN, 0)


def _lengths(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the number of bytes that each value takes, seven bits in each."""
    lengths = np.ones(len(values), np.int64)
    for bits in range(7, 64, 7):
        larger = values >= np.uint64(1 << bits)
        if not larger.any():
            break
        lengths += larger
    return lengths


def _varints(values: NDArray[np.uint64], lengths: NDArray[np.int64]) -> bytes:
    """Return the values as variable length integers: low bits first, the high bit set in all bytes but the last."""
    starts = np.cumsum(lengths) - lengths
    data = np.zeros(int(lengths.sum()), np.uint8)
    for number in range(int(lengths.max(initial=0))):
        has = lengths > number
        low = (values[has] >> np.uint64(7 * number)) & np.uint64(0x7F)
        more = (lengths[has] > number + 1).astype(np.uint64) << np.uint64(7)
        data[starts[has] + number] = (low | more).astype(np.uint8)
    return data.tobytes()


def decoded(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the values of variable length integers."""
    if not len(data):
        return np.zeros(0, np.uint64)
    ends = np.flatnonzero(data < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    within = np.arange(len(data)) - np.repeat(starts, ends - starts + 1)
    parts = (data & 0x7F).astype(np.uint64) << (7 * within).astype(np.uint64)
    return np.add.reduceat(parts, starts)


FOLDER: Final = "matches"
"""The folder in a checkpoint."""

MERGED_AT_ONCE: Final = 8
"""Files of one level that become one file of the next."""

_BACKFILLED: Final = 99
"""Level of the files with matches of earlier records, which are stored after those of later ones; never merged."""

_BACKFILLED_SPAN: Final = 200_000
"""Sequences of one of these files: later backfills of the same sequences add their matches to it."""

_MOST_MATCHES: Final = 16_000_000
"""Matches in a file that is merged no further: a merge holds 16 bytes of each in memory, twice."""

_OPEN_FILES: Final = 256
_NAME: Final = re.compile(r"(?P<stream>[^/\\]+)\.(?P<start>\d{1,20})\.(?P<end>\d{1,20})\.(?P<level>\d{1,2})\.matches")

_log = logging.getLogger(__name__)


def hash_of(subscription_id: str) -> int:
    """Return the 64-bit number of a subscription in files of matches."""
    return xxhash.xxh3_64_intdigest(subscription_id.encode())


@dataclass(frozen=True, slots=True, order=True)
class MatchPart:
    """Part of a stream whose matches are in one file.

    Attributes:
        start: the first sequence.
        end: the sequence behind the last.
        level: how often its matches were merged.
        stream: stream of the sequences, with its identity behind a dot; a name of Kafka may have dots too.
    """

    start: int
    end: int
    level: int
    stream: str

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.stream}.{self.start}.{self.end}.{self.level}.matches"

    @classmethod
    def named(cls, name: str) -> MatchPart | None:
        """Return the part that a file name denotes; None for other files."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found["start"]), int(found["end"]), int(found["level"]), found["stream"])


class MatchFolder:
    """Matches of one route.

    Args:
        folder: folder of the files; it need not exist to be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = LruCache[tuple[str, int], MatchFile](_OPEN_FILES)

    @classmethod
    def beside(cls, checkpoint: Path) -> MatchFolder:
        """Return the folder in a checkpoint."""
        return cls(checkpoint / FOLDER)

    def put(self, name: str, content: bytes) -> None:
        """Store an encoded file of a part.

        Raises:
            ValueError: the name is that of no part.
            OSError: the file cannot be written.
        """
        if MatchPart.named(name) is None:
            raise ValueError(f"expected the name of a part of a stream, found {name!r:.80}")
        private_folder(self.folder)
        replace_file(self.folder / name, content)

    def parts(self, stream: str) -> list[MatchPart]:
        """Return the parts of a stream that have files, by their start."""
        return sorted(part for part in self._listed(f"{stream}.") if part.stream == stream)

    def streams(self) -> list[str]:
        """Return the streams that have files."""
        return sorted({part.stream for part in self._listed()})

    def _listed(self, prefix: str = "") -> Iterator[MatchPart]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 - paths of thousands of files take longer
        except FileNotFoundError:
            return
        for name in names:
            part = MatchPart.named(name) if name.startswith(prefix) else None
            if part is not None:
                yield part

    def pages(self, subscription: int, spans: Mapping[str, tuple[int, int]], limit: int) -> dict[str, Sequences]:
        """Return up to *limit* sequences of a subscription's matches by stream, ascending and each once.

        Args:
            subscription: the hash of its id.
            spans: for each stream the sequence that its page begins behind, and the committed position.
            limit: number of sequences of each stream.

        Raises:
            MatchFileError: a file is damaged.
        """
        parts: dict[str, list[MatchPart]] = {}
        for part in sorted(self._listed()):
            parts.setdefault(part.stream, []).append(part)
        return {
            stream: self._page(parts.get(stream, []), subscription, after, until, limit)
            for stream, (after, until) in spans.items()
        }

    def _page(self, parts: list[MatchPart], subscription: int, after: int, until: int, limit: int) -> Sequences:
        found = np.zeros(0, np.int64)
        for part in parts:
            if part.end <= after + 1:
                continue
            # Parts are sorted by their start: behind a full page nothing smaller can follow.
            if part.start >= until or (len(found) >= limit and part.start > found[limit - 1]):
                break
            file = self._file(part)
            if file is not None:
                found = np.union1d(found, file.sequences(subscription, after, limit))
        found = found[found < until]
        return found[:limit]

    def _file(self, part: MatchPart) -> MatchFile | None:
        """Return an open file; None if it has been merged into another since the folder was listed."""
        path = self.folder / part.name
        try:
            written = path.stat().st_mtime_ns
            return self._files.get_or_add((part.name, written), lambda: MatchFile(path))
        except FileNotFoundError:
            return None

    # Maintenance, by the process that runs the route

    def take_backfilled(self, other: MatchFolder) -> None:
        """Add the matches of a backfill, which has a folder of its own; doing it again changes nothing.

        Raises:
            MatchFileError: a file is damaged.
            OSError: a file cannot be read or written.
        """
        found: dict[MatchPart, list[Matches]] = {}
        for part in other._listed():
            matches = MatchFile(other.folder / part.name).all()
            cells = matches.sequences // _BACKFILLED_SPAN
            for cell in np.unique(cells).tolist():
                start = cell * _BACKFILLED_SPAN
                kept = MatchPart(start, start + _BACKFILLED_SPAN, _BACKFILLED, part.stream)
                found.setdefault(kept, []).append(Matches(*(column[cells == cell] for column in matches)))
        for kept, several in found.items():
            path = self.folder / kept.name
            known = [MatchFile(path).all()] if path.exists() else []
            self.put(kept.name, encode(Matches.joined(known + several)))

    def trim(self, stream: str, first: int) -> None:
        """Remove the files of parts before *first*, the first sequence that the stream still holds."""
        for part in self.parts(stream):
            if part.end <= first:
                self._remove(part)

    def merge(self, stream: str, until: int) -> bool:
        """Merge files once, where enough of one level follow each other; return False if there was nothing to do.

        Args:
            stream: stream of the files.
            until: the committed position: files of parts beyond it may still be written again.
        """
        parts = [part for part in self.parts(stream) if part.end <= until and part.level < _BACKFILLED]
        for part in _covered(parts):
            # A merge was interrupted before it could remove its inputs.
            self._remove(part)
            return True
        group = next((group for group in _groups(parts) if self._count(group) <= _MOST_MATCHES), None)
        if group is None:
            return False
        start, end = min(part.start for part in group), max(part.end for part in group)
        # With the parts inside: they would be taken for inputs that an interrupted merge has left.
        group = [part for part in parts if part.start >= start and part.end <= end]
        matches = Matches.joined([MatchFile(self.folder / part.name).all() for part in group]).distinct()
        level = max(part.level for part in group) + 1
        self.put(MatchPart(start, end, level, stream).name, encode(matches))
        for part in group:
            self._remove(part)
        _log.debug("merged %d files of matches into [%d, %d), %d matches", len(group), start, end, len(matches[0]))
        return True

    def _count(self, group: list[MatchPart]) -> int:
        return sum(0 if (file := self._file(part)) is None else file.matches for part in group)

    def _remove(self, part: MatchPart) -> None:
        with suppress(FileNotFoundError):
            (self.folder / part.name).unlink()

    def bytes(self) -> int:
        """Return the size of all files."""
        try:
            return sum(file.stat().st_size for file in self.folder.iterdir())
        except FileNotFoundError:
            return 0


def _covered(parts: list[MatchPart]) -> Iterator[MatchPart]:
    """Yield the parts that are inside a part of a higher level."""
    widest: MatchPart | None = None
    for part in sorted(parts, key=lambda part: (part.start, -part.end, -part.level)):
        if widest is not None and part.end <= widest.end and part.level < widest.level:
            yield part
        elif widest is None or part.end > widest.end:
            widest = part


def _groups(parts: list[MatchPart]) -> Iterator[list[MatchPart]]:
    """Yield groups of neighbours of one level that are to become one file."""
    group: list[MatchPart] = []
    for part in parts:
        if group and part.level != group[0].level:
            group = []
        group.append(part)
        if len(group) == MERGED_AT_ONCE:
            yield group
            group = []


_PAUSE_SECONDS: Final = 5.0
"""Seconds between two looks while micro-batches are committed all the time, or an open split reports progress."""


class FeedMerging(Background):
    """Thread of the driver that maintains the matches of one run.

    Args:
        route: the route.
        checkpoint: the folder, on this machine.
    """

    def __init__(self, route: Route, checkpoint: Path) -> None:
        self._route = route
        self._checkpoint = checkpoint
        self._matches = MatchFolder.beside(checkpoint)
        super().__init__(f"matches of {route.name}", self.maintain, every=_PAUSE_SECONDS, delay=_PAUSE_SECONDS)

    def maintain(self) -> None:
        """Remove the files of deleted records, and merge until nothing is left to merge.

        Raises:
            TurnoutError: the server cannot be queried, or a file is damaged.
            OSError: files cannot be written.
        """
        from turnout.runtime.endpoints import adapter_of

        streams = self._matches.streams()
        if not streams:
            return
        with adapter_of(self._route.source).history() as history:
            for label in streams:
                bounds = history.bounds(self._name(label))
                # A stream that was made anew has none of the records of the former one.
                is_there = not bounds.created or Origin.of(label, 0).is_of(bounds.created)
                self._matches.trim(label, bounds.first if is_there else LARGEST_SEQUENCE)
        done = committed(self._checkpoint)
        for label in streams:
            name = self._name(label)
            until = done.sequence(name) if done.label(name) == label else 0
            while not self.stopped.is_set() and self._matches.merge(label, until):
                pass

    def _name(self, label: str) -> str:
        """Return the stream, or partition, whose matches are kept under a label."""
        stream = Origin.of(label, 0).stream
        return stream if stream in self._route.source.streams else label
