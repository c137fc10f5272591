"""Messages for runs that end by a failure, one sentence each: a dead JVM, a full disk, a refusal."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turnout.errors import RunError, TurnoutError
from turnout.runtime.java import in_one_line, run_error
from turnout.spark.session.jvm import how_jvm_ended

_AGAIN: Final = "run it again: it continues from its checkpoint"
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT", re.IGNORECASE)
_DEAD_WORKER: Final = re.compile(r"Python worker exited unexpectedly")
_HARDLY_ANY: Final = 1 << 20
"""Bytes: with less a disk is taken for the one that is full."""


@contextmanager
def ending_in_words(name: str, spark: SparkSession, checkpoint: Path | None) -> Iterator[None]:
    """Convert a failure in this block to a `RunError` with a clear message, if a remedy exists.

    Args:
        name: name of the route.
        spark: session whose JVM may have ended.
        checkpoint: the folder of the run's progress, if it is on this machine.

    Raises:
        RunError: for failures of Spark and of this machine, unless they are a `TurnoutError` already.
    """
    heading = f"route {name} failed"
    try:
        yield
    except Exception as failure:
        full = _full_disk(failure, checkpoint)
        if full is not None:
            raise RunError(f"{heading}: {full}; make room and {_AGAIN}") from failure
        if _cause_matching(failure, _DEAD_WORKER) is not None:
            raise RunError(f"{heading}: a Python worker died, killed or short of memory; {_AGAIN}") from failure
        if isinstance(failure, TurnoutError):
            raise
        ended = how_jvm_ended(spark, failure)
        if ended is not None:
            raise RunError(f"{heading}: Spark's JVM ended {ended}; {_AGAIN}") from failure
        if isinstance(failure, PySparkException | Py4JError | OSError):
            raise run_error(heading, failure) from failure
        raise


def _full_disk(failure: BaseException, checkpoint: Path | None) -> str | None:
    """Return the full disk, if the failure or one of its causes reports one."""
    cause = _cause_matching(failure, _FULL)
    if cause is None:
        return None
    for folder, kind in ((checkpoint, "the checkpoint"), (Path(tempfile.gettempdir()), "temporary files")):
        with suppress(OSError):
            if folder is not None and shutil.disk_usage(folder).free < _HARDLY_ANY:
                return f"the disk of {kind}, {folder}, is full"
    return f"a disk is full ({in_one_line(cause)})"


def _cause_matching(failure: BaseException | None, pattern: re.Pattern[str]) -> BaseException | None:
    """Return the failure, or the first of its causes, whose message matches the pattern; None if none does."""
    while failure is not None and not pattern.search(str(failure)):
        failure = failure.__cause__
    return failure
