"""Chains of one transform, and what their tests share."""

from __future__ import annotations

from typing import Any

from turnout.records import Field, Record, Schema
from turnout.transforms import Chain

T = "org.apache.kafka.connect.transforms."
STRUCT = Schema("struct", fields=(Field("a", Schema("string", optional=True, default="d")), Field("n", Schema("int8"))))
FOO = {"type": T + "predicates.TopicNameMatches", "pattern": "foo"}


def chain(type_: str, *, predicate: dict[str, str] | None = None, **options: str) -> Chain:
    config = {f"transforms.t.{name.replace('_', '.')}": value for name, value in options.items()}
    if predicate is not None:
        config |= {"transforms.t.predicate": "p", "predicates": "p"}
        config |= {f"predicates.p.{name}": value for name, value in predicate.items()}
    return Chain.from_config({"transforms": "t", "transforms.t.type": T + type_, **config})


def values(outcomes: list[Any]) -> list[Any]:
    return [outcome.value if isinstance(outcome, Record) else None for outcome in outcomes]


def route_chain(*stages: dict[str, Any]) -> Chain:
    return Chain.from_route(stages)


def outcome_values(of: Chain, *given: Any) -> list[Any]:
    """Return what a chain makes of records with these values: their values, or other outcomes as they are."""
    made = of.apply([Record("t", value) for value in given])
    return [one.value if isinstance(one, Record) else one for one in made]
