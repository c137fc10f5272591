"""History of a route from Kafka, on a real broker: the same commands as for NATS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import turnout  # noqa: F401 - a fixture
from tests.integration.kafka_broker import KafkaBroker

from turnout.conditions import parse
from turnout.errors import StreamError, TurnoutError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.subscriptions import Subscription, open_store

pytestmark = pytest.mark.kafka

ROUTE = """
name: {name}
source: {{format: kafka, servers: "{servers}", topics: {name}, start: earliest}}
value: {{format: json}}
transforms:
  - {{name: number, type: Cast$Value, spec: "n:int32"}}
  - {{name: via, type: InsertField$Value, "static.field": via, "static.value": turnout}}
subscriptions: {{store: "sqlite:///{work}/{name}.db", metadata: {{city: value.city}}}}
sink: {{format: kafka, servers: "{servers}"}}
deadLetter: {{topic: {name}.dead}}
errors: {{tolerance: all}}
trigger: {{availableNow: true}}
checkpoint: "{work}/{name}.checkpoint"
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker; the tests are skipped where Maven, or what it should fetch, is not there."""
    try:
        broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    except TurnoutError as missing:
        pytest.skip(f"no Kafka broker: {missing}")
    with broker as started:
        yield started


class Scene:
    """A route with topics of its own, and records in them."""

    def __init__(self, broker: KafkaBroker, work: Path, name: str) -> None:
        self.options = KafkaOptions.of(broker.servers)
        self.name = name
        self.file = work / f"{name}.yaml"
        self.text = ROUTE.format(name=name, servers=broker.servers, work=work)
        self.write(self.text)
        with KafkaAdmin(self.options) as admin:
            admin.create_topic(name, 2, {})
            for topic in (f"{name}.oulu", f"{name}.dead"):
                admin.create_topic(topic, 1, {})
        store = open_store(f"sqlite:///{work}/{name}.db")
        store.create(Subscription([f"{name}.oulu"], parse("city:Oulu"), id="oulu"))
        store.close()

    def write(self, text: str) -> str:
        self.file.write_text(text, encoding="utf-8")
        return str(self.file)

    def publish(self, *values: bytes | dict[str, object], topic: str | None = None, partition: int = 0) -> None:
        texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        count = len(texts)
        times = [1_700_000_000_000 + 1000 * number for number in range(count)]
        keys: Sequence[bytes | None] = [f"k{number}".encode() for number in range(count)]
        batch = KafkaMessages([topic or self.name] * count, texts, list(keys), None, times, [partition] * count)
        with KafkaProducer(self.options) as producer:
            producer.publish(batch, _refusing)
            producer.flush()


def _refusing(index: int, reason: StreamError) -> None:
    raise AssertionError(f"{index}: {reason}")


def test_explain(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """A record is read by topic, partition and offset; one that is not there is told from one of no topic of these."""
    scene = Scene(broker, tmp_path, "explained")
    scene.publish({"n": 1, "city": "Espoo"}, {"n": 2, "city": "Oulu"}, partition=1)

    code, out, err = turnout("explain", str(scene.file), "--record", "explained:1:1", "--json")

    assert (code, err) == (0, "")
    explained = json.loads(out)
    assert (explained["record"]["key"], explained["record"]["offset"], explained["outcome"]) == ("k1", 1, "delivered")
    assert [message["topic"] for message in explained["messages"]] == ["explained.oulu"]
    for record, expected, problem in (
        ("explained:1:2", 1, "no record explained:1:2: the partition has 0 to 1"),
        ("explained:0:0", 1, "no record explained:0:0: the partition is empty"),
        ("explained:7:0", 1, "there is no partition explained:7: there are explained:0, explained:1"),
        ("other:0:0", 2, "expected TOPIC:PARTITION:OFFSET with a topic of explained; found 'other:0:0'"),
        ("17", 2, "expected TOPIC:PARTITION:OFFSET with a topic of explained; found '17'"),
    ):
        code, _, err = turnout("explain", str(scene.file), "--record", record)
        assert (code, problem in err) == (expected, True), err


def test_offset_without_a_record(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """The mark of a transaction has an offset and is no record; the error says so."""
    scene = Scene(broker, tmp_path, "marked")
    with KafkaProducer(scene.options, "turnout.test.marked") as producer:
        producer.begin()
        producer.publish(KafkaMessages(["marked"], [b"{}"], [None], None, [0], [0]), _refusing)
        producer.flush()
        producer.commit()
    scene.publish({"n": 1})

    code, _, err = turnout("explain", str(scene.file), "--record", "marked:0:1")

    assert (code, "it was compacted away, or is a mark of a transaction" in err) == (1, True), err


def test_check(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """The latest records go through the route, and the topics of their messages are looked for."""
    scene = Scene(broker, tmp_path, "checked")
    scene.publish({"n": 1, "city": "Oulu"}, {"n": 2, "city": "Espoo"})
    scene.publish({"n": "x"}, partition=1)

    code, out, _ = turnout("check", str(scene.file), "--connect", "--json")

    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert (code, [name for name, check in checks.items() if not check["ok"]]) == (0, [])
    detail = "3 offsets in 2 partitions, may be read; 3 of the latest records were"
    assert checks["topic checked"]["detail"] == detail
    assert checks["sample"]["detail"].startswith("3 read, 1 unmatched, 1 delivered, 1 dead lettered")
    assert checks["sink, topics"]["detail"] == "all 2 topics of the sample and the dead letters exist"
    assert checks["sink, permissions"]["detail"] == "2 topics may be written to"


def test_new(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """The latest records of a topic say what values are."""
    scene = Scene(broker, tmp_path, "sampled")
    scene.publish({"n": 1, "city": "Oulu"}, {"n": 2, "city": "Espoo"})

    address = f"kafka://{broker.servers}/sampled"
    code, _, err = turnout("new", "begun", "--from", address, "--to", f"kafka://{broker.servers}", "--yes")

    assert (code, err) == (0, "")
    assert "n BIGINT, city STRING" in (tmp_path / "begun.yaml").read_text(encoding="utf-8")


def test_tap(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """Records are shown with their partitions and offsets: from a time, from offsets, and not from a bare number."""
    scene = Scene(broker, tmp_path, "tapped")
    scene.publish({"n": 1, "city": "Oulu"}, {"n": 2, "city": "Espoo"}, {"n": 3, "city": "Oulu"}, partition=1)

    def tapped(*arguments: str) -> list[tuple[str, int, str]]:
        code, out, err = turnout("tap", str(scene.file), "--to", "latest", "--json", *arguments)
        assert (code, err) == (0, "")
        shown = [json.loads(line) for line in out.splitlines()]
        return [(one["stream"], one["sequence"], one["outcome"]) for one in shown]

    everything = [("tapped:1", 0, "delivered"), ("tapped:1", 1, "unmatched"), ("tapped:1", 2, "delivered")]
    assert tapped("--from", "earliest") == everything
    assert tapped("--from", "2023-11-14T22:13:21Z") == everything[1:]
    assert tapped("--from", '{"tapped:0": 0, "tapped:1": 2}') == everything[2:]
    assert tapped("--from", "earliest", "--stage", "via", "--where", "city:Espoo") == [("tapped:1", 1, "changed")]
    code, _, err = turnout("tap", str(scene.file), "--from", "2")
    assert (code, "2 is no place in Kafka, where each partition has offsets of its own" in err) == (2, True)
