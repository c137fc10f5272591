"""The one place that builds, or borrows, a SparkSession."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from turnout.spark.java import use_java

__all__ = ["build_session"]

_QUIET_LOGS = Path(__file__).with_name("log4j2.properties")

_DEFAULTS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # 40 ms per micro-batch on loopback TCP vanish with it (measured).
    "spark.python.unix.domain.socket.enabled": "true",
    # A route has as many tasks as its source gave it; the default of 200 is for shuffles far larger than ours.
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def build_session(
    name: str = "turnout", *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A SparkSession fit for routes; the running one, if this process has one already.

    Args:
        name: what Spark shows for the application.
        master: ``local[N]``, ``spark://…`` and so on. A running session keeps its own.
        conf: more Spark properties; they win over ours.

    Raises:
        TurnoutError: when no Java is new enough.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # pandas 3 makes PySpark warn once per worker; nothing of ours uses pandas.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    builder = SparkSession.builder.appName(name).master(master)
    settings = {**_DEFAULTS, **(conf or {})}
    if not master.startswith("local"):
        for local_only in ("spark.driver.host", "spark.driver.bindAddress"):
            if local_only not in (conf or {}) and "127.0.0.1" not in master and "localhost" not in master:
                settings.pop(local_only)
    settings.setdefault("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{_QUIET_LOGS}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
