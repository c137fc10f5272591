"""Losses of a route: shares compared with limits, and with the day before."""

from __future__ import annotations

import time

import pytest

from turnout.engine.counts import Counts
from turnout.routes.loss_limits import HealthPart
from turnout.server.loss_counts import Losses
from turnout.server.losses import DEFAULT_LIMITS, loss_report


@pytest.mark.parametrize("kind", ["dead_lettered", "discarded", "unmatched"])
def test_a_route_that_loses_every_record_is_not_healthy(kind) -> None:
    """It is unhealthy for every kind of loss, also without its own limits."""
    report = loss_report(DEFAULT_LIMITS, Losses(read=100, **{kind: 100}), Losses())

    assert report.shares[kind] == 1.0
    assert len(report.problems) == 1
    assert report.problems[0].startswith("100% of its records")


def test_deliveries_are_compared_with_deliveries() -> None:
    """A record may have many: those that no sink accepted are a share of all that were tried."""
    report = loss_report(DEFAULT_LIMITS, Losses(read=1000, messages=60, undeliverable=90), Losses())

    assert report.shares["undeliverable"] == 0.6
    assert report.problems == (
        "60% of its deliveries were accepted by no sink in the last 15 minutes; its limit is 50%",
    )


def test_few_records_say_nothing() -> None:
    """One invalid record in a quiet period is not a loss."""
    assert loss_report(DEFAULT_LIMITS, Losses(read=99, discarded=99), Losses()).problems == ()


def test_a_limit_of_the_route() -> None:
    """It overrides the server's limit, in both directions; `off` is never a problem."""
    own = HealthPart.model_validate({"discarded": "1%", "unmatched": "off", "deadLettered": 0.9})
    limits = own.over(DEFAULT_LIMITS)
    recent = Losses(read=1000, discarded=11, unmatched=1000, dead_lettered=600)

    assert loss_report(limits, recent, Losses(read=5000)).problems == (
        "60% of its records became dead letters in the last 15 minutes, 0% in the day before",
        "1% of its records failed and were discarded in the last 15 minutes; its limit is 1%",
    )


def test_a_share_that_is_as_it_always_was() -> None:
    """A route whose interests are few leaves most records unmatched; a rise is a problem."""
    recent = Losses(read=1000, unmatched=900)

    assert loss_report(DEFAULT_LIMITS, recent, Losses(read=9000, unmatched=8000)).problems == ()
    assert loss_report(DEFAULT_LIMITS, recent, Losses(read=9000, unmatched=1000)).problems == (
        "90% of its records were matched by no subscription in the last 15 minutes, 11% in the day before",
    )


def test_everybody_is_told(bench, client) -> None:
    """REST and metrics say it of the one route, which runs."""
    bench.start("lossy", "fine")
    counts = {"lossy": Counts(read=200, discarded=200), "fine": Counts(read=200, delivered=200, messages=200)}
    for name, more in counts.items():
        bench.state.add_counts(name, more, time.time() - 60)
    bench.losses.check()

    answers = {name: client.get(f"/v1/routes/{name}").json() for name in counts}
    metrics = bench.metrics.text().decode()

    assert answers["lossy"]["losses"] == [
        "100% of its records failed and were discarded in the last 15 minutes; its limit is 50%"
    ]
    assert answers["lossy"]["loss_shares"]["discarded"] == 1.0
    assert answers["fine"]["losses"] == []
    assert 'turnout_route_healthy{route="lossy"} 0.0' in metrics
    assert 'turnout_route_healthy{route="fine"} 1.0' in metrics
    assert 'turnout_route_loss_ratio{loss="discarded",route="lossy"} 1.0' in metrics
