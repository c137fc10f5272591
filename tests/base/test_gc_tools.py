"""Pauses of the garbage collector."""

from __future__ import annotations

import gc
from contextlib import suppress

from turnout.base.startup import paused_gc


def test_the_collector_is_paused_in_the_block_alone() -> None:
    """This includes a block that raises; a collector that was off before stays off."""
    assert gc.isenabled()
    enabled = []
    with suppress(KeyError), paused_gc():
        enabled.append(gc.isenabled())
        raise KeyError
    enabled.append(gc.isenabled())

    assert enabled == [False, True]

    gc.disable()
    try:
        with paused_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
