"""Manifests of revisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from turnout.subscriptions.index import IndexFileError
from turnout.subscriptions.index.manifest import Manifest, SegmentFiles, manifest_path, read_gone, write_gone


def test_a_manifest_is_read_back(tmp_path: Path) -> None:
    """With the files that it names."""
    manifest = Manifest(7, (SegmentFiles("a.segment", "a.gone"), SegmentFiles("b.segment")))
    manifest.write(tmp_path)

    assert Manifest.read(tmp_path, 7) == manifest
    assert manifest.names() == ["a.segment", "a.gone", "b.segment"]


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "damaged"), ('{"format": 999}', "of format 999"), ("[]", "of format None")]
)
def test_a_manifest_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    """A missing manifest cannot be used either."""
    manifest_path(tmp_path, 1).write_text(text)

    with pytest.raises(IndexFileError, match=problem):
        Manifest.read(tmp_path, 1)
    with pytest.raises(IndexFileError, match="cannot be read"):
        Manifest.read(tmp_path, 2)


def test_tombstones_belong_to_their_segment(tmp_path: Path) -> None:
    """One of another size is refused, and so is a changed byte."""
    path = tmp_path / "a.gone"
    gone = np.arange(19) % 3 == 0
    write_gone(path, gone)

    assert read_gone(path, 19).tolist() == gone.tolist()
    with pytest.raises(IndexFileError, match="does not belong"):
        read_gone(path, 20)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexFileError, match="damaged"):
        read_gone(path, 19)
