"""An index folder and its store."""

from __future__ import annotations

import pytest

from turnout.subscriptions.index import IndexFolder
from turnout.subscriptions.stores.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def index_folder(tmp_path, store):
    with IndexFolder(tmp_path / "index", store) as folder:
        yield folder
