"""Settings of a JVM are not on its command line, and arrive unchanged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from turnout.errors import RunError, StreamError, chain_of
from turnout.spark.session.jvm import OUTPUT, JvmOutput, ending_in_words, how_jvm_ended

PROGRAM = """
import json, pathlib, sys
import psutil
from turnout.spark.session.build import build_session

conf = json.loads(sys.argv[1])
spark = build_session("launched", master="local[1]", conf=conf)
lines = [" ".join(one.cmdline()) for one in psutil.Process().children(recursive=True) if one.status() != "zombie"]
settings = dict(spark.sparkContext.getConf().getAll())
heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
library = spark._jvm.java.lang.System.getProperty("theirs")
print(json.dumps({"lines": lines, "seen": {name: settings.get(name) for name in [*conf, "spark.theirs"]},
                  "session": {name: spark.conf.get(name) for name in conf}, "heap": heap, "library": library,
                  "left": [str(path) for path in pathlib.Path(sys.argv[2]).rglob("spark.properties")]}))
spark.stop()
"""
AWKWARD = {
    "spark.driver.memory": "700m",
    "spark.a.password": "s3cr3t with=signs: #!\\ and ümläuts 😀",
    "spark.b.list": "a,b c;'d' \"e\"",
    "spark.ui.enabled": "false",
}


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder with a short name: PySpark makes sockets in its temporary folder, whose paths have a limit."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def test_settings_arrive_and_are_not_seen(scratch: Path, tmp_path: Path) -> None:
    """Values of all characters; those that only a starting JVM takes; and those of the user's own properties file."""
    theirs = tmp_path / "their.conf"
    theirs.write_text("spark.theirs kept\nspark.ui.enabled true\nspark.driver.defaultJavaOptions -Dtheirs=1\n")
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {theirs} pyspark-shell",
    }
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(AWKWARD), str(scratch)]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])

    assert any("SparkSubmit" in line for line in seen["lines"])
    assert [line for line in seen["lines"] if "s3cr3t" in line or "spark.b.list" in line] == []
    assert seen["seen"] == {**AWKWARD, "spark.theirs": "kept"}
    assert seen["session"] == AWKWARD
    assert 600 < seen["heap"] <= 700
    assert seen["library"] == "1"
    assert seen["left"] == []


def test_a_jvm_that_ends_is_told_in_a_sentence(tmp_path: Path) -> None:
    """The JVM's own message precedes it, on the same output."""
    program = """
from turnout.errors import RunError
from turnout.spark.session.build import build_session
try:
    build_session("launched", master="local[1]", conf={"spark.driver.memory": "no-number"})
except RunError as failure:
    print(failure)
"""

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )

    assert done.stdout.startswith("Spark's JVM ended while it started; its own output is above")
    assert len(done.stdout.splitlines()) == 1
    assert "no-number" in done.stderr


def test_the_last_lines_of_a_jvm_are_in_the_sentence(tmp_path: Path) -> None:
    """Where it writes into a log: those since its start, without the places of a trace."""
    log = tmp_path / "spark.log"
    log.write_text("of an earlier run\n")
    output = JvmOutput()
    assert output.last_lines() == ""
    output.goes_to(log)
    assert output.last_lines() == ""
    with log.open("a") as file:
        file.write("first\nsecond\njava.lang.OutOfMemoryError: Java heap\n\tat a.b.C\n\n\t... 3 more\nfourth\n")

    assert output.last_lines() == (
        f"; its last lines in {log}: second | java.lang.OutOfMemoryError: Java heap | fourth"
    )
    log.unlink()
    assert output.last_lines().startswith("; its output cannot be read: ")


NAMELESS = """
import os, sys
from turnout.spark.session.build import build_session

spark = build_session("nameless", master="local[1]")
users = spark._jvm.org.apache.hadoop.security.UserGroupInformation
spark.range(3).write.parquet(sys.argv[1])
print(os.getuid(), users.getCurrentUser().getShortUserName(), spark.sparkContext.sparkUser())
print(spark.read.parquet(sys.argv[1]).count(), spark._jvm.System.getProperty("user.name"))
"""


