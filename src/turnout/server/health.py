"""Whether the process lives, and whether it is ready for work: what ``/live`` and ``/ready`` answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnout.errors import TurnoutError
from turnout.server.runner import Runner
from turnout.server.survey import Survey

__all__ = ["Health", "Readiness"]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether everything that is needed is there.

    Attributes:
        problems: what is not, a sentence for each; by ``route <name>`` or part.
    """

    problems: dict[str, str]

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.problems


class Health:
    """Asks the parts of a server how they are.

    A route that has failed does not make the server unready: the others work, and no restart of the process helps it.

    Args:
        runner: has to be alive.
        survey: knows which servers are away.
        store: raises a TurnoutError while the store of subscriptions is away; None where there is none.
    """

    def __init__(self, runner: Runner, survey: Survey, store: Callable[[], object] | None = None) -> None:
        self._runner = runner
        self._survey = survey
        self._store = store

    def live(self) -> str | None:
        """Why the process has to be started again; None while it need not."""
        return None if self._runner.alive() else "the Spark session has ended"

    def ready(self) -> Readiness:
        """What is missing for work."""
        problems = {f"route {name}": problem for name, problem in self._survey.problems.items()}
        if not self._survey.looked:
            problems["routes"] = "the server is starting"
        if (dead := self.live()) is not None:
            problems["spark"] = dead
        if self._store is not None:
            try:
                self._store()
            except TurnoutError as failure:
                problems["store"] = str(failure)
        return Readiness(problems)
