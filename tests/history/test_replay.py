"""Progress of a replay that is continued."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnout.errors import ConfigError
from turnout.history.replay import ReplayState, StreamRange
from turnout.nats.protocol.positions import StreamIdentity

FORMER, PRESENT = (StreamIdentity.of(f"2026-11-2{day}T00:00:00Z") for day in (1, 2))


def plan(folder: Path, identity: StreamIdentity | None) -> Any:
    ranges = (StreamRange("S", 1, 101, 100, identity),)
    route = SimpleNamespace(digest="d", name="r")
    return SimpleNamespace(
        folder=folder, asked={"route": "r"}, ranges=ranges, route=route, subscriptions=None, is_exact=False
    )


def test_a_stream_that_was_made_anew_is_not_read_on(tmp_path: Path) -> None:
    """Its sequences are not those that the replay has planned."""
    state = replace(ReplayState.of(plan(tmp_path, FORMER)), next={"S": 51})
    state.write(tmp_path)

    assert ReplayState.of(plan(tmp_path, FORMER)) == state
    part = state.left(10)
    assert part is not None
    assert (part.start, part.end, part.identity) == (51, 61, FORMER)
    with pytest.raises(ConfigError, match="give this one another id") as raised:
        ReplayState.of(plan(tmp_path, PRESENT))
    assert all(created in str(raised.value) for created in (FORMER.created, PRESENT.created))


def test_a_replay_of_an_earlier_release_is_continued(tmp_path: Path) -> None:
    """It has noted no identity."""
    replace(ReplayState.of(plan(tmp_path, None)), next={"S": 51}).write(tmp_path)

    assert ReplayState.of(plan(tmp_path, PRESENT)).next == {"S": 51}
