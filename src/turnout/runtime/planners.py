"""The process from which a server's planners of streams are forked.

Spark starts a Python process for each streaming query, which plans its micro-batches. It imports for half a second, and
has a copy of all that in its memory. Those of a server are forked from one that has imported everything, and share it.

`PLANNERS` names the socket of that process. `turnout.spark.session.build.worker_python` has Spark start this file
instead of a planner, which asks that process for one, and imports nothing but the standard library. Where no process
answers, it becomes an ordinary planner itself.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen

PLANNERS = "TURNOUT_PLANNERS"
"""The environment variable with the path of the socket."""

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark runs as a planner."""

_IMPORTS = (MODULE, "turnout.spark.formats.nats.source", "turnout.spark.formats.kafka.source")
_LENGTH = struct.Struct(">I")
_SECONDS = 5.0
"""Longest wait for the rest of a request: others wait for it."""

_started: dict[str, Popen[bytes]] = {}
"""The process by its socket, once it is started."""


def start_planners() -> None:
    """Start the process, once for this one and until its end, and have JVMs that are started later know of it."""
    import atexit
    import subprocess

    from turnout.base.files import lasting_folder

    if not _started:
        path = str(lasting_folder("planners") / "socket")
        # Its input ends with this process, whatever ends it.
        process = subprocess.Popen([sys.executable, "-m", __name__, path], stdin=subprocess.PIPE)
        _started[path] = process
        atexit.register(_end, os.getpid(), process)
    (os.environ[PLANNERS],) = _started


def _end(owner: int, process: Popen[bytes]) -> None:
    # A process that was forked ends before its parent does.
    if os.getpid() == owner:
        process.kill()
        process.communicate()


def ask(path: str, arguments: list[str]) -> None:
    """Have a process forked that does what Python does with these arguments, and wait for its end.

    It has the environment and the streams of this one, and ends with it.

    Raises:
        OSError: no process answers.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = json.dumps([arguments, dict(os.environ)]).encode()
        socket.send_fds(connection, [_LENGTH.pack(len(request))], [0, 1, 2])
        connection.sendall(request)
        connection.recv(1)


def serve(path: str) -> tuple[socket.socket, list[str]] | None:
    """Fork a process for each request, until the standard input ends.

    Returns:
        In a forked process its connection and its arguments; None in this one.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(128)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            ready = _ready(listener)
            if sys.stdin.fileno() in ready:
                return None
            connection = listener.accept()[0]
            # A request that breaks off is that of a process which has ended.
            with connection, suppress(OSError, ValueError, IndexError, struct.error):
                connection.settimeout(_SECONDS)
                arguments, environment, streams = _request(connection)
                if os.fork() == 0:
                    os.environ.clear()
                    os.environ.update(environment)
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                    _close(streams)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return connection.dup(), arguments
                _close(streams)


def _ready(listener: socket.socket) -> list[int]:
    import select

    own = sys.stdin.fileno()
    found = select.select([own, listener], [], [])[0]
    return [own] if own in found else [listener.fileno()]


def _request(connection: socket.socket) -> tuple[list[str], dict[str, str], list[int]]:
    header, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
    try:
        (left,) = _LENGTH.unpack(header)
        request = b""
        while left > len(request) and (more := connection.recv(left - len(request))):
            request += more
        arguments, environment = json.loads(request)
        os.fstat(streams[2])
    except Exception:
        _close(streams)
        raise
    return arguments, environment, streams


def _close(streams: list[int]) -> None:
    for stream in streams:
        os.close(stream)


def _end_with(connection: socket.socket) -> None:
    """End this process when the other side of a connection ends."""
    import fcntl

    signal.signal(signal.SIGIO, lambda *_: os._exit(1))
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    connection.settimeout(0)
    with suppress(BlockingIOError):
        # It may have ended before.
        if not connection.recv(1):
            os._exit(1)


def _main(path: str) -> None:
    import importlib
    import runpy

    # A terminal and a service manager signal all processes, and the server finishes its work with its planners.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for name in _IMPORTS:
        # What is missing is left to the planner that needs it, where the error belongs.
        with suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    forked = serve(path)
    if forked is not None:
        connection, (_, module, *rest) = forked
        _end_with(connection)
        sys.path += [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part not in sys.path]
        sys.modules.pop(module, None)
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if (socket_path := os.environ.get(PLANNERS)) and sys.argv[1] == "-m":
        try:
            ask(socket_path, sys.argv[1:])
        except OSError:
            os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - Python, without a shell
    else:
        _main(sys.argv[1])
