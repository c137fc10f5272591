"""turnout on Spark: ``from turnout import spark as ts``.

Everything here is Column expressions and joins over record columns; see docs/architecture.md. The names are loaded
when they are first used: executors import this package for the source and the sink alone, and need not have the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.spark.chain import apply_chain
    from turnout.spark.counts import Counts
    from turnout.spark.job import Progress, RunResult, run
    from turnout.spark.matching import Matching, match
    from turnout.spark.session import build_session
    from turnout.spark.sources.nats import register
    from turnout.spark.subjects import map_subject, map_subjects, subject_matches, transform_subject

__all__ = [
    "Counts",
    "Matching",
    "Progress",
    "RunResult",
    "apply_chain",
    "build_session",
    "map_subject",
    "map_subjects",
    "match",
    "register",
    "run",
    "subject_matches",
    "transform_subject",
]

_HOMES = {
    "chain": ("apply_chain",),
    "counts": ("Counts",),
    "job": ("Progress", "RunResult", "run"),
    "matching": ("Matching", "match"),
    "session": ("build_session",),
    "sources.nats": ("register",),
    "subjects": ("map_subject", "map_subjects", "subject_matches", "transform_subject"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"turnout.spark.{home}"), name)
    raise AttributeError(f"module 'turnout.spark' has no attribute {name!r}")
