"""turnout: route messages of NATS JetStream and Kafka, with the data path compiled to Spark."""

from turnout._version import __version__
from turnout.errors import TurnoutError
from turnout.routes import Route
from turnout.subjects import MappingTable, SubjectTransform, matches

__all__ = ["MappingTable", "Route", "SubjectTransform", "TurnoutError", "__version__", "matches"]
