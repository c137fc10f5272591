"""Traces of a route that others on its machine can see: listening sockets, files and their modes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests.integration.routes import Streams, command, wait_for, write_route

from turnout.conditions import kiwi
from turnout.subscriptions import Subscription, open_store

ROUTE = """
name: seen
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
subscriptions: {{store: "sqlite:///{store}"}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
trigger: {{processingTime: 100 milliseconds}}
spark: {{spark.ui.enabled: "true"}}
"""

LOOPBACK = {"127.0.0.1", "::1"}


def family(process: psutil.Popen) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def listening(processes: list[psutil.Process]) -> dict[str, list[tuple[str, int]]]:
    """The addresses that processes listen on, of IPv4 and IPv6, by the programs' names."""
    sockets: dict[str, list[tuple[str, int]]] = {}
    for process in processes:
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                sockets.setdefault(process.name(), []).append(
                    (connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port)
                )
    return sockets


def readable(folder: Path) -> list[str]:
    """Return the files and folders in *folder* that other users can reach and read, with their modes."""
    addresses = []
    for path in folder.iterdir():
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_dir() and not path.is_symlink():
            if mode & 0o077:
                addresses += readable(path)
        # To connect to a socket one has to be allowed to write to it.
        elif mode & (0o022 if path.is_socket() else 0o077):
            addresses.append(f"{oct(mode)} {path}")
    return addresses


@contextmanager
def running(folder: Path, route: Path) -> Iterator[psutil.Popen]:
    """A run of the route, killed with all of its processes at the end of the block."""
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    process = psutil.Popen(
        command("run", str(route)), env=environment, cwd=folder, umask=0o022, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        for one in family(process):
            # The JVM's workers may go with it before it is their turn.
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(30)


@pytest.mark.heavy
def test_footprint(streams: Streams, tmp_path: Path) -> None:
    """A running route listens on loopback only; others can read nothing that it has made; and when it is killed with
    its JVM, the next run removes its temporary folders."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(0o755)
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        store.create(Subscription([streams.out("wanted")], kiwi("topic", f"in-{streams.name}.*")))
    os.umask(before)
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "store": f"{tmp_path}/s.db"}
    route = write_route(tmp_path, ROUTE.format(**names))
    route.chmod(0o600)
    streams.publish([("a", json.dumps({"n": 1}).encode(), [])])
    with running(tmp_path, route) as process:
        wait_for(lambda: process.poll() is not None or streams.stored(streams.sink) == 1)
        assert process.poll() is None
        processes = family(process)
        sockets = listening(processes)
        files = readable(tmp_path)
        owned = sorted(temporary.glob("turnout-*"))

    assert {"java", "python"} & set(sockets)
    assert {address for socket in sockets.values() for address, _ in socket} <= LOOPBACK
    assert files == []
    assert (tmp_path / ".turnout" / "seen" / "checkpoint" / "offsets" / "0").exists()
    assert (tmp_path / ".turnout" / "seen" / "spark.log").exists()
    assert [path.name.rsplit("-", 1)[0] for path in owned] == ["turnout-run", "turnout-spark"]
    assert all(path.is_dir() for path in owned)

    wait_for(
        lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    )
    with running(tmp_path, route) as process:
        wait_for(lambda: process.poll() is not None or not any(path.exists() for path in owned))
        assert process.poll() is None
