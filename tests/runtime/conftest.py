"""An index folder of lists of files, and its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnout.base.caches import LruCache
from turnout.runtime import task_index as index_place
from turnout.runtime.driver import IndexServer
from turnout.subscriptions.index import IndexFileError


class Folder:
    """An index folder whose revisions are lists of files."""

    def __init__(self, path: Path) -> None:
        self.path = self.folder = path
        path.mkdir()
        self.revisions: dict[int, list[str]] = {}

    def put(self, revision: int, **contents: str) -> None:
        """A revision with these files, those of earlier ones by their names alone."""
        for name, content in contents.items():
            if content:
                (self.path / name).write_text(content)
        self.revisions[revision] = list(contents)

    def files(self, revision: int) -> list[Path]:
        if revision not in self.revisions:
            raise IndexFileError(self.path / str(revision), "is not there", "put it there")
        return [self.path / name for name in self.revisions[revision]]

    def newest(self) -> int:
        return max(self.revisions)

    def filters(self, revision: int) -> None:
        """Any subject."""

    def usable(self, revision: int) -> int:
        return revision if revision in self.revisions else self.newest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Folder:
    """Return the driver's folder: its path, and its contents."""

    def opened(path: Path, revision: int) -> Any:
        files = {file.name: file.read_text() for file in path.iterdir() if not file.name.startswith(".")}
        return SimpleNamespace(path=path, revision=revision, files=files)

    monkeypatch.setattr("turnout.subscriptions.index.Index", SimpleNamespace(open=opened), raising=False)
    monkeypatch.setattr(index_place, "_opened", LruCache(2))
    return Folder(tmp_path / "driver")


@pytest.fixture
def server(folder: Folder) -> Iterator[IndexServer]:
    with IndexServer(folder) as started:
        yield started
