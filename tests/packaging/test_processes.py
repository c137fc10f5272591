"""A process that fails a wait is reported with its output, and is ended with its children."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from tests.packaging.processes import Process

# Starts a process of its own, says which, and goes on.
GOES_ON = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
print("begun", file=sys.stderr, flush=True)
time.sleep(600)
"""


def python(code: str) -> Process:
    return Process([sys.executable, "-c", code], Path.cwd(), os.environ)


def test_one_that_goes_on() -> None:
    """The error has both outputs, and neither it nor its child is left."""
    with python(GOES_ON) as process:
        process.line("begun", 60)
        child = psutil.Process(int(process.stdout.split()[-1]))
        with pytest.raises(AssertionError, match=r"(?s)goes on after 0.1 seconds\nstderr: begun.*stdout: child \d+"):
            process.finish(0.1)

    assert not child.is_running()


def test_a_line_that_is_not_said() -> None:
    """For an ended process the error has its exit code, for another one the waiting time."""
    with (
        python("import sys; sys.exit('no port')") as process,
        pytest.raises(AssertionError, match=r"(?s)ended with 1 and did not say 'serving on '\nstderr: no port"),
    ):
        process.line("serving on ", 60)
    with (
        python(GOES_ON) as process,
        pytest.raises(AssertionError, match=r"has not said 'serving on ' after 0.5 seconds"),
    ):
        process.line("serving on ", 0.5)


def test_its_end() -> None:
    """The output is complete, even if it was not read meanwhile."""
    with python("import sys; print('a' * 1_000_000); print('b', file=sys.stderr); sys.exit(3)") as process:
        done = process.finish(60)

    assert (done.returncode, len(done.stdout), done.stderr) == (3, 1_000_001, "b\n")
