"""The example route's six transforms in one thread, beside Kafka Connect's own classes.

Of JSON, Kafka's JsonConverter reads and writes, with the route's schema (``schema.content``) and without. Both sides
have the same records in memory, none of them twice, and answer the same before a second is told. Times are of the
thread's processor: what the JVM's collector and compiler take beside it does not count.
"""

from __future__ import annotations

import gc
import json
import re
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks._chain import BatchChain
from benchmarks._flights import batches, lines, of_shapes, route, supply
from benchmarks.harness import Case, Options, Result, Setup, rates
from benchmarks.peers.programs import Program, java_program
from turnout.base.startup import paused_gc
from turnout.demo.flights import FlightMessage
from turnout.engine.reading import AT_ONCE
from turnout.errors import TurnoutError

KAFKA = "4.3.0"
"""The first that knows ``schema.content`` is 4.2.0."""

PACKAGES = (
    f"org.apache.kafka:connect-transforms:{KAFKA}",
    f"org.apache.kafka:connect-json:{KAFKA}",
    "org.apache.avro:avro:1.12.2",
    "com.google.protobuf:protobuf-java:4.36.2",
)
NAME = f"Kafka Connect {KAFKA}"

SHAPES = (1, 20, 500)
"""How many shapes the values of a case have."""

_CONNECT = {"INT": "int32", "STRING": "string"}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_CLASSES = "org.apache.kafka.connect.transforms"


@dataclass(frozen=True)
class Chain:
    """A chain, and its records.

    Attributes:
        schema: that values have, or None.
        transforms: as in a route.
        shapes: how many the values have; None as the flights come, of which some lack a field.
    """

    name: str
    schema: str | None
    transforms: Sequence[Mapping[str, Any]]
    shapes: int | None = None

    @property
    def value(self) -> dict[str, Any]:
        """As a route's ``value``."""
        return {"format": "json"} if self.schema is None else {"format": "json", "schema": self.schema}

    def records(self, sent: Sequence[FlightMessage]) -> Sequence[FlightMessage]:
        """Flights as the chain gets them."""
        return sent if self.shapes is None else of_shapes(sent, self.shapes)

    def batch_chain(self) -> BatchChain:
        """Our side."""
        return BatchChain(self.value, self.transforms)

    def typed_fields(self) -> list[tuple[str, str]]:
        """Names and types of the schema's fields."""
        fields = () if self.schema is None else (field.split() for field in self.schema.split(","))
        return [(name, kind.upper()) for name, kind in fields]

    def content(self, value: bytes) -> Any:
        """A value that was written, as it is compared: in pairs, so that the order of fields counts."""
        return [(name, _moment(item)) for name, item in json.loads(value, object_pairs_hook=list)]

    def plan(self) -> dict[str, Any]:
        """Return the plan for Kafka's side."""
        fields = self.typed_fields()
        connect = {
            "type": "struct",
            "optional": False,
            "fields": [{"field": name, "type": _CONNECT[kind], "optional": True} for name, kind in fields],
        }
        stages = [_stage(transform) for transform in self.transforms]
        return {"format": "json", "stages": stages, "schema": connect if fields else None}


def chains() -> Iterator[Chain]:
    """The route's chain with its schema, and without, over values of few and of many shapes.

    JsonConverter cannot write a schemaless date, so that the last of the six ends in a number there.
    """
    document = route()
    *first, last = document["transforms"]
    unix = {**last, "target.type": "unix", "unix.precision": "milliseconds"}
    typed = Chain("chain typed", document["value"]["schema"], document["transforms"])
    schemaless = Chain("chain schemaless", None, [*first, unix])
    for chain in (typed, schemaless):
        yield chain
        for shapes in SHAPES:
            yield replace(chain, name=f"{chain.name}, {shapes} shape{'s' * (shapes > 1)}", shapes=shapes)


def _stage(given: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: option for name, option in given.items() if name not in ("name", "type", "predicate", "negate")}
    stage = {
        "class": f"{_CLASSES}.{given['type']}",
        "config": {name: str(option) for name, option in options.items()},
        "negate": bool(given.get("negate", False)),
    }
    if "predicate" in given:
        guard = dict(given["predicate"])
        stage["predicate"] = {"class": f"{_CLASSES}.predicates.{guard.pop('type')}", "config": guard}
    return stage


