"""Files of matches: what is written is read, as a whole and page by page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.runtime.matches import Matches, MatchFile, MatchFileError, MatchFolder, MatchPart, decoded, encode, hash_of

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


ONE = hash_of("one")
STREAM = "ORDERS"


def page(folder: MatchFolder, after: int, until: int, limit: int) -> list[int]:
    return folder.pages(ONE, {STREAM: (after, until)}, limit)[STREAM].tolist()


def put(folder: MatchFolder, start: int, end: int, sequences: list[int], subscription: int = ONE) -> None:
    """Store the matches of one subscription in a part of the stream."""
    matches = Matches(np.full(len(sequences), subscription, np.uint64), np.array(sequences, np.int64))
    folder.put(MatchPart(start, end, 0, STREAM).name, encode(matches))


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), max_size=30), st.integers(0, 300), st.data())
def test_pages_are_the_same_before_and_after_merges(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], after: int, data: st.DataObject
) -> None:
    """Parts may overlap, as those of an open split that was repeated do; each sequence is in a page once."""
    folder = MatchFolder(tmp_path_factory.mktemp("matches"))
    everything: set[int] = set()
    for start, length in spans:
        sequences = sorted(data.draw(st.sets(st.integers(start, start + length - 1), min_size=1, max_size=5)))
        if (folder.folder / MatchPart(start, start + length, 0, STREAM).name).exists():
            continue
        put(folder, start, start + length, sequences)
        everything |= set(sequences)
    until = data.draw(st.integers(0, 500))
    expected = sorted(sequence for sequence in everything if after < sequence < until)

    limit = data.draw(st.integers(1, 40))
    assert page(folder, after, until, limit) == expected[:limit]
    while folder.merge(STREAM, until):
        assert page(folder, after, until, limit) == expected[:limit]


def test_parts_beyond_the_committed_position_are_not_merged(tmp_path: Path) -> None:
    """They may be written again."""
    folder = MatchFolder(tmp_path)
    for start in range(0, 80, 10):
        put(folder, start, start + 10, [start])

    assert not folder.merge(STREAM, 79)
    assert folder.merge(STREAM, 80)
    assert [part.level for part in folder.parts(STREAM)] == [1]


def test_an_interrupted_merge_is_finished(tmp_path: Path) -> None:
    """Files that lie inside a merged one are removed."""
    folder = MatchFolder(tmp_path)
    for start in range(0, 80, 10):
        put(folder, start, start + 10, [start])
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    folder.merge(STREAM, 80)
    for name, content in kept.items():
        folder.put(name, content)

    while folder.merge(STREAM, 80):
        pass

    assert [part.name for part in folder.parts(STREAM)] == [f"{STREAM}.0.80.1.matches"]
    assert page(folder, -1, 100, 100) == list(range(0, 80, 10))


def test_a_part_inside_a_wide_one_is_merged_with_it(tmp_path: Path) -> None:
    """It is not among the eight neighbours, but in their range."""
    folder = MatchFolder(tmp_path)
    put(folder, 0, 100, [99])
    for start in range(1, 9):
        put(folder, start, start + 2, [start])

    while folder.merge(STREAM, 100):
        pass

    assert page(folder, -1, 100, 100) == [*range(1, 9), 99]


def test_matches_of_a_backfill_stay_beside_those_of_runs(tmp_path: Path) -> None:
    """They share their range with parts of runs, come in any order, may be added twice, and are never merged."""
    folder, late = MatchFolder(tmp_path / "matches"), MatchFolder(tmp_path / "late")
    for start in range(0, 80, 10):
        put(folder, start, start + 10, [start])
    for part in ([200_001, 199_999], [3, 400_000]):
        put(late, min(part), max(part) + 1, part)
        for _ in range(2):
            folder.take_backfilled(late)
        for file in late.folder.iterdir():
            file.unlink()
    while folder.merge(STREAM, 1_000_000):
        assert len(page(folder, -1, 1_000_000, 100)) == 12

    assert page(folder, -1, 1_000_000, 100) == sorted([*range(0, 80, 10), 3, 199_999, 200_001, 400_000])
    assert [part.level for part in folder.parts(STREAM)].count(99) == 3


def test_what_the_stream_no_longer_holds_is_removed(tmp_path: Path) -> None:
    """Parts that end before its first sequence; other streams keep theirs."""
    folder = MatchFolder(tmp_path)
    put(folder, 1, 10, [3])
    put(folder, 10, 20, [13])
    folder.put("OTHER.1.10.0.matches", encode(Matches.none()))

    folder.trim(STREAM, 10)

    assert sorted(file.name for file in tmp_path.iterdir()) == ["ORDERS.10.20.0.matches", "OTHER.1.10.0.matches"]


@pytest.mark.parametrize(
    "name", ["../x.1.2.0.matches", "x", "a/b.1.2.0.matches", "x.1.2.0.matches.tmp", "x.-1.2.0.matches"]
)
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    """Nothing is written outside of the folder."""
    with pytest.raises(ValueError, match="name of a part"):
        MatchFolder(tmp_path / "matches").put(name, b"")

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_has_no_matches(tmp_path: Path) -> None:
    """A route that has not run yet has empty feeds."""
    assert page(MatchFolder(tmp_path / "none"), 0, 10, 10) == []


def test_partitions_are_streams_of_their_own(tmp_path: Path) -> None:
    """The name of a topic may have dots, and be the beginning of another; a page of several lists the folder once."""
    folder = MatchFolder(tmp_path)
    for stream, sequences in (("a.5:0", [0, 3]), ("a.5:1", [1]), ("a", [2]), ("a.5:0.1", [4])):
        matches = Matches(np.full(len(sequences), ONE, np.uint64), np.array(sequences, np.int64))
        folder.put(MatchPart(0, 10, 0, stream).name, encode(matches))

    pages = folder.pages(ONE, {"a.5:0": (-1, 10), "a.5:1": (-1, 1), "none": (-1, 10)}, 10)

    assert folder.streams() == ["a", "a.5:0", "a.5:0.1", "a.5:1"]
    assert {stream: found.tolist() for stream, found in pages.items()} == {"a.5:0": [0, 3], "a.5:1": [], "none": []}
    assert [part.name for part in folder.parts("a")] == ["a.0.10.0.matches"]
