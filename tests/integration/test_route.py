"""Whole routes: a real nats-server, a real Spark, and books that have to balance on the wire."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.routes import Streams, command, turnout, wait_for, write_route

from turnout.conditions import Condition, all_of, compare, exists, kiwi, not_
from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError, RunError, StreamError
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, create_stream, stream_info
from turnout.routes import Route
from turnout.subscriptions import Matcher, Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from turnout.runtime.offsets import RunResult

ROUTE = """
name: test
source: {{format: nats, servers: "{url}", stream: {source}, maxRecordsPerTrigger: {batch}}}
value: {{format: json, schema: "n INT, city STRING, secret STRING"}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
  - {{name: rename, type: ReplaceField$Value, renames: "city:town"}}
  - {{name: mask, type: MaskField$Value, fields: secret, replacement: "*"}}
mappings:
  "in-{name}.*.*": "mapped.{{{{wildcard(2)}}}}.{{{{wildcard(1)}}}}"
subscriptions: {{store: "{store}", metadata: {{n: value.n, town: value.town}}}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
deadLetter: {{topic: "out-{name}.dead"}}
errors: {{tolerance: all}}
{more}
"""
CITIES = ("Oulu", "Helsinki", "Turku", "Tampere")


def route_text(streams: Streams, store: str, *, batch: int = 1000, more: str = "") -> str:
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    return ROUTE.format(**names, store=store, batch=batch, more=more)


def message(n: int) -> tuple[str, bytes, list[tuple[str, str]]]:
    """Message number *n*: every seventh is old, every hundredth is not JSON."""
    city = CITIES[n % len(CITIES)]
    value = {"n": n, "city": city, "secret": f"s{n}"}
    payload = json.dumps(value).encode() if n % 100 else b'{"n": '
    headers = [("Kind", "even" if n % 2 == 0 else "odd")] + ([("Old", "yes")] if n % 7 == 0 else [])
    return f"{city.lower()}.{n % 10}", payload, headers


def subscriptions(streams: Streams) -> list[Subscription]:
    conditions: dict[str, Condition] = {
        "big": compare("n", ">=", 900),
        "oulu": all_of(kiwi("town", "Oulu"), not_(kiwi("Kind", "odd"))),
        "t": kiwi("town", "T*"),
        "three": kiwi("subject", "mapped.3.*"),
        "nobody": all_of(exists("n"), kiwi("town", "Rovaniemi")),
    }
    return [
        Subscription(destinations=(streams.out(name),), condition=condition, id=name)
        for name, condition in conditions.items()
    ]


def expected(streams: Streams, count: int) -> tuple[Counter[tuple[int, str]], dict[str, int]]:
    """Return the expected deliveries and counts of *count* messages, computed without Spark."""
    matcher = Matcher(subscriptions(streams))
    deliveries: Counter[tuple[int, str]] = Counter()
    counts = Counter(read=count)
    for n in range(1, count + 1):
        rest, payload, headers = message(n)
        if not payload.endswith(b"}"):
            counts["dead_lettered"] += 1
            continue
        if ("Old", "yes") in headers:
            counts["filtered"] += 1
            continue
        first, second = rest.split(".")
        metadata = {"subject": f"mapped.{second}.{first}", "n": str(n), "town": CITIES[n % 4], **dict(headers)}
        matched = {(n, topic.partition(".")[2]) for match in matcher.match(metadata) for topic in match.destinations}
        deliveries.update(matched)
        counts["messages"] += len(matched)
        counts["delivered" if matched else "unmatched"] += 1
    return deliveries, dict(counts)


def run_route(route: Route, spark: SparkSession, folder: Path) -> RunResult:
    from turnout.spark.running.job import run

    return run(route, spark, once=True, checkpoint=folder / "checkpoint")


def run_command(path: Path, folder: Path) -> list[str]:
    """Return a command that runs the route once in a separate process, with the checkpoint of `run_route`."""
    return command(
        "run", str(path), "--once", "--json-lines", "--master", "local[2]", "--checkpoint", f"{folder}/checkpoint"
    )


def new_store(folder: Path, streams: Streams) -> str:
    url = f"sqlite:///{folder / 'subscriptions.db'}"
    store = open_store(url)
    store.create_many(subscriptions(streams))
    store.close()
    return url


def books(streams: Streams) -> Counter[tuple[int, str]]:
    """Return the delivered messages without dead letters: (number, destination) and how often."""
    return Counter((json.loads(row["value"])["n"], row["rest"]) for row in streams.delivered() if row["rest"] != "dead")


def test_every_record_ends_where_it_should(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Deliveries, dead letters and counts are those that the same rules give without Spark."""
    count = 2000
    streams.publish([message(n) for n in range(1, count + 1)])
    deliveries, counts = expected(streams, count)
    route = Route.parse(route_text(streams, new_store(tmp_path, streams)), {})

    result = run_route(route, spark, tmp_path)

    assert {name: value for name, value in result.counts.as_dict().items() if value} == counts
    assert result.counts.conserved
    assert books(streams) == deliveries
    dead, filtered = counts["dead_lettered"], counts["filtered"]
    later = count - dead - filtered
    assert list(result.counts.flow.taken.items()) == [
        ("source", count),
        ("key", count),
        ("value", count),
        ("old", count - dead),
        ("rename", later),
        ("mask", later),
        ("mapping", later),
        ("match", later),
        ("sink", counts["delivered"]),
        ("deadLetter", dead),
    ]
    assert result.counts.flow.failed == {"value": dead}
    assert result.counts.flow.delivery.count == counts["messages"] + dead
    assert result.counts.flow.delivery.seconds > 0


def test_a_delivered_message(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The value is transformed, the headers are kept, id and lineage name the record, and lineage the revision."""
    streams.publish([message(8)])
    text = route_text(streams, new_store(tmp_path, streams))
    route = Route.parse(text.replace(f"stream: {streams.sink}", f"stream: {streams.sink}, lineage: true"), {})

    run_route(route, spark, tmp_path)

    (row,) = streams.delivered()
    assert row["rest"] == "oulu"
    assert json.loads(row["value"]) == {"n": 8, "town": "Oulu", "secret": "*"}
    assert row["headers"]["Kind"] == "even"
    with Connection.open(streams.url) as connection:
        identity = StreamIdentity.of(stream_info(connection, streams.source)["created"])
    label = identity.label(streams.source)
    assert row["key"].startswith(f"{label}:1:".encode())
    assert row["headers"]["Turnout-Route"] == f"test@{route.digest}"
    assert (row["headers"]["Turnout-Source"], row["headers"]["Turnout-Revision"]) == (f"{label}:1", "1")


def test_a_poisoned_value(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """A value that is no JSON arrives at the dead letter topic as it came, with Connect's headers."""
    streams.publish([message(4), ("oulu.1", b'{"n": 1', [("Kind", "odd")]), message(8)])
    route = Route.parse(route_text(streams, new_store(tmp_path, streams)), {})

    result = run_route(route, spark, tmp_path)

    dead = [row for row in streams.delivered() if row["rest"] == "dead"]
    assert [row["value"] for row in dead] == [b'{"n": 1']
    assert dead[0]["headers"]["Kind"] == "odd"
    assert dead[0]["headers"]["__connect.errors.topic"] == streams.subject("oulu.1")
    assert dead[0]["headers"]["__connect.errors.offset"] == "2"
    assert dead[0]["headers"]["__connect.errors.stage"] == "VALUE_CONVERTER"
    assert dead[0]["headers"]["__connect.errors.exception.message"]
    assert result.counts.dead_lettered == 1
    assert result.counts.delivered == 2


def test_tolerance_none_stops_at_the_first_failure(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The run stops with the record's place and the reason."""
    streams.publish([message(4), ("oulu.1", b"not json", [])])
    text = route_text(streams, new_store(tmp_path, streams)).replace("tolerance: all", "tolerance: none")

    with pytest.raises(RunError, match=r"VALUE_CONVERTER|JSON"):
        run_route(Route.parse(text, {}), spark, tmp_path)

    assert [row for row in streams.delivered() if row["rest"] == "dead"] == []


@pytest.mark.parametrize("policy", ["pass", "deadLetter"])
def test_what_nobody_wants(spark: SparkSession, streams: Streams, tmp_path: Path, policy: str) -> None:
    """``unmatched`` sends records on under their own topic, or to the dead letters."""
    streams.publish([("a.5", json.dumps({"n": 5, "city": "Rauma"}).encode(), []), message(8)])
    text = route_text(streams, new_store(tmp_path, streams), more=f"unmatched: {policy}")
    text = text.replace('"mapped.', f'"out-{streams.name}.')

    result = run_route(Route.parse(text, {}), spark, tmp_path)

    rests = sorted(row["rest"] for row in streams.delivered())
    assert rests == sorted(["oulu", "5.a" if policy == "pass" else "dead"])
    assert result.counts.unmatched == 0
    assert result.counts.delivered == (2 if policy == "pass" else 1)
    assert result.counts.dead_lettered == (0 if policy == "pass" else 1)
    assert result.counts.conserved


def test_several_sinks(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """A destination ``name:topic`` goes to that sink, others to the first."""
    streams.publish([message(8)])
    store = open_store(f"sqlite:///{tmp_path / 'subscriptions.db'}")
    everything = exists("subject")
    destinations = (streams.out("a"), "files:b", "nats:" + streams.out("c"))
    store.create(Subscription(destinations=destinations, condition=everything))
    store.close()
    text = route_text(streams, f"sqlite:///{tmp_path / 'subscriptions.db'}")
    head, _, tail = text.partition("sink: ")
    sink, _, rest = tail.partition("\n")
    text = f"{head}sinks: {{nats: {sink}, files: {{format: json, path: '{tmp_path / 'out'}'}}}}\n{rest}"

    result = run_route(Route.parse(text, {}), spark, tmp_path)

    assert sorted(row["rest"] for row in streams.delivered()) == ["a", "c"]
    files = [json.loads(line) for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()]
    assert [row["topic"] for row in files] == ["b"]
    assert result.counts.messages == 3
    assert result.counts.delivered == 1
    assert result.counts.flow.taken["sink"] == 1


@pytest.mark.heavy
def test_routes_from_one_stream_into_one_stream(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Message ids tell routes and destinations apart: each arrives once for each, however often it runs."""
    streams.publish([message(n) for n in range(1, 21)])
    text = """
name: {name}
source: {{format: nats, servers: "{url}", stream: {source}}}
mappings: {{"in-{id}.>": "out-{id}.{to}"}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
"""
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "id": streams.name}
    for run, (name, to) in enumerate((("a", "same.>"), ("b", "same.>"), ("b", "same.>"), ("b", "other.>"))):
        run_route(Route.parse(text.format(name=name, to=to, **names), {}), spark, tmp_path / str(run))

    assert Counter(row["rest"].partition(".")[0] for row in streams.delivered()) == {"same": 40, "other": 20}


def test_a_new_subscription_takes_effect_without_a_restart(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """A subscription created while the route runs is matched from the next micro-batch on."""
    from turnout.spark.running.job import run

    url = new_store(tmp_path, streams)
    route = Route.parse(route_text(streams, url), {})
    stop = threading.Event()
    results: list[RunResult] = []
    worker = threading.Thread(
        target=lambda: results.append(run(route, spark, checkpoint=tmp_path / "checkpoint", stop=stop))
    )
    worker.start()
    try:
        streams.publish([message(8)])
        wait_for(lambda: streams.stored(streams.sink) == 1)
        store = open_store(url)
        store.create(Subscription(destinations=(streams.out("new"),), condition=kiwi("town", "Oulu")))
        store.delete("oulu")
        store.close()
        streams.publish([message(16)])
        wait_for(lambda: streams.stored(streams.sink) == 2)
    finally:
        stop.set()
        worker.join(60)

    assert books(streams) == Counter({(8, "oulu"): 1, (16, "new"): 1})
    assert results[0].stopped
    assert results[0].counts.conserved


@pytest.mark.heavy
def test_killed_in_the_middle(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """After kill -9 of the run and its JVM, a second run goes on: nothing is lost, nothing occurs twice."""
    count = 6000
    streams.publish([message(n) for n in range(1, count + 1)])
    deliveries, _ = expected(streams, count)
    path = write_route(tmp_path, route_text(streams, new_store(tmp_path, streams), batch=500))
    with subprocess.Popen(run_command(path, tmp_path), start_new_session=True, stdout=subprocess.DEVNULL) as first:
        wait_for(lambda: streams.stored(streams.sink) > 500)
        os.killpg(first.pid, signal.SIGKILL)
    at_the_kill = streams.stored(streams.sink)

    second = run_route(Route.load(path), spark, tmp_path)

    assert at_the_kill < sum(deliveries.values()), "the run was over before it was killed"
    assert books(streams) == deliveries
    assert second.counts.conserved


def test_stopped_by_sigterm(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """SIGTERM ends ``run --once`` after a micro-batch, with its counts and 130; the next run takes the rest."""
    count = 6000
    streams.publish([message(n) for n in range(1, count + 1)])
    deliveries, counts = expected(streams, count)
    path = write_route(tmp_path, route_text(streams, new_store(tmp_path, streams), batch=500))
    with subprocess.Popen(
        run_command(path, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as first:
        wait_for(lambda: streams.stored(streams.sink) > 500)
        first.send_signal(signal.SIGTERM)
        output, errors = first.communicate(timeout=240)

    assert first.returncode == 130, errors
    *lines, report = (json.loads(line) for line in output.splitlines())
    assert report["stopped"]
    assert report["conserved"]
    # A line for each micro-batch, but perhaps for one that Spark did not come to report.
    assert [line["batch"] for line in lines] == list(range(len(lines)))
    assert len(lines) in (report["batches"] - 1, report["batches"])
    for line in (*lines, report):
        numbers = line["counts"]
        assert line["stages"]["source"] == numbers["read"]
        assert line["stages"]["match"] == numbers["delivered"] + numbers["unmatched"]
        assert line["failed"] == {"value": numbers["dead_lettered"]}
        assert line["delivery"]["count"] == numbers["messages"] + numbers["dead_lettered"]
    assert 0 < report["counts"]["read"] < count
    assert "\x1b" not in errors

    rest = run_route(Route.load(path), spark, tmp_path).counts

    assert report["counts"]["read"] + rest.read == count
    assert report["counts"]["messages"] + rest.messages == counts["messages"]
    assert books(streams) == deliveries


def test_a_stream_that_does_not_exist(streams: Streams, tmp_path: Path) -> None:
    """The command says so in a line, without waiting for Spark, and exits with 1."""
    text = route_text(streams, "memory://none").replace(streams.source, "NOWHERE")

    result = turnout("run", str(write_route(tmp_path, text)))

    assert result.returncode == 1
    assert "stream not found" in result.stderr
    assert "NOWHERE" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_server_that_is_down(tmp_path: Path) -> None:
    """The command names the address, and exits with 1."""
    with NatsServer() as server:
        url = server.url
    streams = Streams(url)

    result = turnout("run", str(write_route(tmp_path, route_text(streams, "memory://none"))))

    assert result.returncode == 1
    assert url.removeprefix("nats://") in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_file_never_reaches_spark(tmp_path: Path) -> None:
    """``check`` and ``run`` name every mistake and exit with 2."""
    path = write_route(tmp_path, "name: x\nsource: {format: natz}\nsnik: {}\n")

    for name in ("check", "run"):
        result = turnout(name, str(path), env={"JAVA_HOME": "/nowhere", "PATH": "/nowhere"})

        assert result.returncode == 2
        assert 'did you mean "nats"?' in result.stderr
        assert 'did you mean "sink"?' in result.stderr
        assert "Traceback" not in result.stderr


def test_check_as_json(tmp_path: Path) -> None:
    """``check --json`` gives the mistakes to a program."""
    result = turnout("check", str(write_route(tmp_path, "name: x\nsource: {format: natz}\n")), "--json")

    report = json.loads(result.stdout)
    assert result.returncode == 2
    assert report["valid"] is False
    assert {"path", "problem", "line"} <= report["mistakes"][0].keys()


def test_the_library_says_the_same(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """`turnout.spark.run` raises what the command prints."""
    missing = route_text(streams, "memory://none").replace(streams.source, "NOWHERE")

    with pytest.raises(StreamError, match="stream not found"):
        run_route(Route.parse(missing, {}), spark, tmp_path)
    with pytest.raises(ConnectionLostError):
        run_route(Route.parse(missing.replace(streams.url, "nats://127.0.0.1:1"), {}), spark, tmp_path)


def test_a_micro_batch_done_again_has_the_subscriptions_that_it_had(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """The revision belongs to the micro-batch: what was begun before a failure is matched the same after it."""
    from turnout.spark.running.job import run

    late = f"late-{streams.name}"
    url = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    with contextlib.closing(open_store(url)) as store:
        store.create(Subscription(destinations=(f"{late}.early",), condition=kiwi("town", "Oulu"), id="early"))
    text = route_text(streams, url).replace(f"stream: {streams.sink}}}", "stream: null}")
    route = Route.parse(text.replace("tolerance: all", "tolerance: none"), {})
    streams.publish([message(8)])
    with pytest.raises(RunError, match="no stream listens"):
        # No stream takes the message yet.
        run(route, spark, once=True, checkpoint=tmp_path / "checkpoint")
    with contextlib.closing(open_store(url)) as store:
        store.delete("early")
        store.create(Subscription(destinations=(streams.out("new"),), condition=kiwi("town", "Oulu"), id="new"))
    with Connection.open(streams.url) as connection:
        create_stream(connection, {"name": late, "subjects": [f"{late}.>"], "storage": "memory"})
    streams.publish([message(16)])

    run_route(route, spark, tmp_path)

    with Connection.open(streams.url) as connection:
        again = stream_info(connection, late)["state"]["messages"]
    assert again == 1
    assert books(streams) == Counter({(16, "new"): 1})
