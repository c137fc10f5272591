"""Loops are compiled, or loaded from the cache, where a test asks for that."""

from __future__ import annotations

import pytest

from turnout.loops import compile_loops


@pytest.fixture(scope="session")
def compiled_loops() -> None:
    """Compile the loops once."""
    assert compile_loops()
