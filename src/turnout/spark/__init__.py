"""turnout on Spark: ``from turnout import spark as ts``.

Spark plans, reads, checkpoints and writes; what happens to a record happens in `turnout.engine`, in batches inside
Spark's tasks. The names are loaded when they are first used: executors import this package for the source and the sink
alone, and need not have the rest.
"""

from typing import TYPE_CHECKING

from turnout.base.startup import names_at_first_use

if TYPE_CHECKING:
    from turnout.engine.counts import Counts
    from turnout.runtime.offsets import Progress, RunResult
    from turnout.spark.formats.nats.source import register
    from turnout.spark.frames import Applied, apply_chain, match, subscriptions_table
    from turnout.spark.history.diff import DiffResult, diff
    from turnout.spark.history.replay import replay
    from turnout.spark.running.job import run
    from turnout.spark.session.build import build_session
    from turnout.spark.subjects import map_subject, map_subjects, subject_matches, transform_subject

__all__ = [
    "Applied",
    "Counts",
    "DiffResult",
    "Progress",
    "RunResult",
    "apply_chain",
    "build_session",
    "diff",
    "map_subject",
    "map_subjects",
    "match",
    "register",
    "replay",
    "run",
    "subject_matches",
    "subscriptions_table",
    "transform_subject",
]

_HOMES = {
    "turnout.engine.counts": ("Counts",),
    "turnout.spark.frames": ("Applied", "apply_chain", "match", "subscriptions_table"),
    "turnout.spark.history.diff": ("DiffResult", "diff"),
    "turnout.spark.history.replay": ("replay",),
    "turnout.spark.running.job": ("Progress", "RunResult", "run"),
    "turnout.spark.session.build": ("build_session",),
    "turnout.spark.formats.nats.source": ("register",),
    "turnout.spark.subjects": ("map_subject", "map_subjects", "subject_matches", "transform_subject"),
}

_REMOVED = {
    "RedriveResult": "redrive.RedriveReport",
    "lineage": "lineage.walk",
    "redrive": "redrive.redrive",
    "tap": "tap.taps",
}
"""Removed wrappers of `turnout.history`; until the next release their names raise an error that says so."""


_get = names_at_first_use(__name__, {name: home for home, names in _HOMES.items() for name in names})


def __getattr__(name: str) -> object:
    if name in _REMOVED:
        from turnout.errors import TurnoutError

        raise TurnoutError(f"turnout.spark.{name} was removed: turnout.history.{_REMOVED[name]} needs no Spark")
    return _get(name)
