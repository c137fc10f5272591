"""A query that copies the stream IN to OUT until the end of IN; as a program it is a driver that can be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from turnout.spark.formats.nats.source import register
from turnout.spark.session.build import build_session, low_latency_session


def copy_stream(
    spark: SparkSession, servers: str, checkpoint: str | Path, per_trigger: int, partitions: int = 2
) -> StreamingQuery:
    """Start it; every message gets a subject of its own, so that one that occurs twice shows."""
    register(spark)
    loaded = (
        spark.readStream.format("nats")
        .options(servers=servers, stream="IN", includeStream="true", partitions=str(partitions))
        .option("maxRecordsPerTrigger", str(per_trigger))
        .load()
    )
    renamed = loaded.withColumn("topic", F.concat(F.lit("out."), F.col("offset"))).drop("key")
    writer = renamed.writeStream.format("nats").options(servers=servers, stream="OUT")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


if __name__ == "__main__":
    session = build_session("faults", master="local[2]", conf=low_latency_session())
    copy_stream(session, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])).awaitTermination()
    session.stop()
