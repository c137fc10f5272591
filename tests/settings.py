"""Settings of the shared session for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def settings(spark: SparkSession, settings_by_name: Mapping[str, str]) -> Iterator[None]:
    """The session with other settings, which are as before in the end."""
    before = {name: spark.conf.get(name, None) for name in settings_by_name}
    for name, value in settings_by_name.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def interpreted(spark: SparkSession) -> AbstractContextManager[None]:
    """Evaluate expressions as they stand: for hundreds of them on a few rows, compiling is what takes time."""
    return settings(spark, _INTERPRETED)


def low_latency(spark: SparkSession) -> AbstractContextManager[None]:
    """Low-latency settings that can be set in an existing session: all except the sockets."""
    from turnout.spark.session.build import low_latency_session

    settings_by_name = {name.removeprefix("spark.hadoop."): value for name, value in low_latency_session().items()}
    # Hadoop would go on with the file system that it knows.
    settings_by_name["fs.file.impl.disable.cache"] = "true"
    return settings(
        spark, {name: value for name, value in settings_by_name.items() if name.startswith(("spark.sql.", "fs."))}
    )
