"""turnout: route messages of NATS JetStream and Kafka, on Spark and without it.

The names are loaded when they are first used: Spark's workers import this package in every process, and need few of
them.
"""

from typing import TYPE_CHECKING

from turnout._built import version as __version__
from turnout.base.startup import names_at_first_use

if TYPE_CHECKING:
    from turnout.conditions import parse
    from turnout.engine.explain import explain
    from turnout.errors import TurnoutError
    from turnout.history.suite.cases import test
    from turnout.routes import Route
    from turnout.spark.history.diff import diff
    from turnout.spark.history.replay import replay
    from turnout.subjects import MappingTable, SubjectTransform, matches
    from turnout.subscriptions import Matcher, Subscription, open_store

__all__ = [
    "MappingTable", "Matcher", "Route", "SubjectTransform", "Subscription", "TurnoutError", "__version__", "diff",
    "explain", "matches", "open_store", "parse", "replay", "test",
]  # fmt: skip

__getattr__ = names_at_first_use(
    __name__,
    {
        "MappingTable": "turnout.subjects",
        "Matcher": "turnout.subscriptions",
        "Route": "turnout.routes",
        "SubjectTransform": "turnout.subjects",
        "Subscription": "turnout.subscriptions",
        "TurnoutError": "turnout.errors",
        "diff": "turnout.spark.history.diff",
        "explain": "turnout.engine.explain",
        "matches": "turnout.subjects",
        "open_store": "turnout.subscriptions",
        "parse": "turnout.conditions",
        "replay": "turnout.spark.history.replay",
        "test": "turnout.history.suite.cases",
    },
)
