"""Metrics that the server exposes, and the queries in deploy/ that use them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from tools.reference_metrics import NAMES

from tests.server.conftest import Bench, route_text, wait_for
from tests.server.fakes import FakeRunner
from turnout.base.histogram import Histogram
from turnout.engine.counts import COUNTS, Flow
from turnout.runtime.open_splits import SlotUse
from turnout.runtime.preflight import Lag
from turnout.server.config import ServerConfig
from turnout.server.deliveries import WebhookState
from turnout.server.metrics import MEASURES
from turnout.server.routes.supervisor import Phase
from turnout.server.serving import RouteServer

DEPLOY = Path(__file__).parents[2] / "deploy"


def samples(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(scraped: dict[Any, float], name: str, **labels: str) -> float:
    return scraped[name, frozenset(labels.items())]


def test_counters_are_the_sums_of_all_micro_batches(bench: Bench, client: TestClient) -> None:
    """Over restarts of the route as well; outcomes add up to what was read."""
    bench.start("a", "b")
    bench.run_of("a").deliver(10, delivered=7, filtered=2, dead_lettered=1, messages=21, reserved_headers=4)
    bench.run_of("a").deliver(5)
    bench.run_of("a").fail()
    bench.run_of("a", 2).deliver(3)
    scraped = samples(client)

    outcomes = {
        dict(labels)["outcome"]: count
        for (name, labels), count in scraped.items()
        if name == "turnout_route_records_total" and ("route", "a") in labels
    }
    assert {name: count for name, count in outcomes.items() if count} == {
        "delivered": 15.0, "filtered": 2.0, "dead_lettered": 1.0,
    }  # fmt: skip
    assert value(scraped, "turnout_route_records_read_total", route="a") == sum(outcomes.values()) == 18
    assert value(scraped, "turnout_route_messages_total", route="a") == 29
    assert value(scraped, "turnout_route_reserved_headers_total", route="a") == 4
    assert value(scraped, "turnout_route_reserved_headers_total", route="b") == 0
    assert value(scraped, "turnout_route_batch_seconds_count", route="a") == 3
    assert value(scraped, "turnout_route_batch_seconds_sum", route="a") == pytest.approx(0.3)
    assert value(scraped, "turnout_route_records_total", route="b", outcome="delivered") == 0


def test_a_micro_batch_that_is_counted_only_at_the_end_is_counted(bench: Bench, client: TestClient) -> None:
    """A run that is stopped may have delivered a micro-batch that it has not reported."""
    bench.start("a")
    run = bench.run_of("a")
    run.deliver(10)
    with run.changed:
        run.counts += type(run.counts)(read=4, delivered=4, messages=4)
    bench.routes.pause("a", who="ann")

    wait_for(lambda: value(samples(client), "turnout_route_records_read_total", route="a") == 14)


def test_stages_and_delivery_times_are_sums_too(bench: Bench, client: TestClient) -> None:
    """Of all micro-batches and runs; a stage that has seen nothing yet is there with zero: rates begin there."""
    bench.start("a", "b")
    waited = Histogram.of(0.003, 30) + Histogram.of(40.0)
    bench.run_of("a").deliver(10, Flow({"source": 10, "sink": 9}, {"value": 1}, waited), delivered=9, dead_lettered=1)
    bench.run_of("a").deliver(5, Flow({"source": 5, "sink": 5}))
    bench.run_of("a").fail()
    bench.run_of("a", 2).deliver(3, Flow({"source": 3, "sink": 3}, {}, Histogram.of(0.003)))
    scraped = samples(client)

    def of(name: str, label: str, route: str) -> dict[str, float]:
        return {
            dict(labels)[label]: number
            for (sample, labels), number in scraped.items()
            if sample == name and ("route", route) in labels
        }

    assert of("turnout_route_stage_records_total", "stage", "a") == {"source": 18, "key": 0, "value": 0, "sink": 17}
    assert of("turnout_route_stage_failures_total", "stage", "a") == {"source": 0, "key": 0, "value": 1, "sink": 0}
    assert set(of("turnout_route_stage_records_total", "stage", "b").values()) == {0}
    buckets = of("turnout_route_delivery_seconds_bucket", "le", "a")
    assert (buckets["0.0025"], buckets["0.005"], buckets["30.0"], buckets["+Inf"]) == (0, 31, 31, 32)
    assert value(scraped, "turnout_route_delivery_seconds_count", route="a") == 32
    assert value(scraped, "turnout_route_delivery_seconds_sum", route="a") == pytest.approx(40.093)
    assert value(scraped, "turnout_route_delivery_seconds_count", route="b") == 0


def test_gauges_say_how_a_route_is(bench: Bench, client: TestClient) -> None:
    """Whether it runs, has failed, when it last did something, how far it is behind, and what it matches with."""
    bench.start("a", "b")
    bench.run_of("a").deliver(1)
    bench.survey._lags = {"a": Lag({"IN": 5}, 2.5)}
    for number in (1, 2, 3):
        bench.run_of("b", number).fail()
    bench.wait_phase("b", Phase.FAILED)
    scraped = samples(client)

    assert [value(scraped, "turnout_route_up", route=name) for name in "ab"] == [1, 0]
    assert [value(scraped, "turnout_route_failed", route=name) for name in "ab"] == [0, 1]
    assert value(scraped, "turnout_route_lag_records", route="a", stream="IN", partition="0") == 5
    assert value(scraped, "turnout_route_lag_seconds", route="a") == 2.5
    assert value(scraped, "turnout_route_subscriptions", route="a") == 3
    assert value(scraped, "turnout_route_subscriptions_revision", route="a") == 7
    assert value(scraped, "turnout_route_last_success_timestamp_seconds", route="a") > 1.7e9
    assert ("turnout_route_last_success_timestamp_seconds", frozenset({("route", "b")})) not in scraped
    assert any(name == "turnout_build_info" for name, _ in scraped)
    assert any(name == "process_resident_memory_bytes" for name, _ in scraped)


def test_a_route_that_is_gone_is_not_told_of(bench: Bench, client: TestClient) -> None:
    """Nobody should be woken for it."""
    bench.start("a")
    bench.run_of("a").deliver(1)
    bench.routes.delete("a", who="ann")

    assert not [labels for _, labels in samples(client) if ("route", "a") in labels]


_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NOT_METRICS = re.compile(r'\{[^}]*\}|\[[^\]]*\]|"[^"]*"|\b(by|on|without|ignoring|group_left)\s*\([^)]*\)')
_LANGUAGE = {"sum", "max", "min", "rate", "increase", "time", "and", "or", "unless", "histogram_quantile"} | {
    "label_values", "route",
}  # fmt: skip


def names_in(expression: str) -> set[str]:
    """The metrics that a PromQL expression names."""
    return {word for word in _WORD.findall(_NOT_METRICS.sub(" ", expression)) if word not in _LANGUAGE}


def alerts() -> Iterator[str]:
    document = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    yield from (rule["expr"] for group in document["groups"] for rule in group["rules"])


def queries() -> Iterator[str]:
    document = json.loads((DEPLOY / "grafana" / "turnout.json").read_text())
    yield from (target["expr"] for panel in document["panels"] for target in panel["targets"])
    yield from (one["query"] for one in document["templating"]["list"] if one["type"] == "query")


def test_dashboard_and_alerts_ask_for_metrics_that_there_are(bench: Bench, client: TestClient) -> None:
    """Every name in a PromQL expression is a sample or a family of a live /metrics."""
    bench.start("a")
    bench.run_of("a").deliver(1)
    states = {"a": WebhookState(True, 5, 30.0, {"closed": 2, "open": 0, "disabled": 0})}
    bench.parts.metrics.watch_webhooks(lambda: {"a": {"delivered": 3}}, lambda: states)
    bench.parts.metrics.watch_scheduled(dict)
    text = client.get("/metrics").text
    known = {name for name, _ in samples(client)} | set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    expressions = [(expression, names_in(expression)) for expression in (*alerts(), *queries())]

    assert all(names for _, names in expressions)
    assert {name for _, names in expressions for name in names} <= known
    assert names_in("sum by (route) (rate(nothing_total[5m])) > 1") == {"nothing_total"}


def test_alerts_name_labels_that_samples_have(bench: Bench, client: TestClient) -> None:
    """An outcome that no record can have would never fire."""
    bench.start("a")
    outcomes = {
        dict(labels).get("outcome") for name, labels in samples(client) if name == "turnout_route_records_total"
    }
    asked = {one for expr in alerts() for group in re.findall(r'outcome=~?"([^"]*)"', expr) for one in group.split("|")}

    assert asked
    assert asked <= outcomes


def test_task_slots(bench: Bench) -> None:
    """The number of slots, those used by open splits, and the waiting route; the route reports this itself."""
    bench.write("a", route_text("a"))
    bench.write("b", route_text("b"))
    bench.routes.scan()
    bench.runner.used = SlotUse(2, taken=("a",), waiting=("b",))
    text = bench.metrics.text().decode()

    assert "turnout_task_slots 2.0" in text
    assert "turnout_task_slots_taken 1.0" in text
    assert 'turnout_route_waits_for_task_slot{route="a"} 0.0' in text
    assert 'turnout_route_waits_for_task_slot{route="b"} 1.0' in text


def test_a_live_server_tells_just_the_metrics_of_the_reference(tmp_path: Path) -> None:
    """Over HTTP, with a store: each name is in docs/reference/metrics.md, and none of it is missing."""
    (tmp_path / "a.yaml").write_text(route_text("a"))
    config = ServerConfig.model_validate(
        {"listen": "127.0.0.1:0", "store": "memory://", "grpc": {"listen": "127.0.0.1:0"}, "interval": "20ms"}
    )
    runner = FakeRunner()
    with RouteServer(config, [tmp_path], runner_of=lambda *_: runner) as server:
        wait_for(lambda: runner.runs["a"])
        runner.runs["a"][0].deliver(3)
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
            text = response.read().decode()
    families = {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if not name.endswith("_created")}
    page = (DEPLOY.parent / "docs/reference/metrics.md").read_text(encoding="utf-8")

    # Those of an election are of a server that has a standby.
    assert families == NAMES - {"turnout_leader", "turnout_leader_term", "turnout_lease_seconds"}
    assert set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == NAMES


def test_each_metric_is_served() -> None:
    """Counts with a metric are among the measures."""
    declared = {info.metric for info in COUNTS.values() if info.metric}

    assert declared <= set(MEASURES)
