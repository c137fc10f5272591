"""Temporary folders, which outlive no run, and files for their owner only."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from turnout.base.files import (
    append_privately,
    hold,
    lasting_folder,
    private_file,
    private_folder,
    remove,
    scratch_folder,
)

OWNER = """
import sys, time
from turnout.base.files import lasting_folder, scratch_folder
with scratch_folder("run") as folder:
    (folder / "records").write_text("x")
    print(folder, lasting_folder("spark"), flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder for temporary folders, and files made as most people's are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


HOLDER = """
import pathlib, sys, time
from turnout.base.files import hold
hold(pathlib.Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def owner() -> tuple[subprocess.Popen, list[Path]]:
    """A process that has two temporary folders, and their paths."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [Path(part) for part in process.stdout.readline().split()]


def end(process: subprocess.Popen, how: signal.Signals) -> None:
    process.send_signal(how)
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()


def test_a_killed_owners_folders_are_swept_away(temporary):
    """Folders of a killed process are removed when the next process creates a folder, and not before."""
    process, folders = owner()
    with scratch_folder("run"):
        assert all(folder.is_dir() for folder in folders)
    end(process, signal.SIGKILL)
    assert all(folder.is_dir() for folder in folders)

    with scratch_folder("run") as own:
        assert list(temporary.iterdir()) == [own]
    assert list(temporary.iterdir()) == []


def test_a_process_that_ends_removes_its_folders():
    """An ordinary end, Ctrl-C among them, leaves nothing."""
    process, folders = owner()
    end(process, signal.SIGINT)

    assert not any(folder.exists() for folder in folders)


def test_what_is_not_ours_stays(temporary):
    """Folders and links of other users, and unclaimed folders, are not changed."""
    (temporary / "turnout-project").mkdir()
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / ".owner").touch()
    (temporary / "turnout-link").symlink_to(temporary / "elsewhere")
    (temporary / "turnout-file").touch()
    (temporary / "turnout-odd").mkdir()
    (temporary / "turnout-odd" / ".owner").symlink_to(temporary / "elsewhere" / ".owner")
    before = sorted(temporary.rglob("*"))
    remove(lasting_folder("match"))

    assert sorted(temporary.rglob("*")) == before


def test_a_folder_that_several_processes_hold(temporary):
    """It stays until the last of them has gone."""
    folder = temporary / "turnout-index-x"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    hold(folder)
    end(process, signal.SIGKILL)
    with scratch_folder("run"):
        assert folder.is_dir()
    remove(folder)


def test_modes(temporary):
    """New folders and files are readable by their owner only; existing ones keep their mode."""
    with scratch_folder("run") as folder:
        assert mode(folder) == "0o700"
        assert [mode(file) for file in folder.iterdir()] == ["0o600"]
    assert mode(private_folder(temporary / "a" / "b")) == "0o700"
    assert mode(private_file(temporary / "file")) == "0o600"
    with append_privately(temporary / "log") as log:
        log.write(b"x")
    with append_privately(temporary / "log") as log:
        log.write(b"y")
    assert mode(temporary / "log") == "0o600"
    assert (temporary / "log").read_bytes() == b"xy"
    (temporary / "theirs").touch(0o644)
    assert mode(private_file(temporary / "theirs")) == "0o644"
    # What cannot be made is told by whoever opens it.
    assert not private_file(temporary / "nowhere" / "file").exists()
