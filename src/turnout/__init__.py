"""turnout: route messages of NATS JetStream and Kafka, with the data path compiled to Spark."""

from turnout._version import __version__

__all__ = ["__version__"]
