"""Settings for short micro-batches, and their costs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from turnout.routes import Route
from turnout.spark.endpoints import reads_splits, stays_open

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(, *\d+)?\])?")

_POLL_WAIT_CONF: Final = {"pollWait": "1"}


def low_latency_session() -> dict[str, str]:
    """Spark properties that halve the time of a micro-batch, for the session (``trigger: {latency: low}``).

    The checkpoint is written through Hadoop's FileSystem, whose rename is atomic on a local disk and on HDFS, and not
    on an object store: keep Spark's own choice there. It holds through a kill -9 at any point (tested). Neither
    choice syncs its files: after a power cut a route removes the damaged ones.
    """
    return {
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        # Hadoop starts the program chmod for each file that it creates on a local disk. With this file system, which
        # writes no .crc files, it does so twice in a micro-batch and not four times: 12 ms less (measured).
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        # 40 ms per micro-batch on loopback TCP vanish with it.
        "spark.python.unix.domain.socket.enabled": "true",
    }


def low_latency_source() -> dict[str, str]:
    """Options of the NATS source: wait for the next message at the server, and let one task read it.

    A route with ``trigger: {latency: low}`` has them by itself; its source's own settings have precedence.
    """
    return {**_POLL_WAIT_CONF, "partitions": "1"}


def waiting_source() -> dict[str, str]:
    """Options of the NATS source: wait for the next message at the server.

    A route whose micro-batches start as soon as there are records has them by itself.
    """
    return dict(_POLL_WAIT_CONF)


def with_open_slots(master: str, routes: Iterable[Route]) -> str:
    """Return a local master with enough task slots for the routes' open splits and one more; other masters unchanged.

    An open split has a slot to itself and sleeps most of the time, so that there may be more slots than cores.

    >>> with_open_slots("local[1]", []), with_open_slots("spark://host:7077", [])
    ('local[1]', 'spark://host:7077')
    """
    found = _LOCAL.fullmatch(master)
    needed = sum(map(stays_open, routes))
    if found is None or not needed:
        return master
    slots = _cores() if found[1] == "*" else int(found[1] or 1)
    return master if slots > needed else f"local[{slots + needed}{found[2] or ''}]"


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def asking_less(route: Route) -> dict[str, str]:
    """Return session properties that reduce idle polling of a source that cannot wait for the next record.

    Spark lists a folder a hundred times a second for as long as there is nothing new. It does so at
    once after a micro-batch that had records, so that nothing changes where there is always something to read; what
    reaches an idle route is seen 0.05 s later on average. Not with ``trigger: {latency: low}``, and not with
    ``processingTime``, which polls once in that time anyway.
    """
    if reads_splits(route.source) or route.trigger.latency == "low" or route.trigger.processing_time is not None:
        return {}
    return {"spark.sql.streaming.pollingDelay": "100ms"}
