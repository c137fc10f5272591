"""Recorder of a task's matches: collects them while the engine runs, and stores them part by part of the stream."""

from __future__ import annotations

import numpy as np

from turnout.engine import Result
from turnout.engine.feed_matches import FeedMatches
from turnout.runtime.feeds.match_file import Matches, encode
from turnout.runtime.feeds.match_folder import MatchPart, hash_of
from turnout.runtime.index.task_index import IndexLocation
from turnout.subscriptions.index import Index


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
