"""How long a message takes from publish to delivered, from and into Kafka, beside programs that do the same there.

Publisher and listener are processes of their own: ``python -m benchmarks._kafka_latency send kafka|nats URL PLACE RATE
COUNT`` and ``… listen kafka|nats URL PLACE COUNT``; ``… copy URL FROM TO`` is a bare loop of consumer and producer, the
least that a program in Python takes. Values are the times at which messages were sent. Each program copies some seconds
of messages before, also at the highest rate, so that compilers of the broker and of the programs have done most of
their work; and a fifth of the measured messages, the first, is left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import CannotRunError, Case, Result, Setup
from benchmarks.peers.programs import bento, java_program
from turnout.embedded import NatsServer
from turnout.errors import RunError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.clients import ErrorWatch, consumer_of, polled, producer_of
from turnout.kafka.options import KafkaOptions
from turnout.nats.wire import Connection, Publisher, create_stream

RATES = (1_000, 10_000)
STREAMS = ("org.apache.kafka:kafka-streams:3.9.1",)
_TICK_SECONDS = 0.002
_QUIET_SECONDS = 10.0
_PATIENCE_SECONDS = 90.0
_WARM_UP_SECONDS = 5
_PARTITIONS = 4
_ROUTE = """
name: {name}
source: {{{source}, start: latest}}
mappings: {{"{source_topic}": "{topic}"}}
sink: {{{sink}}}
trigger: {{latency: low}}
checkpoint: "{checkpoint}"
"""


def latencies(started: Callable[[], tuple[Any, Any]], *, seconds: int) -> Iterator[Case]:
    """Routes from and into Kafka, and other programs that copy a topic, each with its own topics.

    Args:
        started: returns a session with Spark's connector, and a broker.
        seconds: of each rate.
    """
    numbers = count()

    def case(name: str, source: str, sink: str, run: Callable[..., Any], **more: Any) -> Case:
        return Case(name, lambda: _measured(name, started, seconds, next(numbers), source, sink, run, **more))

    yield case("latency Kafka to Kafka, a bare loop", "kafka", "kafka", _copying)
    yield case("latency Kafka to Kafka, at least once", "kafka", "kafka", _route)
    yield case("latency Kafka to Kafka, Kafka Streams, at least once", "kafka", "kafka", _streams)
    yield case("latency Kafka to Kafka, Bento", "kafka", "kafka", _bento)
    yield case("latency Kafka to Kafka, Spark's real-time mode", "kafka", "kafka", _real_time)
    yield case("latency Kafka to Kafka, exactly once", "kafka", "kafka", _route, more=", exactlyOnce: true")
    yield case(
        "latency Kafka to Kafka, exactly once, each batch",
        "kafka",
        "kafka",
        _route,
        more=", exactlyOnce: true, transactionEvery: 0",
    )
    yield case(
        "latency Kafka to Kafka, Kafka Streams, exactly once", "kafka", "kafka", _streams, guarantee="exactly_once_v2"
    )
    yield case("latency Kafka to NATS", "kafka", "nats", _route)
    yield case("latency NATS to Kafka", "nats", "kafka", _route)


def _measured(
    name: str,
    started: Callable[[], tuple[Any, Any]],
    seconds: int,
    number: int,
    source: str,
    sink: str,
    run: Callable[..., Any],
    **more: Any,
) -> Iterator[Result]:
    spark, broker = started()
    places = f"in{number}", f"out{number}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nats = stack.enter_context(NatsServer(folder / "nats")) if "nats" in (source, sink) else None
        urls = {"kafka": broker.servers, "nats": "" if nats is None else nats.url}
        for kind, place in ((source, places[0]), (sink, places[1])):
            _create(kind, urls[kind], place)
        ends = tuple((kind, urls[kind], place) for kind, place in ((source, places[0]), (sink, places[1])))
        stack.enter_context(run(spark, ends, folder, **more))
        for rate in RATES:
            _traffic(ends, rate, _WARM_UP_SECONDS * rate)
        for rate in RATES:
            ages = _traffic(ends, rate, rate * seconds)
            delivered = ages.pop("count")
            setup = Setup("new", None, 2)
            extra = {**ages, "published_per_second": rate, "missing": rate * seconds - int(delivered)}
            yield Result(f"{name}, {rate:,} messages/s", rate * seconds, (delivered / seconds,), setup, extra=extra)


def _create(kind: str, url: str, place: str) -> None:
    if kind == "kafka":
        with KafkaAdmin(KafkaOptions.of(url)) as admin:
            admin.create_topic(place, _PARTITIONS, {})
    else:
        with Connection.open(url) as connection:
            create_stream(connection, {"name": place, "subjects": [f"{place}.>"], "storage": "file"})


@contextmanager
def _route(spark: Any, ends: Any, folder: Path, *, more: str = "") -> Iterator[None]:
    """Run a route of turnout."""
    from turnout import Route
    from turnout.spark.running.job import run

    (source, source_url, from_), (sink, sink_url, to) = ends
    own = {"kafka": f"topics: {from_}", "nats": f"stream: {from_}"}
    text = _ROUTE.format(
        name=to,
        source=f'format: {source}, servers: "{source_url}", {own[source]}',
        source_topic=from_ if source == "kafka" else f"{from_}.*",
        topic=to if sink == "kafka" else f"{to}.x",
        sink=f'format: {sink}, servers: "{sink_url}"{more}',
        checkpoint=folder / "checkpoint",
    )
    stop, ready = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        try:
            run(Route.parse(text, {}), spark, stop=stop, on_ready=ready.set)
        except Exception as failure:  # noqa: BLE001 - is raised below, or beside what follows from it
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        if not ready.wait(_PATIENCE_SECONDS):
            raise RunError("the route is not ready")  # noqa: TRY301 - the reason is added below
        yield
    except RunError as failure:
        raise RunError(f"{failure}: {failures}") from failure
    finally:
        stop.set()
        thread.join(60)


@contextmanager
def _copying(_spark: Any, ends: Any, _folder: Path) -> Iterator[None]:
    """Run a loop of the client's calls."""
    (_, servers, source), (_, _, sink) = ends
    process = _program("copy", servers, source, sink)
    try:
        yield
    finally:
        _end(process)