def cases(options: Options, measured: Iterable[Chain] | None = None) -> Iterator[Case]:
    """A case for each chain."""
    for chain in chains() if measured is None else measured:
        yield Case(chain.name, partial(measure, chain, options.rows(20_000, 2_000), quick=options.quick))


def measure(chain: Chain, records: int, *, quick: bool) -> Iterator[Result]:
    """Compare results, then measure rounds in alternation, each over new records."""
    command = java_program("kafka/Chain.java", PACKAGES, "-Xmx2g", "-XX:+UseSerialGC")
    ours, flights = chain.batch_chain(), supply()
    with tempfile.TemporaryDirectory(prefix="turnout-peers-") as name, kafka(chain, command, Path(name)) as peer:
        folder = Path(name)
        compared = load(peer, chain.records(flights.take(records)), folder)
        compare(chain, chain_outcomes(chain, ours, compared), kafka_outcomes(chain, peer, folder))
        warm_up(peer, 0.5 if quick else 6)
        taken = []
        for _ in range(3 if quick else 6):
            given = load(peer, chain.records(flights.take(records)), folder)
            there = peer.ask("pass")["cpu"]
            # As in a task; the time of the JVM's collector is not counted either.
            with paused_gc(freeze=True):
                taken.append((_pass(ours, given), there))
            gc.unfreeze()
    mine, theirs = ([pair[side] for pair in taken[1:]] for side in (0, 1))
    extra = {"cpu_us": median(mine) / records * 1e6, "its_cpu_us": median(theirs) / records * 1e6}
    ratio = median(their / our for our, their in taken[1:])
    yield Result(chain.name, records, rates(records, mine), Setup("new", AT_ONCE, 1), NAME, ratio, extra)


def kafka(chain: Chain, command: Sequence[str], folder: Path) -> Program:
    """Kafka's side."""
    plan = folder / "plan.json"
    plan.write_text(json.dumps(chain.plan()), encoding="utf-8")
    return Program([*command, plan])


def load(peer: Program, sent: Sequence[FlightMessage], folder: Path) -> list[pa.RecordBatch]:
    """Give Kafka's side records, and return the same as batches."""
    records = folder / "records.jsonl"
    records.write_text("\n".join(lines(sent)) + "\n", encoding="utf-8")
    peer.ask(f"load {records}")
    return batches(sent, AT_ONCE)


def warm_up(peer: Program, seconds: float) -> None:
    """Number of passes until the JVM has compiled the code."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        peer.ask("pass")


def _pass(chain: BatchChain, batches: Sequence[pa.RecordBatch]) -> float:
    begun = time.process_time()
    for batch in batches:
        chain.run(batch)
    return time.process_time() - begun


def chain_outcomes(case: Chain, chain: BatchChain, batches: Sequence[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """What became of each record here."""
    for batch in batches:
        for outcome in chain.outcomes(batch):
            yield _outcome(case, outcome.outcome, outcome.topic, outcome.value, list(outcome.headers))


def kafka_outcomes(case: Chain, peer: Program, folder: Path) -> Iterator[dict[str, Any]]:
    """What became of each record there."""
    file = folder / "kafka.jsonl"
    peer.ask(f"write {file}")
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            answer = json.loads(line)
            value = b64decode(answer["value"]) if "value" in answer else None
            yield _outcome(case, answer["outcome"], answer.get("topic"), value, answer.get("headers", []))


def _outcome(case: Chain, outcome: str, topic: str | None, value: bytes | None, headers: list[str]) -> dict[str, Any]:
    content = None if value is None else case.content(value)
    return {"outcome": outcome, "topic": topic, "value": content, "headers": headers}


def _moment(item: Any) -> Any:
    """A date with a schema is text in JSON here, and a number in JsonConverter's."""
    if isinstance(item, str) and _MOMENT.fullmatch(item):
        return round(datetime.fromisoformat(item).timestamp() * 1000)
    return item


def compare(case: Chain, ours: Iterator[dict[str, Any]], theirs: Iterator[dict[str, Any]]) -> int:
    """How many records there are, all of them with one outcome.

    Raises:
        TurnoutError: two outcomes differ; it names the first record.
    """
    count = 0
    for count, (our, their) in enumerate(zip(ours, theirs, strict=True), start=1):
        if case.schema is None and our["value"] and their["value"]:
            # Kafka keeps schemaless objects in hash maps: their order is chance.
            our["value"].sort()
            their["value"].sort()
        if our != their:
            raise TurnoutError(f"{case.name}: record {count - 1} differs from {NAME}: {our} for {their}")
    return count
