"""A revision's index inside a task: opened in the driver's own folder, or from a copy of its files on another host."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np

from turnout.base.caches import LruCache
from turnout.base.files import FileLock, hold, new_file
from turnout.engine import Result
from turnout.engine.deliveries import FeedMatches
from turnout.errors import ConnectionLostError
from turnout.runtime.driver import fetch, send
from turnout.runtime.matches import Matches, MatchPart, encode, hash_of
from turnout.subscriptions.index import Index

_MARK: Final = ".place"
_CHUNK: Final = 1 << 20
_OPEN_REVISIONS: Final = 2
"""This many revisions are in use at once: the next micro-batch begins while the last one ends."""

_opened = LruCache[tuple[str, int], "Index"](_OPEN_REVISIONS)


@dataclass(frozen=True, slots=True)
class IndexLocation:
    """The index of one run, for any process of it.

    Attributes:
        folder: on the driver's host.
        mark: text of the folder's mark, so that a folder of the same name on another host is not taken for it.
        url: URL at which `turnout.runtime.driver` offers its files to other hosts; None if there are none.
    """

    folder: str
    mark: str
    url: str | None = None

    @classmethod
    def at(cls, folder: str | Path, url: str | None = None) -> IndexLocation:
        """The place of an index folder of this machine for one run, which takes nothing that another has opened."""
        mark = secrets.token_hex(16)
        descriptor = os.open(Path(folder) / _MARK, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(mark)
        return cls(str(folder), mark, url)

    def open(self, revision: int) -> Index:
        """Return the index of a revision; a process keeps the two that were used last.

        Raises:
            ConnectionLostError: the driver does not give its files.
        """
        return _opened.get_or_add((self.mark, revision), lambda: self._open(revision))

    def put_matches(self, name: str, content: bytes) -> None:
        """Store a file of the run's matches beside its checkpoint, on the driver's host.

        Raises:
            ConnectionLostError: the driver does not answer.
            OSError: the file cannot be written.
        """
        from turnout.runtime.matches import MatchFolder

        if self._is_here():
            MatchFolder.beside(Path(self.folder).parent).put(name, content)
        elif self.url is None:
            raise ConnectionLostError(f"the folder {self.folder} of the run's index is not on this host")
        else:
            send(self.url, f"matches/{quote(name)}", content)

    def _open(self, revision: int) -> Index:
        from turnout.subscriptions.index import Index

        if self._is_here():
            return Index.open(Path(self.folder), revision)
        if self.url is None:
            raise ConnectionLostError(f"the folder {self.folder} of the subscriptions' index is not on this host")
        with _Copy(_scratch() / f"turnout-index-{self.mark}", self.url).of(revision) as folder:
            return Index.open(folder, revision)

    def _is_here(self) -> bool:
        try:
            return (Path(self.folder) / _MARK).read_text(encoding="ascii") == self.mark
        except OSError:
            return False


def _scratch() -> Path:
    """Return a folder of this host that is removed with the executor, if Spark names one; else the temporary folder."""
    for name in ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"):
        for folder in os.environ.get(name, "").replace(",", os.pathsep).split(os.pathsep):
            if folder and Path(folder).is_dir():
                return Path(folder)
    return Path(tempfile.gettempdir())


class _Copy:
    """The files of a run's index on a host that is not the driver's, each fetched once for all of its processes."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url

    @contextmanager
    def of(self, revision: int) -> Iterator[Path]:
        """The folder with the files of a revision, which stay there at least as long as this block."""
        hold(self._folder)
        with FileLock(self._folder / ".lock").acquire(wait=True):
            names = self._names(revision)
            self._forget(revision, names)
            for name, size in names.items():
                if not self._has(name, size):
                    self._fetch(revision, name)
            yield self._folder

    def _names(self, revision: int) -> dict[str, int]:
        """Return the files of a revision and their sizes, as the driver names them."""
        with fetch(self._url, f"{revision}") as answer:
            sizes: dict[str, int] = json.load(answer)
        return sizes

    def _has(self, name: str, size: int) -> bool:
        file = self._folder / name
        return file.exists() and file.stat().st_size == size

    def _fetch(self, revision: int, name: str) -> None:
        file = self._folder / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with new_file(file, fsync=False) as target, fetch(self._url, f"{revision}/{quote(name)}") as source:
            shutil.copyfileobj(source, target, _CHUNK)

    def _forget(self, revision: int, names: dict[str, int]) -> None:
        """Remove what belongs to neither this revision nor the one fetched before; open files stay readable."""
        revisions_file = self._folder / ".revisions"
        fetched: dict[str, list[str]] = (
            json.loads(revisions_file.read_text(encoding="utf-8")) if revisions_file.exists() else {}
        )
        fetched.pop(str(revision), None)
        fetched = dict(list(fetched.items())[-(_OPEN_REVISIONS - 1) :]) | {str(revision): list(names)}
        needed = {name for needed_names in fetched.values() for name in needed_names}
        for file in self._folder.rglob("*"):
            name = file.relative_to(self._folder).as_posix()
            if file.is_file() and name not in needed and not name.startswith("."):
                file.unlink()
        revisions_file.touch(0o600)
        revisions_file.write_text(json.dumps(fetched), encoding="utf-8")


class MatchRecorder:
    """Collects the matches of one part of a stream at a time.

    Args:
        index_location: location of the run's index, beside which its matches are stored.
    """

    def __init__(self, index_location: IndexLocation) -> None:
        self._index_location = index_location
        self._collected: list[Matches] = []
        self._hashes: dict[int, int] = {}
        self._index: Index | None = None

    def add(self, result: Result) -> None:
        """Take the matches of a batch."""
        if result.matched is not None and len(result.matched.offsets):
            self._collected.append(Matches(self._hashed(result.matched), result.matched.offsets))

    def _hashed(self, matched: FeedMatches) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        if matched.index is not self._index:
            self._index, self._hashes = matched.index, {}
        numbers, codes = np.unique(matched.subscriptions, return_inverse=True)
        hashes = self._hashes
        new = np.array([number for number in numbers.tolist() if number not in hashes], np.int64)
        ids = matched.index.subscription_ids(new).to_pylist()
        hashes.update(zip(new.tolist(), map(hash_of, ids), strict=True))
        return np.array([hashes[number] for number in numbers.tolist()], np.uint64)[codes]

    def store(self, stream: str, start: int, end: int) -> None:
        """Store the collected matches of a part of the stream.

        Args:
            stream: stream of the positions.
            start: the first sequence of the part.
            end: the sequence behind its last.

        Raises:
            ConnectionLostError: the driver, on another host, does not answer.
            OSError: the file cannot be written.
        """
        matches, self._collected = Matches.joined(self._collected), []
        if len(matches.sequences):
            self._index_location.put_matches(MatchPart(start, end, 0, stream).name, encode(matches))
