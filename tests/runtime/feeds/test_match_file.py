"""Files of matches: what is written is read, as a whole and page by page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.runtime.matches import Matches, MatchFile, MatchFileError, decoded, encode

SUBSCRIPTION = st.sampled_from([0, 1, 7, 2**63, 2**64 - 1])
BASE = st.sampled_from([0, 1, 2**31, 2**50])
PAIRS = st.lists(st.tuples(SUBSCRIPTION, st.integers(0, 3000) | st.integers(0, 2**32 - 1)), max_size=1500)


def matches_of(pairs: list[tuple[int, int]], base: int = 0) -> Matches:
    """Return pairs as columns."""
    return Matches(
        np.array([subscription for subscription, _ in pairs], np.uint64),
        np.array([base + sequence for _, sequence in pairs], np.int64),
    )


@given(PAIRS, BASE, st.integers(0, 3000), st.integers(1, 700))
def test_a_file_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], base: int, after: int, limit: int
) -> None:
    """Each match once, sorted; a page has the first sequences above its cursor."""
    path = tmp_path_factory.mktemp("matches") / "file"
    path.write_bytes(encode(matches_of(pairs, base)))
    file = MatchFile(path)

    everything = file.all()

    assert list(zip(everything.subscriptions.tolist(), everything.sequences.tolist(), strict=True)) == sorted(
        {(subscription, base + sequence) for subscription, sequence in pairs}
    )
    assert file.matches == len(everything.sequences)
    for subscription in (0, 7, 2**64 - 1, 12345):
        expected = sorted({base + n for s, n in pairs if s == subscription and base + n > base + after})
        page = file.sequences(subscription, base + after, limit).tolist()
        assert page[:limit] == expected[:limit]
        assert page == expected[: len(page)]


def test_long_runs_are_found_from_any_sequence(tmp_path: Path) -> None:
    """A subscription with more matches than one run has is read from the middle."""
    path = tmp_path / "file"
    path.write_bytes(encode(Matches(np.full(5000, 9, np.uint64), np.arange(0, 15000, 3))))

    assert MatchFile(path).sequences(9, 7_000, 3)[:3].tolist() == [7002, 7005, 7008]
    assert MatchFile(path).sequences(9, 14_997, 3).tolist() == []
    assert MatchFile(path).sequences(8, 0, 3).tolist() == []


@pytest.mark.parametrize("content", [b"", b"x" * 100, encode(matches_of([(1, 2), (1, 3)]))[:-1]])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    """The error has its path."""
    path = tmp_path / "damaged"
    path.write_bytes(content or b"\0")

    with pytest.raises(MatchFileError, match="damaged"):
        MatchFile(path)


def test_sequences_too_far_apart_are_refused() -> None:
    """A file covers a part of a stream."""
    with pytest.raises(ValueError, match="one part of a stream"):
        encode(matches_of([(1, 0), (1, 2**33)]))


def test_no_bytes_are_no_values() -> None:
    """An empty run of differences is decoded."""
    assert decoded(np.zeros(0, np.uint8)).tolist() == []
