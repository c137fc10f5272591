"""turnout: route messages of NATS JetStream and Kafka, on Spark and without it.

The names are loaded when they are first used: Spark's workers import this package in every process, and need few of
them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnout._built import version as __version__

if TYPE_CHECKING:
    from turnout.errors import TurnoutError
    from turnout.routes import Route
    from turnout.subjects import MappingTable, SubjectTransform, matches

__all__ = ["MappingTable", "Route", "SubjectTransform", "TurnoutError", "__version__", "matches"]

_HOMES = {
    "MappingTable": "turnout.subjects",
    "Route": "turnout.routes",
    "SubjectTransform": "turnout.subjects",
    "TurnoutError": "turnout.errors",
    "matches": "turnout.subjects",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'turnout' has no attribute {name!r}")
