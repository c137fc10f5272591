"""Histograms of durations."""

from __future__ import annotations

import pytest

from turnout.base.histogram import Histogram


def test_a_histogram_counts_up_to_each_bound() -> None:
    """A duration on a bound belongs to it; the last bucket has everything."""
    times = Histogram.of(0.001) + Histogram.of(0.2, 2) + Histogram.of(31.0)

    buckets = dict(times.cumulative())

    assert (buckets["0.001"], buckets["0.1"], buckets["0.25"], buckets["30.0"], buckets["+Inf"]) == (1, 1, 3, 3, 4)
    assert times.count == 4
    assert times.seconds == pytest.approx(31.401)
