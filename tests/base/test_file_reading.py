"""Bounded reading of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnout.base.files import check_file, read_file


def test_a_file_within_the_limit_is_read(tmp_path: Path) -> None:
    """Up to its last byte."""
    file = tmp_path / "a"
    file.write_bytes(b"12345")

    check_file(file, max_bytes=5)
    assert read_file(file, max_bytes=5) == b"12345"


@pytest.mark.parametrize("read", [check_file, read_file])
def test_what_is_no_small_file_is_an_error(tmp_path: Path, read) -> None:
    """A folder, a pipe without a writer, a file that is too large, and names that the system refuses."""
    (tmp_path / "large").write_bytes(b"123456")
    os.mkfifo(tmp_path / "pipe")
    wrong = {
        tmp_path: "Is a directory",
        tmp_path / "pipe": "not a regular file",
        tmp_path / "large": "more than 5 bytes",
        tmp_path / "none": "No such file",
        Path("a\0b"): "not a file name",
    }
    for path, problem in wrong.items():
        with pytest.raises(OSError, match=problem):
            read(path, max_bytes=5)