@contextmanager
def _real_time(spark: Any, ends: Any, folder: Path) -> Iterator[None]:
    """Run a query in Spark's real-time mode."""
    (_, servers, source), (_, _, sink) = ends
    options = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("kafka").options(**options, subscribe=source, startingOffsets="earliest").load()
    query = (
        rows.select("key", "value")
        .writeStream.format("kafka")
        .options(**options, topic=sink, checkpointLocation=str(folder / "query"))
        .outputMode("update")
        .trigger(realTime="5 minutes")
    )
    try:
        running = query.start()
    except Exception as failure:
        raise CannotRunError(f"Spark's real-time mode does not run here: {failure}"[:300]) from failure
    try:
        yield
    except RunError as failure:
        if running.exception() is None:
            raise
        raise CannotRunError(f"Spark's real-time mode does not run here: {running.exception()}"[:300]) from failure
    finally:
        running.stop()


@contextmanager
def _bento(_spark: Any, ends: Any, folder: Path) -> Iterator[None]:
    """Run Bento, which acknowledges what it reads when that is written."""
    (_, servers, source), (_, _, sink) = ends
    brokers = {"seed_brokers": [servers]}
    config = {
        "http": {"enabled": False},
        "logger": {"level": "WARN"},
        "input": {"kafka_franz": {**brokers, "topics": [source], "consumer_group": source, "start_from_oldest": True}},
        "output": {
            "kafka_franz": {**brokers, "topic": sink, "key": '${! metadata("kafka_key") }', "max_in_flight": 1024}
        },
    }
    (folder / "bento.yaml").write_text(json.dumps(config))
    with (folder / "bento.log").open("w") as log:
        process = subprocess.Popen([bento(), "-c", folder / "bento.yaml"], stdout=log, stderr=log)
    try:
        yield
    except RunError as failure:
        raise RunError(f"Bento: {(folder / 'bento.log').read_text()[-500:]}") from failure
    finally:
        _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


@contextmanager
def _streams(_spark: Any, ends: Any, folder: Path, *, guarantee: str = "at_least_once") -> Iterator[None]:
    """Run Kafka Streams, which Java compiles from the source beside the other peers."""
    (_, servers, source), (_, _, sink) = ends
    command = java_program("streams/Latency.java", STREAMS, "-Xmx256m")
    arguments = [servers, source, sink, guarantee, str(folder / "state")]
    pipe = subprocess.PIPE
    with (folder / "streams.log").open("w") as log:
        process = subprocess.Popen([*command, *arguments], stdin=pipe, stdout=pipe, stderr=log, text=True)
    try:
        assert process.stdout is not None
        if not any(line.strip() == "RUNNING" for line in iter(process.stdout.readline, "")):
            raise RunError(f"Kafka Streams ended: {(folder / 'streams.log').read_text()[-500:]}")
        yield
    finally:
        _end(process)


def _traffic(ends: Any, rate: int, messages: int) -> dict[str, float]:
    """Publish at a rate, and return the number and the ages of the messages that were delivered."""
    programs = []
    try:
        for work, end, more in (("listen", ends[1], [str(messages)]), ("send", ends[0], [str(rate), str(messages)])):
            programs.append(_program(work, *end, *more))
        listener, publisher = programs
        publisher.communicate("go\n", timeout=messages / rate + _PATIENCE_SECONDS)
        found, _ = listener.communicate(timeout=2 * _PATIENCE_SECONDS)
    finally:
        for process in programs:
            process.kill()
            process.wait()
    ages: dict[str, float] = json.loads(found)
    if not ages["count"]:
        raise RunError("no message was delivered")
    return ages


