"""Fixtures shared by the tests of the parts of a store."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a SQLite store that does not exist yet."""
    return tmp_path / "s.db"
