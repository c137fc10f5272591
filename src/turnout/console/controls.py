"""Operations available for a route now, and the reasons for the others."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.server.entry import RouteEntry
from turnout.server.state import Pause
from turnout.server.supervisor import Phase


@dataclass(frozen=True, slots=True)
class Controls:
    """Reasons why operations are unavailable, as sentences; "" for available operations."""

    pause: str
    resume: str
    restart: str
    reset: str


def controls_of(entry: RouteEntry, pause: Pause | None) -> Controls:
    """Return the operations that the server would accept now, and its reasons to refuse the others.

    Args:
        entry: the route.
        pause: who has paused it; None where nobody has.
    """
    if entry.supervisor is None:
        return Controls(*["The route never ran: its file has mistakes."] * 4)
    if pause is None:
        return Controls("", "The route is not paused.", "", "Offsets are reset while it is paused.")
    reset = "" if entry.status.phase is Phase.PAUSED and entry.supervisor.idle else "Its last micro-batch is under way."
    if entry.checkpoint is None:
        reset = "Its checkpoint is not on this machine: remove it there."
    return Controls(f"It is paused, by {pause.who}.", "", "The route is paused: resume it.", reset)
