"""Routes that need attention, and the reasons."""

from __future__ import annotations

from turnout.console.formatting import span
from turnout.server.rest.dependencies import Parts
from turnout.server.route_entry import RouteEntry
from turnout.server.supervisor import Phase

_LATE_SECONDS = 300.0
"""A route that is so far behind is not keeping up."""


def needs(entry: RouteEntry, parts: Parts) -> str:
    """Return the reason why a route needs attention, as a sentence; "" if it needs none."""
    status = entry.status
    if status.phase in (Phase.FAILED, Phase.INVALID, Phase.WAITING):
        return status.reason or str(status.phase)
    if (problem := parts.survey.problems.get(entry.name)) is not None:
        return problem
    if (problem := parts.webhooks.problem(entry.name)) != "":
        return problem
    if entry.mistakes:
        return f"its file has mistakes: {entry.mistakes[0]}"
    if entry.pending is not None:
        return "its file needs a new checkpoint: confirm it on its page"
    if (problems := parts.losses.report(entry.name).problems) and status.phase is not Phase.PAUSED:
        return problems[0]
    lag = parts.survey.lag(entry.name)
    if status.phase is Phase.RUNNING and lag is not None and (lag.seconds or 0.0) > _LATE_SECONDS:
        return f"it is {span(lag.seconds)} behind"
    return ""
