"""The SQLite store: what every store promises, and what a file adds to that."""

from __future__ import annotations

import pytest

from tests.contracts.store import StoreContract
from turnout.subscriptions import open_store


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
            yield store
