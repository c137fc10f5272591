"""Chains of transforms in one thread: JSON flights parsed, transformed and serialised, typed and schemaless.

``parse and serialise`` is the baseline; every other case does that too, with transforms between. No Spark: this is what
the engine does to a batch.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from benchmarks._chain import BatchChain
from benchmarks._flights import Flights, route
from benchmarks.harness import Options, Result
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


def run(options: Options) -> list[Result]:
    batches = Flights.of(options.rows(200_000, 10_000)).batches(AT_ONCE)
    gc.freeze()
    results: list[Result] = []
    for form, value in FORMATS.items():
        base = f"{form}: parse and serialise"
        cases: dict[str, Sequence[Mapping[str, Any]]] = {base: []}
        for alone, config in ALONE.items():
            if not (form == "schemaless" and alone in WITHOUT_SCHEMA_FAILS):
                cases[f"{form}: {alone}"] = [config]
        cases[f"{form}: six with three predicates"] = SIX
        cases[f"{form}: the example route's six"] = route()["transforms"]
        chosen = {case: chain for case, chain in cases.items() if case == base or options.wants(case)}
        if len(chosen) > 1 or options.wants(base):
            results += _measure(value, base, chosen, batches)
    gc.unfreeze()
    return results


def _measure(
    value: Mapping[str, Any],
    base: str,
    cases: Mapping[str, Sequence[Mapping[str, Any]]],
    batches: Sequence[pa.RecordBatch],
) -> list[Result]:
    """Every case in its turn, some times over: the machine is not equally fast all the while."""
    size = sum(map(len, batches))
    chains = {case: BatchChain(value, transforms) for case, transforms in cases.items()}
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(_REPEATS + 1):
        for case, chain in chains.items():
            begun = time.process_time()
            for batch in batches:
                chain.run(batch)
            seconds[case].append(time.process_time() - begun)
    # The first of each plans, and fills caches.
    medians = {case: sorted(times[1:])[_REPEATS // 2] for case, times in seconds.items()}
    return [
        _result(case, size, median, None if case == base else base, medians[base]) for case, median in medians.items()
    ]


def _result(case: str, size: int, seconds: float, base: str | None, of_base: float) -> Result:
    extra: dict[str, Any] = {"µs CPU": seconds / size * 1e6}
    if base is not None:
        extra["adds µs"] = (seconds - of_base) / size * 1e6
    return Result(case, size, size / seconds, base, None if base is None else of_base / seconds, extra)
