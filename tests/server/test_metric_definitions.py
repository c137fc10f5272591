"""Metrics that routes are measured by."""

from __future__ import annotations

from turnout.engine.counts import COUNTS
from turnout.server.metric_definitions import MEASURES


def test_each_metric_is_served() -> None:
    """Counts with a metric are among the measures."""
    declared = {info.metric for info in COUNTS.values() if info.metric}

    assert declared <= set(MEASURES)
