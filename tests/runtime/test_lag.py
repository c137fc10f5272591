"""Lag of a route by its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.test_committed_offsets import checkpoint

from turnout.runtime.endpoints.adapter import StreamEnd
from turnout.runtime.preflight import lag_of


class Session:
    """A stream with ten messages, created on the second."""

    def ends(self, source: Any) -> dict[str, StreamEnd]:
        return {"S": StreamEnd(1, 11, "2026-01-02T00:00:00Z")}

    def age(self, stream: str, sequence: int, now: float) -> float | None:
        return None


@pytest.mark.parametrize(("created", "waiting"), [("", 3), ("2026-01-02T00:00:00Z", 3), ("2026-01-01T00:00:00Z", 10)])
def test_a_stream_that_was_made_anew_is_unread(tmp_path: Path, created: str, waiting: int) -> None:
    """The position is one of the former stream; a checkpoint of an earlier release does not tell."""
    offset = {"S": 8} | ({"S.created": created} if created else {})

    lag = lag_of(None, checkpoint(tmp_path / "c", json.dumps(offset)), Session(), 0.0)  # type: ignore[arg-type]

    assert lag is not None
    assert lag.records == {"S": waiting}