@pytest.mark.heavy
@pytest.mark.parametrize(("variables", "name"), [({}, "turnout"), ({"HADOOP_USER_NAME": "ann"}, "ann")])
def test_a_user_without_an_entry(scratch: Path, variables: dict[str, str], name: str) -> None:
    """A number that the list of users does not have, as a container's, runs Spark and writes files."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root starts a process of another user: run the test as root, with setpriv")
    # A test's own folder is below one that only its owner may enter, which Java notices.
    scratch.chmod(0o777)
    # It reads what root has, as the interpreter, and may write nothing of it.
    rights = ["--clear-groups", "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    command = ["setpriv", "--reuid", "20042", "--regid", "0", *rights, sys.executable, "-c", NAMELESS]
    kept = {key: value for key, value in os.environ.items() if key not in ("LOGNAME", "USER", "HOME", "XDG_CACHE_HOME")}
    environment = {**kept, "HOME": "/", "TMPDIR": str(scratch), "XDG_CACHE_HOME": str(scratch), **variables}

    done = subprocess.run(
        [*command, str(scratch / "out")], cwd=scratch, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"20042 {name} {name}", f"3 {name}"]


OUTLIVED = """
import subprocess, sys, time
from pathlib import Path
from turnout.spark.session.build import _children_write_to

log = Path(sys.argv[1])
child = "import sys; print('a line', flush=True); print('an error', file=sys.stderr, flush=True); sys.stdin.read()"
with _children_write_to(log):
    subprocess.Popen([sys.executable, "-c", child])
print("said by the process")
while len(log.read_text().splitlines()) < 2:
    time.sleep(0.01)
"""


def test_a_jvm_that_lives_longer_holds_no_output(tmp_path: Path) -> None:
    """What reads the output of a run does not wait for the JVM, which writes into the log alone."""
    reading, writing = os.pipe()
    log = tmp_path / "spark.log"
    try:
        # The child ends with this pipe: a descriptor that it had inherited would be open, and the timeout pass.
        done = subprocess.run(
            [sys.executable, "-c", OUTLIVED, str(log)],
            stdin=reading,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        os.close(reading)
        os.close(writing)

    assert (done.stdout, done.stderr) == ("said by the process\n", "")
    assert sorted(log.read_text().splitlines()) == ["a line", "an error"]


INTERRUPTED = """
import signal, time
import psutil
from turnout.spark.session.jvm import launch_jvm

signal.signal(signal.SIGINT, signal.default_int_handler)
# PySpark sleeps until the JVM says where it can be reached.
time.sleep = lambda seconds: signal.raise_signal(signal.SIGINT)
try:
    launch_jvm({})
except KeyboardInterrupt:
    print("interrupted,", len(psutil.Process().children(recursive=True)), "left")
"""


def test_an_interrupted_start_leaves_no_jvm() -> None:
    """One that nobody reaches any more would run for ever, as it ignores SIGTERM too."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "interrupted, 0 left", done.stderr


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
def test_a_jvm_that_has_ended(monkeypatch: pytest.MonkeyPatch, code: str, ended: str) -> None:
    """The connection breaks first: the process gets a moment to be gone."""
    # Of the JVM that another test has started in this process.
    monkeypatch.setattr(OUTPUT, "log", None)
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


def test_errors_that_cause_each_other_have_an_end() -> None:
    """Each is looked at once, and none has the message that is looked for."""
    one, other = RunError("one"), RunError("other")
    one.__cause__, other.__cause__ = other, one

    assert list(chain_of(one)) == [one, other]
    with pytest.raises(RunError) as raised, ending_in_words("r", SimpleNamespace(), None):  # type: ignore[arg-type]
        raise one
    assert raised.value is one
