"""Liveness and readiness of the process, for ``/live`` and ``/ready``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnout.base.background import Background, statuses
from turnout.errors import TurnoutError
from turnout.server.lag_monitor import Survey
from turnout.server.runner import Runner
from turnout.subscriptions.deadline import within

_PAUSE_SECONDS: Final = 2.0
_STORE_SECONDS: Final = 5.0
"""Seconds that a check waits for the store."""

_SILENCE_SECONDS: Final = 30.0
"""A check that takes longer is a problem itself."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of the server's parts.

    Attributes:
        problems: a sentence for each missing part; by ``route <name>`` or part.
    """

    problems: dict[str, str]

    @property
    def ready(self) -> bool:
        """True if nothing is missing."""
        return not self.problems


class Check:
    """Check that runs every few seconds on its own thread, with its last result.

    Args:
        name: name of the part.
        ask: returns the problem, or None.
        clock: seconds that only grow.
    """

    def __init__(self, name: str, query: Callable[[], str | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._query = query
        self._clock = clock
        self._answer: str | None = None
        self._asked_at: float | None = None
        self._background = Background(f"check of the {name}", self.run, every=_PAUSE_SECONDS, longest=_PAUSE_SECONDS)

    @property
    def problem(self) -> str | None:
        """Return the known problem, if any, without waiting."""
        asked_at = self._asked_at
        silence = 0.0 if asked_at is None else self._clock() - asked_at
        return f"the {self._name} has not answered for {silence:.0f} s" if silence > _SILENCE_SECONDS else self._answer

    def run(self) -> None:
        """Run the check now."""
        self._asked_at = self._clock()
        self._answer = self._query()
        self._asked_at = None

    def start(self) -> None:
        """Start the thread of the check."""
        self._background.start()

    def close(self) -> None:
        """Stop the check, without waiting for a pending result."""
        self._background.stop()


class Health:
    """Last known health of a server's parts; requests for it do not wait.

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
        self._spark_check = Check("Spark session", self._spark_problem)
        self._store_check = Check("store", self._store_problem)

    def start(self) -> None:
        """Start the checks, each on its own thread, so that a slow one does not delay the other."""
        self._spark_check.start()
        self._store_check.start()

    def close(self) -> None:
        """Stop the checks."""
        self._spark_check.close()
        self._store_check.close()

    def check(self) -> None:
        """Run all checks now."""
        self._spark_check.run()
        self._store_check.run()

    def live(self) -> str | None:
        """Return the reason why the process must be restarted; None if it need not be."""
        ended = next((status.problem for status in statuses() if not status.is_alive), None)
        return self._spark_check.problem or ended

    def ready(self) -> Readiness:
        """Return the readiness, with the missing parts."""
        problems = {f"route {name}": problem for name, problem in self._survey.problems.items()}
        if not self._survey.has_measured:
            problems["routes"] = "the server is starting"
        problems |= {f"thread {status.name}": status.problem for status in statuses() if status.problem}
        problems_of = {"spark": self._spark_check.problem, "store": self._store_check.problem}
        return Readiness(problems | {part: problem for part, problem in problems_of.items() if problem is not None})

    def _spark_problem(self) -> str | None:
        return None if self._runner.alive() else "the Spark session has ended"

    def _store_problem(self) -> str | None:
        if self._store is None:
            return None
        try:
            with within(_STORE_SECONDS):
                self._store()
        except TurnoutError as failure:
            return str(failure)
        return None
