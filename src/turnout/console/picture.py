"""A route's flow as steps, with as much of the counts as is known of each."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from turnout.console.figures import Branch, Step, flow
from turnout.console.flow_counts import Traffic
from turnout.routes import Route
from turnout.transforms.chain import Stage

__all__ = ["picture_of", "steps_of"]


def picture_of(route: Route, traffic: Traffic) -> Markup:
    """The picture of a route's flow over the time of *traffic*."""
    total = traffic.total
    outcomes = (
        f"{total.read:,} read, {total.filtered:,} filtered, {total.dead_lettered + total.discarded:,} failed,"
        f" {total.lost_by_weight:,} lost by weight, {total.unmatched:,} wanted by nobody, {total.delivered:,} delivered"
    )
    if total.not_read:
        outcomes += f", {total.not_read:,} not read"
    return flow(steps_of(route, traffic), total.read, traffic.rate("read"), f"The flow of {route.name}: {outcomes}")


def steps_of(route: Route, traffic: Traffic) -> list[Step]:
    """The steps from source to sinks.

    The engine counts outcomes, not stages: what filters took leaves behind the last Filter, and what failed, wherever
    that was, behind the last transform.
    """
    stages = list(route.chain.stages)
    filters = [place for place, stage in enumerate(stages) if _name(stage) == "Filter"]
    failed = _failed(route, traffic)
    steps = [Step("source", route.source.format), Step("decode", route.value.format, () if stages else failed)]
    for place, stage in enumerate(stages):
        branches = list(_filtered(len(filters), traffic)) if filters and place == filters[-1] else []
        branches += failed if place == len(stages) - 1 else []
        steps.append(Step(stage.name, _name(stage), branches))
    if len(route.mappings):
        steps.append(
            Step(
                "mapping",
                "1 mapping" if len(route.mappings) == 1 else f"{len(route.mappings)} mappings",
                _left("lost", "lost by weight", "lost_by_weight", traffic),
            )
        )
    if route.subscriptions is not None:
        steps.append(Step("match", "subscriptions", _left("unmatched", "wanted by none", "unmatched", traffic)))
    return [*steps, Step(_sinks(route), ", ".join(dict.fromkeys(sink.format for sink in route.sinks.values())))]


def _name(stage: Stage) -> str:
    return stage.transform.label.partition("$")[0]


def _sinks(route: Route) -> str:
    names = [name for name in route.sinks if name]
    return ", ".join(names) if len(names) > 1 else "sink"


def _filtered(filters: int, traffic: Traffic) -> Iterator[Branch]:
    name = "filtered" if filters == 1 else f"by {filters} filters"
    yield from _left("filtered", name, "filtered", traffic)


def _failed(route: Route, traffic: Traffic) -> list[Branch]:
    dead = route.dead_letter is not None
    return _left("failed", "dead letters" if dead else "discarded", "dead_lettered" if dead else "discarded", traffic)


def _left(kind: str, name: str, count: str, traffic: Traffic) -> list[Branch]:
    value: int = getattr(traffic.total, count)
    return [Branch(kind, name, value, traffic.rate(count))]
