"""Chains of transforms in one thread: JSON flights parsed, transformed and serialised, typed and schemaless.

``parse and serialise`` is the baseline; every other case does that too, with transforms between. No Spark: this is what
the engine does to a batch. In each round all cases get the same records, which no round before had, in another order of
cases; a case has its own program.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from benchmarks._chain import BatchChain
from benchmarks._flights import batches, route, supply
from benchmarks.harness import Case, Options, Result, Setup, Supply, rates
from benchmarks.peers.binary_chains import binary_chains
from benchmarks.peers.chains import Chain as PeerChain
from benchmarks.peers.chains import chains as peer_chains
from turnout.demo.flights import FlightMessage
from turnout.engine.reading import AT_ONCE

FORMATS: dict[str, dict[str, Any]] = {
    "typed": {"format": "json", "schema": route()["value"]["schema"]},
    "schemaless": {"format": "json"},
}
PATTERN = "yyyy-MM-dd'T'HH:mm:ss'Z'"

ALONE: dict[str, dict[str, Any]] = {
    "Cast": {"type": "Cast$Value", "spec": "distance:float64,flight:string"},
    "DropHeaders": {"type": "DropHeaders", "headers": "Tail-Number"},
    "ExtractField": {"type": "ExtractField$Value", "field": "carrier"},
    "Filter": {"type": "Filter", "predicate": {"type": "TopicNameMatches", "pattern": "flights\\.JFK\\..*"}},
    "Flatten": {"type": "Flatten$Value", "delimiter": "_"},
    "HeaderFrom": {"type": "HeaderFrom$Value", "fields": "tailnum", "headers": "Tail", "operation": "move"},
    "HoistField": {"type": "HoistField$Value", "field": "flight"},
    "InsertField": {"type": "InsertField$Value", "topic.field": "route", "static.field": "set", "static.value": "nyc"},
    "InsertHeader": {"type": "InsertHeader", "header": "set", "value.literal": "nyc"},
    "MaskField": {"type": "MaskField$Value", "fields": "tailnum", "replacement": "N-----"},
    "RegexRouter": {"type": "RegexRouter", "regex": "flights\\.(.*)", "replacement": "eu.$1"},
    "ReplaceField": {"type": "ReplaceField$Value", "renames": "dep_delay:departure_delay", "exclude": "year,day"},
    "SetSchemaMetadata": {"type": "SetSchemaMetadata$Value", "schema.name": "Flight"},
    "TimestampConverter": {
        "type": "TimestampConverter$Value",
        "field": "time_hour",
        "format": PATTERN,
        "target.type": "unix",
    },
    "TimestampRouter": {"type": "TimestampRouter"},
    "ValueToKey": {"type": "ValueToKey", "fields": "carrier,flight"},
    "SubjectTransform": {
        "type": "SubjectTransform",
        "source": "flights.*.*.*",
        "destination": "eu.{{wildcard(3)}}.{{wildcard(1)}}",
    },
}
WITHOUT_SCHEMA_FAILS = {"SetSchemaMetadata"}

SIX = [
    {"type": "Filter", "predicate": {"when": {"not": {"key": "value.dep_time", "exists": True}}}},
    ALONE["InsertField"],
    ALONE["ReplaceField"],
    {**ALONE["MaskField"], "predicate": {"type": "TopicNameMatches", "pattern": "flights\\..*\\.B6"}},
    ALONE["TimestampConverter"],
    {**ALONE["InsertHeader"], "predicate": {"type": "HasHeaderKey", "name": "Tail-Number"}},
]


_REPEATS = 5


def cases(options: Options) -> Iterator[Case]:
    """Yield a case for each form of values, its chains in alternation, and one for the steps of each peer chain."""
    flights, records = supply(), options.rows(20_000, 2_000)
    for form, value in FORMATS.items():
        base = f"{form}: parse and serialise"
        chains: dict[str, Sequence[Mapping[str, Any]]] = {base: []}
        for alone, config in ALONE.items():
            if not (form == "schemaless" and alone in WITHOUT_SCHEMA_FAILS):
                chains[f"{form}: {alone}"] = [config]
        chains[f"{form}: six with three predicates"] = SIX
        chains[f"{form}: the example route's six"] = route()["transforms"]
        yield Case(form, partial(_measure, value, base, chains, flights, records))
    for chain in (*peer_chains(), *binary_chains()):
        yield Case(f"steps of {chain.name}", partial(_stages, chain, flights, records))


def _stages(chain: PeerChain, flights: Supply[FlightMessage], records: int) -> Iterator[Result]:
    """Processor time of each step of a chain, in the order of the steps."""
    steps = chain.batch_chain()
    seconds: dict[str, list[float]] = {}
    for turn in range(_REPEATS + 1):
        given = batches(chain.records(flights.take(records)), AT_ONCE)
        gc.collect()
        gc.freeze()
        taken: dict[str, float] = {}
        for batch in given:
            for step, own in steps.seconds(batch):
                taken[step] = taken.get(step, 0.0) + own
        gc.unfreeze()
        for step, own in taken.items() if turn else ():
            seconds.setdefault(step, []).append(own)
    for step, times in seconds.items():
        extra = {"cpu_us": median(times) / records * 1e6}
        yield Result(f"{chain.name}: {step}", records, rates(records, times), Setup("new", AT_ONCE, 1), extra=extra)


def _measure(
    value: Mapping[str, Any],
    base: str,
    cases: Mapping[str, Sequence[Mapping[str, Any]]],
    flights: Supply[FlightMessage],
    records: int,
) -> Iterator[Result]:
    """Every chain in its turn, some times over: the machine is not equally fast all the while."""
    chains = [(case, BatchChain(value, transforms)) for case, transforms in cases.items()]
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    for turn in range(_REPEATS + 1):
        given = batches(flights.take(records), AT_ONCE)
        gc.collect()
        gc.freeze()
        for case, chain in (*chains[turn:], *chains[:turn]):
            begun = time.process_time()
            for batch in given:
                chain.run(batch)
            seconds[case].append(time.process_time() - begun)
        gc.unfreeze()
    # The first of each plans, and fills caches.
    for case, times in seconds.items():
        yield _result(case, records, times[1:], None if case == base else base, seconds[base][1:])


def _result(case: str, size: int, seconds: list[float], base: str | None, of_base: list[float]) -> Result:
    extra: dict[str, Any] = {"cpu_us": median(seconds) / size * 1e6}
    if base is None:
        return Result(case, size, rates(size, seconds), Setup("new", AT_ONCE, 1), extra=extra)
    pairs = list(zip(of_base, seconds, strict=True))
    extra["adds_us"] = median(own - others for others, own in pairs) / size * 1e6
    ratio = median(others / own for others, own in pairs)
    return Result(case, size, rates(size, seconds), Setup("new", AT_ONCE, 1), base, ratio, extra)
