"""A route's flow as steps, with the counts of its stages."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from turnout.console.figures import Branch, FlowStep, flow
from turnout.console.flow_counts import RecentTraffic
from turnout.engine.flow import KEY, MAPPING, MATCH, SINK, SOURCE, VALUE, Stages
from turnout.plural import plural
from turnout.routes import Route

_DROPS = {MAPPING: ("lost", "lost by weight"), MATCH: ("unmatched", "unmatched")}
"""Records dropped by parts other than transforms: the kind of the branch, and its label."""


def picture_of(route: Route, traffic: RecentTraffic) -> Markup:
    """Return the picture of a route's flow over the time of *traffic*."""
    total = traffic.total
    outcomes = (
        f"{total.read:,} read, {total.filtered:,} filtered,"
        f" {total.dead_lettered:,} dead-lettered, {total.discarded:,} discarded,"
        f" {total.lost_by_weight:,} lost by weight, {total.unmatched:,} unmatched, {total.delivered:,} delivered"
    )
    if total.not_read:
        outcomes += f", {total.not_read:,} not read"
    return flow(steps_of(route, traffic), total.read, f"The flow of {route.name}: {outcomes}")


def steps_of(route: Route, traffic: RecentTraffic) -> list[FlowStep]:
    """Return the steps from source to sinks.

    Keys and values are decoded in one step. What fails at the sinks leaves in front of them, so that what reaches them
    is what was delivered.
    """
    steps = list(_parts(route))
    return [_step(index, steps, route, traffic) for index in range(len(steps))]


def _parts(route: Route) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield each step of the flow: its stages, its name, and its description."""
    stages = Stages.of(route)
    yield (SOURCE,), "source", route.source.format
    yield (KEY, VALUE), "decode", route.value.format
    for name, stage in zip(stages.transforms, route.chain.stages, strict=True):
        yield (name,), stage.name, stage.transform.label.partition("$")[0]
    if MAPPING in stages.others:
        yield (MAPPING,), "mapping", plural(len(route.mappings), "mapping")
    if MATCH in stages.others:
        yield (MATCH,), "match", "subscriptions"
    yield (SINK,), _sinks(route), ", ".join(dict.fromkeys(sink.format for sink in route.sinks.values()))


def _step(index: int, parts: list[tuple[tuple[str, ...], str, str]], route: Route, traffic: RecentTraffic) -> FlowStep:
    stages, name, kind = parts[index]
    if index == len(parts) - 1:
        return FlowStep(name, kind)
    following = parts[index + 1][0][0]
    failed, failed_rate = traffic.failed(*stages)
    taken, taken_rate = traffic.taken(stages[0])
    onward, rate = traffic.taken(following)
    # A version of the route that lacked a stage has counted nothing there.
    dropped, dropped_rate = max(0, taken - failed - onward), max(0.0, taken_rate - failed_rate - rate)
    branches = list(_dropped(stages[0], kind, dropped, dropped_rate))
    if failed:
        branches.append(Branch("failed", "dead letters" if route.dead_letter else "discarded", failed, failed_rate))
    if following == SINK:
        unsent, unsent_rate = traffic.failed(SINK)
        onward, rate = onward - unsent, max(0.0, rate - unsent_rate)
        if unsent:
            branches.append(Branch("failed", "not sent", unsent, unsent_rate))
    return FlowStep(name, kind, onward, rate, branches)


def _dropped(stage: str, kind: str, count: int, rate: float) -> Iterator[Branch]:
    """Yield the branch of records that the step dropped; shown as 0 only for steps that can drop."""
    if count or kind == "Filter" or stage in _DROPS:
        yield Branch(*_DROPS.get(stage, ("filtered", "filtered")), count, rate)


def _sinks(route: Route) -> str:
    names = [name for name in route.sinks if name]
    return ", ".join(names) if len(names) > 1 else "sink"
