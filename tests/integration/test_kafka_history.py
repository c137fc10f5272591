"""History of a route from Kafka, on a real broker: the same commands as for NATS."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi.testclient import TestClient
from tests.cli.conftest import turnout  # noqa: F401 - a fixture
from tests.console.conftest import console_of
from tests.integration.kafka_broker import KafkaBroker
from tests.server.conftest import Bench, client_of

from turnout.conditions import parse
from turnout.errors import StreamError
from turnout.history import dead_letters
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.model import Start

pytestmark = pytest.mark.kafka

_LETTER_LINK = r'<a href="/dead-letters/rested/(\d+)\?stream=([^"]+)">'

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


class Scene:
    """A route with topics of its own, and records in them."""

    def __init__(self, broker: KafkaBroker, work: Path, name: str) -> None:
        self.options = KafkaOptions.of(broker.servers)
        self.name = name
        self.file = work / f"{name}.yaml"
        self.text = ROUTE.format(name=name, servers=broker.servers, work=work)
        self.write(self.text)
        with KafkaAdmin(self.options) as admin:
            # Their records are from 2023.
            kept = {"retention.ms": "-1"}
            admin.create_topic(name, 2, kept)
            for topic in (f"{name}.oulu", f"{name}.dead"):
                admin.create_topic(topic, 1, kept)
        store = open_store(f"sqlite:///{work}/{name}.db")
        store.create(Subscription([f"{name}.oulu"], parse("city:Oulu"), id="oulu"))
        store.close()

    def write(self, text: str) -> str:
        self.file.write_text(text, encoding="utf-8")
        return str(self.file)

    def run(self, turnout: Any) -> dict[str, int]:  # noqa: F811
        """Run the route until its topics are read; the counts."""
        code, out, err = turnout("run", str(self.file), "--json", "--master", "local[2]")
        assert code == 0, err[-3000:]
        counts: dict[str, int] = json.loads(out)["counts"]
        return counts

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """The records of a topic with one partition."""
        with KafkaAdmin(self.options) as admin:
            ends = admin.ends([(topic, 0)])[topic, 0]
        reader = RangeReader(self.options, PartitionRange(topic, 0, ends.first, ends.next))
        return [row for batch in reader.batches() for row in batch.to_pylist()]

    def publish(self, *values: bytes | Mapping[str, object], topic: str | None = None, partition: int = 0) -> None:
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


@pytest.mark.heavy
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


def test_redrive(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """A dead letter has its origin and key; redriven, it is delivered once, and a note among the letters says so."""
    scene = Scene(broker, tmp_path, "redriven")
    scene.publish({"n": 1, "city": "Oulu"}, {"n": "x", "city": "Oulu"}, b"{", partition=1)
    counts = scene.run(turnout)
    assert (counts["delivered"], counts["dead_lettered"]) == (1, 2)

    route = Route.load(scene.file)
    letters = dead_letters.read(route)
    origins = {(one.record.topic, one.record.partition, one.record.offset, one.record.key) for one in letters}
    assert origins == {("redriven", 1, 1, b"k1"), ("redriven", 1, 2, b"k2")}
    code, _, err = turnout("redrive", str(scene.file), "--delete")
    assert (code, "Kafka deletes no single records" in err) == (2, True), err

    scene.write(scene.text.replace("n:int32", "n:string"))
    code, out, err = turnout("redrive", str(scene.file), "--json")

    report = json.loads(out)
    assert (code, report["outcomes"], report["stored"]) == (1, {"delivered": 1, "failed": 1}, 1), err
    assert [(row["key"], row["offset"]) for row in scene.rows("redriven.oulu")] == [(b"k0", 0), (b"k1", 1)]
    (left,) = dead_letters.read(Route.load(scene.file))
    assert (left.record.offset, left.tries) == (2, 1)
    report = json.loads(turnout("redrive", str(scene.file), "--json")[1])
    assert (report["letters"], report["outcomes"]) == (1, {"failed": 1})


@pytest.mark.heavy
def test_replay_diff_and_analyze(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """History goes through the present route: delivered anew, compared with another version, and counted."""
    scene = Scene(broker, tmp_path, "again")
    scene.publish(*[{"n": number, "city": "Oulu" if number % 2 else "Espoo"} for number in range(10)])
    scene.publish(*[{"n": number, "city": "Oulu"} for number in range(5)], partition=1)
    start = '{"again:0": 4, "again:1": 0}'

    code, out, err = turnout("replay", str(scene.file), "--from", start, "--json", "--master", "local[2]")
    assert code == 0, err
    replayed = json.loads(out)
    assert [(one["stream"], one["start"], one["end"]) for one in replayed["replay"]["ranges"]] == [
        ("again:0", 4, 10),
        ("again:1", 0, 5),
    ]
    assert (replayed["counts"]["read"], replayed["counts"]["delivered"], replayed["conserved"]) == (11, 8, True)
    rows = scene.rows("again.oulu")
    assert len(rows) == 8
    assert all(any(header["key"] == "Turnout-Replay" for header in row["headers"]) for row in rows)

    other = tmp_path / "other.yaml"
    other.write_text(scene.text.replace('"static.value": turnout', '"static.value": other'), encoding="utf-8")
    code, out, err = turnout("diff", str(scene.file), str(other), "--from", start, "--json", "--master", "local[2]")
    assert code == 0, err
    assert json.loads(out)["totals"]["records"] == 11

    arguments = ("subscriptions", "analyze", "--against", str(scene.file), "--from", start, "--json")
    here, tasks = (json.loads(turnout(*arguments, *more)[1]) for more in ((), ("--spark", "--master", "local[2]")))
    assert here["traffic"] == tasks["traffic"]
    assert (here["traffic"]["records"], here["traffic"]["matches"]) == (11, 8)


@pytest.mark.heavy
def test_lineage(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """A delivered record leads back to its record and its subscription."""
    scene = Scene(broker, tmp_path, "traced")
    scene.write(scene.text.replace(f'servers: "{broker.servers}"}}', f'servers: "{broker.servers}", lineage: true}}'))
    scene.publish({"n": 1, "city": "Espoo"}, {"n": 2, "city": "Oulu"}, partition=1)
    scene.run(turnout)

    code, out, err = turnout("lineage", "traced.oulu:0:0", "--route", str(scene.file), "--json")

    assert code == 0, err
    found = json.loads(out)
    assert (found["record"]["place"], found["subscription"]["id"], found["gaps"]) == ("traced:1:1", "oulu", [])
    code, _, err = turnout("lineage", "traced.oulu:0", "--route", str(scene.file))
    assert (code, "expected TOPIC:PARTITION:OFFSET, as in delivered:0:17" in err) == (2, True)


def _check_pages(console: TestClient, letters: set[tuple[str, int]], key: str) -> None:
    """Check that the console's links and forms name the partitions of letters."""
    links = re.findall(_LETTER_LINK, console.get("/dead-letters/rested").text)
    assert {(unquote(stream), int(offset)) for offset, stream in links} == letters
    shown = console.get("/dead-letters/rested/0?stream=rested.letters:1").text
    assert "<h2>rested.letters:1:0</h2>" in shown
    assert '<input type="hidden" name="stream" value="rested.letters:1">' in shown
    assert console.get("/dead-letters/rested/0").status_code == 409
    assert key in console.get("/sandbox?route=rested&letter=0&stream=rested.letters:1").text
    asked = {"sequence": 0, "stream": "rested.letters:1", "dry_run": True}
    assert "Outcomes of 1 in a dry run" in console.post("/fragments/dead-letters/rested/redrive", json=asked).text


