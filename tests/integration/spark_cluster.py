"""A standalone cluster whose Python lacks turnout, and jobs for it that bring turnout along."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks._cluster import SPARK, StandaloneCluster

import turnout

__all__ = ["SOURCE", "submission", "without_turnout"]

SOURCE = Path(turnout.__file__).parent.parent


def without_turnout(work: Path, workers: int) -> StandaloneCluster:
    """A cluster, in whose processes turnout is not to be found."""
    return StandaloneCluster(work, workers, python=str(_bare_python(work)), environment={"PYTHONPATH": ""})


def submission(cluster: StandaloneCluster, archive: str, script: Path, *arguments: str) -> list[str]:
    """The command that submits a job: *archive* is turnout, for the processes beside the driver."""
    return [
        str(SPARK / "bin" / "spark-submit"), "--master", cluster.url,
        "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=600m",
        "--conf", f"spark.pyspark.python={cluster.environment['PYSPARK_PYTHON']}",
        # Work begins when each worker has its executor, so that all of them have a part in it.
        "--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0",
        "--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=120s",
        # The process that plans a stream runs beside the driver and sees no file that was added to the session.
        "--conf", f"spark.executorEnv.PYTHONPATH={archive}",
        str(script), *arguments,
    ]  # fmt: skip


def _bare_python(work: Path) -> Path:
    """A Python that finds everything that is installed beside this one, but not turnout.

    turnout is installed here by a ``.pth`` file, which Python without ``site`` does not read.
    """
    script = work / "python"
    packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script