def _program(*arguments: str) -> subprocess.Popen[str]:
    """Start a program of this module, and wait until it is ready."""
    command = [sys.executable, "-m", "benchmarks._kafka_latency", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        _end(process)
        raise RunError(f"{arguments[0]} does not start")
    return process


def _copy(url: str, source: str, sink: str) -> None:
    options = KafkaOptions.of(url)
    quick = replace(options, properties={"linger.ms": "0", "socket.nagle.disable": "true"})
    producer = producer_of(quick, ErrorWatch())
    for messages in _kafka_messages(options, source):
        for message in messages:
            producer.produce(sink, value=message.value(), key=message.key())
        producer.poll(0)


def _send(kind: str, url: str, place: str, rate: int, messages: int) -> None:
    with ExitStack() as stack:
        if kind == "kafka":
            from confluent_kafka import Producer

            # As Java's clients, which have no delay of TCP's. An idempotent client has five requests under way at most:
            # at 10,000 messages a second the others would wait for longer than all that is measured.
            properties = {"linger.ms": 0, "socket.nagle.disable": True, "partitioner": "murmur2_random"}
            producer = Producer({"bootstrap.servers": url, "delivery.report.only.error": True, **properties})
            producer.list_topics(place)

            def send(values: list[bytes]) -> None:
                for value in values:
                    producer.produce(place, value, value, on_delivery=_refuse)
                producer.poll(0)

            stack.callback(producer.flush)
        else:
            connection = stack.enter_context(Connection.open(url))
            publisher = stack.enter_context(Publisher(connection))

            def send(values: list[bytes]) -> None:
                # At once: single messages wait for others.
                publisher.publish_lists([f"{place}.x"] * len(values), values)

            stack.callback(publisher.flush)
        print("ready", flush=True)
        sys.stdin.readline()
        begun, step = time.monotonic(), max(1, round(rate * _TICK_SECONDS))
        for first in range(0, messages, step):
            time.sleep(max(0.0, begun + first / rate - time.monotonic()))
            send([b"%.6f %d" % (time.time(), number) for number in range(first, min(messages, first + step))])


def _refuse(reason: Any, _message: object) -> None:
    raise RunError(f"a message is not stored: {reason}")


def _listen(kind: str, url: str, place: str, messages: int) -> None:
    ages: list[float] = []
    last = time.monotonic() + _PATIENCE_SECONDS
    for values in (_kafka_values if kind == "kafka" else _nats_values)(url, place):
        now = time.time()
        ages += [now - float(value.split()[0]) for value in values]
        if values:
            last = time.monotonic() + _QUIET_SECONDS
        if len(ages) >= messages or time.monotonic() > last:
            break
    found = np.array(ages[len(ages) // 5 :]) * 1000
    figures = {f"p{rank}_ms": round(float(np.percentile(found, rank)), 2) for rank in (50, 99)} if len(found) else {}
    print(json.dumps({"count": len(ages), **figures, **({"max_ms": round(float(found.max()), 1)} if figures else {})}))


def _kafka_values(url: str, place: str) -> Iterator[list[bytes]]:
    for messages in _kafka_messages(KafkaOptions.of(url), place):
        yield [message.value() or b"" for message in messages]


def _kafka_messages(options: KafkaOptions, topic: str) -> Iterator[list[Any]]:
    """Yield the records of a topic from now on, and an empty list when none comes for a while."""
    from confluent_kafka import TopicPartition

    with KafkaAdmin(options) as admin, closing(consumer_of(options, ErrorWatch())) as consumer:
        ends = admin.ends([(topic, number) for number in range(_PARTITIONS)])
        consumer.assign([TopicPartition(*name, end.next) for name, end in ends.items()])
        print("ready", flush=True)
        while True:
            yield [message for message in polled(consumer, 0.05, 1000) if message.error() is None]


def _nats_values(url: str, place: str) -> Iterator[list[bytes]]:
    with Connection.open(url) as connection:
        number = connection.subscribe(f"{place}.>")
        connection.ping()
        print("ready", flush=True)
        del number
        for message in connection.messages(time.monotonic() + 3600):
            yield [bytes(message.payload)]


if __name__ == "__main__":
    work, first, second, third, *numbers = sys.argv[1:]
    if work == "copy":
        _copy(first, second, third)
    else:
        (_send if work == "send" else _listen)(first, second, third, *map(int, numbers))
