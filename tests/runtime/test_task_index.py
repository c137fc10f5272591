"""Location of the index for tasks: the driver's folder, or a copy of its files on another host."""

from __future__ import annotations

import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.conftest import Folder

from turnout.errors import ConnectionLostError
from turnout.runtime import task_index as index_place
from turnout.runtime.driver import IndexServer
from turnout.runtime.task_index import IndexLocation


def files_of(place: IndexLocation, revision: int) -> set[str]:
    """The names of the files of an opened revision."""
    opened: Any = place.open(revision)
    return set(opened.files)


@pytest.fixture
def elsewhere(folder: Folder, server: IndexServer, tmp_path: Path, monkeypatch: Any) -> IndexLocation:
    """The place as a host sees it that does not have the driver's folder."""
    scratch = tmp_path / "executor"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_EXECUTOR_DIRS", str(scratch))
    return replace(IndexLocation.at(folder.path, server.url), folder=str(tmp_path / "not-here"))


def test_on_the_drivers_machine_the_folder_is_opened(folder: Folder) -> None:
    """Nothing is copied, and a process opens a revision once."""
    folder.put(3, a="one")
    place = IndexLocation.at(folder.path)

    opened: Any = place.open(3)
    assert opened.path == folder.path
    assert place.open(3) is opened
    assert stat.S_IMODE((folder.path / ".place").stat().st_mode) == 0o600


def test_two_revisions_stay_open(folder: Folder) -> None:
    """The next micro-batch begins while the last one ends."""
    folder.put(1, a="one")
    place = IndexLocation.at(folder.path)
    first, second = place.open(1), place.open(2)

    assert place.open(1) is first
    assert place.open(2) is second
    place.open(3)
    assert place.open(2) is second
    assert place.open(1) is not first


def test_another_run_is_another_place(folder: Folder) -> None:
    """A recreated folder is not mistaken for the one opened before."""
    folder.put(1, a="one")

    assert IndexLocation.at(folder.path).open(1) is not IndexLocation.at(folder.path).open(1)


def test_on_another_host_the_files_are_fetched(folder: Folder, elsewhere: IndexLocation, tmp_path: Path) -> None:
    """They are the driver's, and for this user alone."""
    folder.put(3, a="one", b="two")

    opened: Any = elsewhere.open(3)

    assert opened.files == {"a": "one", "b": "two"}
    assert opened.path.parent == tmp_path / "executor"
    assert stat.S_IMODE(opened.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in opened.path.iterdir()} == {0o600}


def test_what_is_there_is_not_fetched_again(folder: Folder, elsewhere: IndexLocation) -> None:
    """A new revision shares segments with the last one; what no one needs any more goes."""
    folder.put(1, base="0" * 1000)
    folder.put(2, base="", new="1")
    folder.put(3, merged="2")
    elsewhere.open(1)
    opened: Any = elsewhere.open(2)
    base = opened.path / "base"
    before = base.stat().st_ino

    assert files_of(elsewhere, 2) == {"base", "new"}
    assert base.stat().st_ino == before
    assert files_of(elsewhere, 3) == {"base", "new", "merged"}
    folder.put(4, merged="", more="3")
    assert files_of(elsewhere, 4) == {"merged", "more"}


def test_processes_of_a_host_fetch_once(folder: Folder, elsewhere: IndexLocation, monkeypatch: Any) -> None:
    """The first fetches, the others wait for it."""
    folder.put(1, a="x" * 100_000)
    fetched: list[str] = []
    fetch = index_place._Copy._fetch

    def counted(self: Any, revision: int, name: str) -> None:
        fetched.append(name)
        fetch(self, revision, name)

    monkeypatch.setattr(index_place._Copy, "_fetch", counted)
    threads = [threading.Thread(target=elsewhere._open, args=(1,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert fetched == ["a"]


def test_a_driver_that_does_not_answer(folder: Folder, elsewhere: IndexLocation, server: IndexServer) -> None:
    """The error says what failed, and not the token."""
    with pytest.raises(ConnectionLostError, match="does not give the subscriptions' index") as failure:
        elsewhere.open(77)
    assert server.url.rsplit("/", 1)[1] not in str(failure.value)
    with pytest.raises(ConnectionLostError, match="is not on this host"):
        replace(elsewhere, url=None).open(1)
