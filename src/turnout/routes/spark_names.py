"""Names of Spark's properties, as far as it takes to recognize a slip; any other name may be a library's own."""

from __future__ import annotations

from turnout.base.terminal import nearest

_GROUPS = (
    "acls", "app", "archives", "authenticate", "barrier", "blockManager", "broadcast", "checkpoint", "cleaner",
    "connect", "cores", "decommission", "default", "deploy", "diskStore", "driver", "dynamicAllocation", "eventLog",
    "excludeOnFailure", "executor", "extraListeners", "files", "hadoop", "history", "hive", "io", "jars", "kryo",
    "kryoserializer", "kubernetes", "local", "locality", "log", "logConf", "master", "memory", "metrics", "modify",
    "network", "plugins", "port", "pyspark", "python", "rdd", "redaction", "reducer", "remote", "repl", "resources",
    "rpc", "scheduler", "security", "serializer", "shuffle", "speculation", "sql", "ssl", "stage", "standalone",
    "storage", "streaming", "submit", "task", "taskMetrics", "ui", "unsafe", "user", "worker", "yarn",
)  # fmt: skip
_COMMON = (
    "spark.app.name", "spark.default.parallelism", "spark.driver.cores", "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions", "spark.driver.host", "spark.driver.maxResultSize", "spark.driver.memory",
    "spark.driver.memoryOverhead", "spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.minExecutors", "spark.eventLog.dir", "spark.eventLog.enabled", "spark.executor.cores",
    "spark.executor.extraJavaOptions", "spark.executor.instances", "spark.executor.memory",
    "spark.executor.memoryOverhead", "spark.jars", "spark.jars.packages", "spark.jars.repositories", "spark.local.dir",
    "spark.master", "spark.memory.fraction", "spark.network.timeout", "spark.pyspark.python", "spark.serializer",
    "spark.sql.adaptive.enabled", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions",
    "spark.sql.streaming.pollingDelay", "spark.submit.deployMode", "spark.task.cpus", "spark.task.maxFailures",
    "spark.ui.enabled", "spark.ui.port",
)  # fmt: skip


_SHORTEST = 4
"""Letters of a word that can be a slip: of two shorter ones each may be meant."""


def intended_property(name: str) -> str | None:
    """Return the property that *name* misspells by one letter, in full or in its group; None if none.

    Spark ignores unknown names, so that a misspelt setting has no effect.

    >>> [intended_property(f"spark.{name}") for name in ("drivr.memory", "driver.memry", "acme.memory")]
    ['spark.driver.memory', 'spark.driver.memory', None]
    """
    if name in _COMMON:
        return None
    first, *more = name.split(".", 2)
    first = _slip_of(first, ("spark",)) or first
    if first != "spark":
        return None
    if more:
        more[0] = _slip_of(more[0], _GROUPS) or more[0]
    right = ".".join((first, *more))
    right = _slip_of(right, _COMMON) or right
    return None if right == name else right


def _slip_of(word: str, known: tuple[str, ...]) -> str | None:
    """Return the known name that differs by one letter; None for a known or a short word, or where more differs."""
    return None if word in known or len(word) < _SHORTEST else nearest(word, known, cutoff=1.0)
