"""Entry point by which Spark finds the format ``nats``, on executors and on a Connect server too.

Spark looks for top-level packages named ``pyspark_*`` and for a `DefaultSource` in them.
"""

from turnout.spark.formats.nats.source import NatsDataSource as DefaultSource

__all__ = ["DefaultSource"]
