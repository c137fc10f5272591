"""Messages of a run that failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from turnout.errors import RunError, StreamError
from turnout.spark.running.failure_messages import ending_in_words
from turnout.spark.session.jvm import how_jvm_ended

AGAIN = "run it again: it continues from its checkpoint"


def session(code: str) -> Any:
    """A session whose JVM is a program that is over soon."""
    process = subprocess.Popen([sys.executable, "-c", code])
    return SimpleNamespace(_sc=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))


def message_of(spark: Any, failure: Exception, checkpoint: Path | None = None) -> str:
    with pytest.raises(RunError) as raised, ending_in_words("r", spark, checkpoint):
        raise failure
    return str(raised.value)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import os; os.kill(os.getpid(), 9)", "by SIGKILL"),
        ("raise SystemExit(143)", "by SIGTERM"),
        ("raise SystemExit(3)", "with exit code 3"),
    ],
)
def test_a_jvm_that_has_ended(code: str, ended: str) -> None:
    """The connection breaks first: the process gets a moment to be gone."""
    spark = session(code)

    words = message_of(spark, Py4JNetworkError("Answer from Java side is empty"))

    assert words == f"route r failed: Spark's JVM ended {ended}; {AGAIN}"
    assert how_jvm_ended(spark) == ended


def test_a_session_without_a_jvm_of_ours() -> None:
    """Errors of a Spark Connect session are reported unchanged."""
    assert message_of(SimpleNamespace(), ConnectionResetError("gone")) == "route r failed: gone"


def test_a_full_disk(tmp_path: Path) -> None:
    """Wherever in the chain of causes it is said."""
    failure = RunError("route r failed: it could not be written")
    failure.__cause__ = OSError(28, "No space left on device", "/x")

    assert message_of(SimpleNamespace(), failure, tmp_path) == (
        f"route r failed: a disk is full ([Errno 28] No space left on device: '/x'); make room and {AGAIN}"
    )


def test_a_dead_worker() -> None:
    """In local mode it ends the run."""
    failure = RunError("Job aborted: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)")

    assert message_of(SimpleNamespace(), failure) == (
        f"route r failed: a Python worker died, killed or short of memory; {AGAIN}"
    )


def test_what_has_its_words_already() -> None:
    """Errors of turnout's own, and mistakes of ours, pass."""
    for failure in (StreamError("no responders"), AssertionError("a mistake")):
        with pytest.raises(type(failure)) as raised, ending_in_words("r", SimpleNamespace(), None):  # type: ignore[arg-type]
            raise failure
        assert raised.value is failure
