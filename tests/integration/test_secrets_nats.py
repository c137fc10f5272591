"""A run on real parts leaves no secret behind: in no file that Spark or turnout writes, and in no process list."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.routes import command, write_route

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, create_stream, stream_info

MARK = b"s3cr3t"
GUARDED = 'authorization { users: [ {user: ann, password: "s3cr3t-right"} ] }'
ROUTE = """
name: marked
source: {{format: nats, servers: "{with_login}", stream: IN}}
sinks:
  a: {{format: nats, servers: "{url}", user: ann, password: s3cr3t-right, stream: OUT}}
{more}
mappings: {{"in.*": "out.{{{{wildcard(1)}}}}"}}
spark:
  spark.log.level: INFO
  spark.eventLog.enabled: "true"
  spark.eventLog.dir: "file:{folder}/events"
  spark.eventLog.compress: "false"
  spark.local.dir: "{folder}/local"
  spark.sql.ui.explainMode: extended
  spark.hadoop.fs.s3a.secret.key: "s3cr3t=spark key"
  spark.hadoop.javax.jdo.option.ConnectionPassword: s3cr3t-spark
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[NatsServer]:
    """A server that lets one user in, with a stream to read and one to write."""
    with NatsServer(config=GUARDED) as server:
        with Connection.open(server.url, credentials=ann()) as connection:
            create_stream(connection, {"name": "IN", "subjects": ["in.*"]})
            create_stream(connection, {"name": "OUT", "subjects": ["out.*"]})
            for n in range(20):
                connection.request("in.a", b'{"n": %d}' % n)
        yield server


def ann() -> object:
    from turnout.nats.protocol import Credentials

    return Credentials(user="ann", password="s3cr3t-right")


def run_and_watch(arguments: list[str], folder: Path) -> tuple[int, list[str]]:
    """The exit code, and the command lines of all processes that were seen while it ran."""
    temp = folder / "temp"
    for name in ("temp", "events", "local"):
        (folder / name).mkdir()
    places: set[str] = set()
    with (folder / "printed").open("wb") as printed:
        environment = {**os.environ, "TMPDIR": str(temp), "SPARK_LOCAL_DIRS": str(folder / "local")}
        environment["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={temp}"
        process = subprocess.Popen(arguments, stdout=printed, stderr=printed, env=environment, cwd=folder)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                places |= set(map(command_line, (watched, *watched.children(recursive=True))))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
    return process.returncode, sorted(places - {""})


def command_line(process: psutil.Process) -> str:
    """The command line of a process; "" of one that is gone, which must not hide those of the others."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a short name: Spark makes sockets in its temporary folder, whose paths have a limit."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def content(file: Path) -> bytes:
    """The bytes of a file; none of a temporary one that a process has just removed."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize("sinks", [pytest.param("one", marks=pytest.mark.heavy), "two"])
def test_a_run_leaves_no_secret(guarded: NatsServer, short_path: Path, sinks: str) -> None:
    """Logs, events, checkpoint, temporary files, the output and the command lines of a run hold no password.

    With one sink the workers publish; with two Spark writes, through the options of its formats.
    """
    more = f'  b: {{format: json, path: "{short_path}/files"}}' if sinks == "two" else ""
    with_login = guarded.url.replace("//", "//ann:s3cr3t-right@")
    path = write_route(short_path, ROUTE.format(url=guarded.url, with_login=with_login, folder=short_path, more=more))
    log = short_path / "logs" / "spark.log"
    options = ["--once", "--json", "--master", "local[2]", "--checkpoint", f"{short_path}/checkpoint"]
    code, commands = run_and_watch(command("run", str(path), *options, "--spark-log", str(log)), short_path)
    files = [file for file in short_path.rglob("*") if file.is_file() and file != path]
    printed = (short_path / "printed").read_text(encoding="utf-8")

    assert code == 0, printed
    with Connection.open(guarded.url, credentials=ann()) as connection:
        assert stream_info(connection, "OUT")["state"]["messages"] > 0
    assert list((short_path / "events").iterdir())
    assert list((short_path / "checkpoint").rglob("offsets/*"))
    assert len(commands) > 1
    assert [str(file.relative_to(short_path)) for file in files if MARK in content(file)] == []
    assert [line for line in commands if MARK.decode() in line] == []
