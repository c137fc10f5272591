"""Ages of the demo's deliveries."""

from __future__ import annotations

import pytest

from turnout.demo.ages import Ages


def test_ages_of_the_last_second_and_of_all() -> None:
    """Each message counts once among those of a second; the running percentiles of all are right to a hundredth."""
    ages, seconds = Ages(), []
    for second in range(1, 4):
        for number in range(second * 100):
            ages.take(b"HMSG s 1 31 31\r\nNATS/1.0\r\nSent: %f\r\n\r\n\r\n" % second, second + (number + 1) / 1000)
        seconds.append(ages.second())

    assert [said["last"]["count"] for said in seconds] == [100, 200, 300]
    assert seconds[-1]["last"]["max_ms"] == pytest.approx(300, abs=0.01)
    exact = ages.summary()
    assert exact["count"] == seconds[-1]["all"]["count"] == 600
    for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"):
        assert seconds[-1]["all"][name] == pytest.approx(exact[name], rel=0.02)
    assert ages.second()["last"] == {"count": 0}