@pytest.mark.heavy
def test_rest(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """REST and console distinguish the letters of two partitions, page them without loss, and redrive one by one."""
    scene = Scene(broker, tmp_path, "rested")
    scene.write(scene.text.replace("rested.dead", "rested.letters"))
    with KafkaAdmin(scene.options) as admin:
        admin.create_topic("rested.letters", 2, {"retention.ms": "-1"})
    # By their keys, letters of these records are in both partitions.
    scene.publish(*[{"n": f"x{n}", "city": "Oulu"} for n in range(8)])
    assert scene.run(turnout)["dead_lettered"] == 8
    bench = Bench(tmp_path / "routes")
    bench.write("rested", scene.file.read_text(encoding="utf-8").replace("n:int32", "n:string"))
    bench.routes.scan()
    client, letters = client_of(bench), "/v1/routes/rested/dead-letters"

    try:
        found, before = [], ""
        while True:
            page = client.get(f"{letters}?limit=2{before}").json()
            found += [(item["stream"], item["sequence"]) for item in page["items"]]
            if page["cursor"] is None:
                break
            before = f"&before={page['cursor']}"
        assert (len(found), len(set(found)), {stream for stream, _ in found}) == (
            8,
            8,
            {"rested.letters:0", "rested.letters:1"},
        )
        assert client.get(f"{letters}/0").status_code == 409
        one = client.get(f"{letters}/0?stream=rested.letters:1").json()
        assert (one["stream"], one["record"]["topic"]) == ("rested.letters:1", "rested")
        _check_pages(console_of(bench), set(found), one["record"]["key"])
        form = {"sequences": [0], "dry_run": False}
        refused = client.post(f"{letters}/redrive", json=form)
        assert (refused.status_code, "name one as stream" in refused.text) == (409, True)
        report = client.post(f"{letters}/redrive", json={**form, "stream": "rested.letters:1"}).json()
        assert (report["letters"], report["outcomes"]) == (1, {"delivered": 1})
        left = client.get(f"{letters}?limit=100").json()["items"]
        assert {(item["stream"], item["sequence"]) for item in left} == set(found) - {("rested.letters:1", 0)}
        explained = client.post("/v1/routes/rested/explain", json={"at": "rested:0:0"}).json()
        assert (explained["record"]["offset"], explained["outcome"]) == (0, "delivered")
    finally:
        bench.close()
    assert [row["key"].decode() for row in scene.rows("rested.oulu")] == [one["record"]["key"]]


@pytest.mark.heavy
def test_a_subscription_gets_earlier_records(broker: KafkaBroker, tmp_path: Path, turnout: Any) -> None:  # noqa: F811
    """From both partitions, once; an offset of its own has no meaning for both of them."""
    scene = Scene(broker, tmp_path, "backfilled")
    for partition in (0, 1):
        numbers = range(10 * partition, 10 * partition + 10)
        scene.publish(*({"n": n, "city": "Oulu"} for n in numbers), partition=partition)
    scene.run(turnout)
    with KafkaAdmin(scene.options) as admin:
        for name in ("late", "odd"):
            admin.create_topic(f"backfilled.{name}", 1, {"retention.ms": "-1"})
    with open_store(f"sqlite:///{tmp_path}/backfilled.db") as store:
        store.create(Subscription(["backfilled.late"], parse("city:Oulu"), id="late", start=Start("earliest")))
        store.create(Subscription(["backfilled.odd"], parse("city:Oulu"), id="odd", start=Start(7)))
    scene.publish({"n": 20, "city": "Oulu"})
    counts = scene.run(turnout)

    got = {
        name: sorted(json.loads(row["value"])["n"] for row in scene.rows(f"backfilled.{name}"))
        for name in ("late", "odd")
    }
    assert got == {"late": list(range(21)), "odd": [20]}
    assert counts["read"] == 1
