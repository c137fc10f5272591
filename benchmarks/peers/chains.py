"""The example route's six transforms, JSON in and JSON out in one thread, beside Kafka Connect's own classes.

Kafka's JsonConverter reads and writes, with the route's schema (``schema.content``) and without. Both sides have their
records in memory and answer the same before a second is told. Times are of the thread's processor: what the JVM's
collector and compiler take beside it does not count.
"""

from __future__ import annotations

import gc
import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks._flights import Flights, route
from benchmarks.harness import Options, Result
from benchmarks.peers.programs import Program, java_program
from turnout.engine.reading import AT_ONCE
from turnout.errors import TurnoutError
from turnout.gc_tools import paused_gc

KAFKA = "4.3.0"
"""The first that knows ``schema.content`` is 4.2.0."""

PACKAGES = (f"org.apache.kafka:connect-transforms:{KAFKA}", f"org.apache.kafka:connect-json:{KAFKA}")
NAME = f"Kafka Connect {KAFKA}"

_CONNECT = {"int": "int32", "string": "string"}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_CLASSES = "org.apache.kafka.connect.transforms"


@dataclass(frozen=True)
class Case:
    """A chain, and the schema that values have, or None."""

    name: str
    schema: str | None
    transforms: Sequence[Mapping[str, Any]]

    @property
    def value(self) -> dict[str, Any]:
        """As a route's ``value``."""
        return {"format": "json"} if self.schema is None else {"format": "json", "schema": self.schema}

    def plan(self) -> dict[str, Any]:
        """What Kafka's side is told."""
        fields = [] if self.schema is None else [field.split() for field in self.schema.split(",")]
        connect = {
            "type": "struct",
            "optional": False,
            "fields": [{"field": name, "type": _CONNECT[kind.lower()], "optional": True} for name, kind in fields],
        }
        return {"stages": [_stage(transform) for transform in self.transforms], "schema": connect if fields else None}


def cases() -> Iterator[Case]:
    """The route's chain with its schema, and without.

    JsonConverter cannot write a schemaless date, so that the last of the six ends in a number there.
    """
    document = route()
    yield Case("chain typed", document["value"]["schema"], document["transforms"])
    *first, last = document["transforms"]
    unix = {**last, "target.type": "unix", "unix.precision": "milliseconds"}
    yield Case("chain schemaless", None, [*first, unix])


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


def run(options: Options) -> list[Result]:
    """The cases that were asked for."""
    chosen = [case for case in cases() if options.wants(case.name)]
    if not chosen:
        return []
    command = java_program("kafka/Chain.java", PACKAGES, "-Xmx2g", "-XX:+UseSerialGC")
    flights = Flights.of(options.rows(200_000, 5_000))
    with tempfile.TemporaryDirectory(prefix="turnout-peers-") as folder:
        return [measure(case, flights, command, Path(folder), quick=options.quick) for case in chosen]


def measure(case: Case, flights: Flights, command: Sequence[str], folder: Path, *, quick: bool) -> Result:
    """Answers compared, then passes over all records by turns."""
    from benchmarks._chain import BatchChain

    chain = BatchChain(case.value, case.transforms)
    batches = flights.batches(AT_ONCE)
    with kafka(case, flights, command, folder) as peer:
        compare(case, chain_outcomes(chain, batches), kafka_outcomes(peer, folder))
        warm_up(peer, 1 if quick else 10)
        theirs, ours = [], []
        for _ in range(2 if quick else 7):
            theirs.append(peer.ask("pass")["cpu"])
            # As in a task; the time of the JVM's collector is not counted either.
            with paused_gc(freeze=True):
                ours.append(_pass(chain, batches))
            gc.unfreeze()
    their, our, size = statistics.median(theirs), statistics.median(ours), len(flights)
    extra = {"µs CPU": our / size * 1e6, "its µs CPU": their / size * 1e6}
    return Result(case.name, size, size / our, NAME, their / our, extra)


def kafka(case: Case, flights: Flights, command: Sequence[str], folder: Path) -> Program:
    """Kafka's side, with its records loaded."""
    plan, records = folder / "plan.json", folder / "records.jsonl"
    plan.write_text(json.dumps(case.plan()), encoding="utf-8")
    records.write_text("\n".join(flights.lines()) + "\n", encoding="utf-8")
    return Program([*command, plan, records])


def warm_up(peer: Program, seconds: float) -> None:
    """Passes until the JVM has compiled what there is to compile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        peer.ask("pass")


def _pass(chain: Any, batches: Sequence[pa.RecordBatch]) -> float:
    begun = time.process_time()
    for batch in batches:
        chain.run(batch)
    return time.process_time() - begun


def chain_outcomes(chain: Any, batches: Sequence[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """What became of each record here."""
    for batch in batches:
        for outcome in chain.outcomes(batch):
            yield _outcome(outcome.outcome, outcome.topic, outcome.value, list(outcome.headers))


def kafka_outcomes(peer: Program, folder: Path) -> Iterator[dict[str, Any]]:
    """What became of each record there."""
    file = folder / "kafka.jsonl"
    peer.ask(f"write {file}")
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            answer = json.loads(line)
            yield _outcome(answer["outcome"], answer.get("topic"), answer.get("value"), answer.get("headers", []))


def _outcome(outcome: str, topic: str | None, value: bytes | str | None, headers: list[str]) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "topic": topic,
        # In pairs, so that the order of fields counts.
        "value": None if value is None else [(name, _moment(item)) for name, item in _pairs(value)],
        "headers": headers,
    }


def _pairs(value: bytes | str) -> list[tuple[str, Any]]:
    return json.loads(value, object_pairs_hook=list)  # type: ignore[no-any-return]


def _moment(item: Any) -> Any:
    """A date with a schema is text in JSON here, and a number in JsonConverter's."""
    if isinstance(item, str) and _MOMENT.fullmatch(item):
        return round(datetime.fromisoformat(item).timestamp() * 1000)
    return item


def compare(case: Case, ours: Iterator[dict[str, Any]], theirs: Iterator[dict[str, Any]]) -> int:
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
