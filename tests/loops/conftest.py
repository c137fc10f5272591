"""Loops are compiled, or loaded from the cache, where a test asks for that."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.loops import compile_loops
from turnout.loops.compiled import Bytes


def padded(data: bytes) -> Bytes:
    """Return the bytes with zeros behind their end."""
    return np.frombuffer(data + bytes(16), np.uint8)


@pytest.fixture(scope="session")
def compiled_loops() -> None:
    """Compile the loops once."""
    assert compile_loops()
