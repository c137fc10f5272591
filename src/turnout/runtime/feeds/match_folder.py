"""Folder with the matches of one route: immutable files that cover parts of its stream, merged in the background.

The stream of a Kafka topic is a partition, ``topic:0``, and its sequences are offsets.

A task writes the matches of the part that it has read before its micro-batch is committed. A micro-batch that is
repeated writes the same again; what an open split repeats may be in two files, and a page has each sequence once. The
committed position of the checkpoint says how far a feed is complete: readers stop there.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

from turnout.base.caches import LruCache
from turnout.base.files import private_folder, replace_file
from turnout.runtime.feeds.match_file import Matches, MatchFile, Sequences, encode

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

    def page(self, stream: str, subscription: int, after: int, until: int, limit: int) -> Sequences:
        """Return sequences of a subscription's matches, ascending and each once.

        Args:
            stream: stream of the sequences.
            subscription: the hash of its id.
            after: the page begins behind this sequence.
            until: the page ends before this sequence, the route's committed position.
            limit: number of sequences.

        Raises:
            MatchFileError: a file is damaged.
        """
        return self._page(self.parts(stream), subscription, after, until, limit)

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
