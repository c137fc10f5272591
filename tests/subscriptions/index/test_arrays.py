"""Files of a revision that are missing, damaged, cut off, or of another version."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

from tests.subscriptions.index.asking import wanting
from turnout.errors import TurnoutError
from turnout.subscriptions.index import Index, IndexFileError, IndexFolder, arrays


def segment_of(index_folder):
    (path,) = index_folder.folder.glob("segment-*.index")
    return path


def test_missing_file(index_folder):
    """A file that is not there is named, with the cure."""
    path = segment_of(index_folder)
    path.unlink()
    with pytest.raises(TurnoutError, match=f"{path.name}.*build the index again"):
        Index.open(index_folder.folder, index_folder.revision)


@pytest.mark.parametrize("place", [0, 9, 20, 40])
def test_damaged_file(index_folder, place):
    """A segment whose head was changed anywhere is refused."""
    path = segment_of(index_folder)
    data = bytearray(path.read_bytes())
    data[place] ^= 0x55
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(IndexFileError) as error:
        Index.open(index_folder.folder, index_folder.revision)

    assert error.value.path == path


@pytest.mark.parametrize("length", [0, 5, 30, -1])
def test_file_that_is_cut_off(store, index_folder, length):
    """A segment that is shorter than its head says is refused."""
    path = segment_of(index_folder)
    data = path.read_bytes()[:length]
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(IndexFileError, match=path.name):
        Index.open(index_folder.folder, index_folder.revision)


def test_other_version(tmp_path, store, monkeypatch):
    """A segment of another version is refused in these words, whichever is newer."""
    ours = arrays._VERSION
    monkeypatch.setattr(arrays, "_VERSION", ours + 1)
    with IndexFolder(tmp_path / "index", store) as index_folder:
        shutil.copytree(index_folder.folder, tmp_path / "copy")
    monkeypatch.undo()
    with pytest.raises(
        IndexFileError, match=f"is a segment of version {ours + 1}, and this turnout reads version {ours}"
    ):
        Index.open(tmp_path / "copy", 0)


def test_damaged_manifest_or_bitmap(store, index_folder):
    """The manifest and the bitmap are verified too."""
    created, _ = store.create_many([wanting("a"), wanting("b")])
    index_folder.refresh()
    store.delete(created)
    revision = index_folder.refresh()
    (bitmap,) = index_folder.folder.glob("gone-*.bits")
    bitmap.write_bytes(bitmap.read_bytes()[:-1] + b"\0")
    with pytest.raises(IndexFileError, match=bitmap.name):
        Index.open(index_folder.folder, revision)
    (index_folder.folder / f"revision-{revision}.json").write_text("{")
    with pytest.raises(IndexFileError, match="damaged"):
        Index.open(index_folder.folder, revision)
    with pytest.raises(IndexFileError, match=r"revision-99\.json"):
        Index.open(index_folder.folder, 99)


def test_errors_cross_processes():
    """The error is picklable, as errors of workers have to be."""
    error = pickle.loads(pickle.dumps(IndexFileError(Path("p"), "is damaged", "build it again")))

    assert (str(error), error.path) == ("p: is damaged; build it again", Path("p"))
