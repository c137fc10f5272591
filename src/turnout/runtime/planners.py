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
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnout.base.background import Background

PLANNERS = "TURNOUT_PLANNERS"
"""The environment variable with the path of the socket."""

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark runs as a planner."""

_IMPORTS = (MODULE, "turnout.spark.formats.nats.source", "turnout.spark.formats.kafka.source")
_LENGTH = struct.Struct(">I")

_backgrounds: dict[str, Background] = {}
"""The thread that keeps the process running, by the socket."""


def start_planners() -> None:
    """Start the process, once for this one and until its end, and have JVMs that are started later know of it.

    If it ends before, that is logged, and it is started again.
    """
    import atexit
    import logging
    import subprocess
    from pathlib import Path

    from turnout.base.background import Background
    from turnout.base.files import lasting_folder

    if not _backgrounds:
        path = str(lasting_folder("planners") / "socket")
        # Where output goes is changed for the moment of this call only. A stream is None if there was none.
        streams = (sys.__stdout__, sys.__stderr__)
        output, errors = (None if stream is None else os.dup(stream.fileno()) for stream in streams)
        processes: list[subprocess.Popen[bytes]] = []

        def run() -> None:
            Path(path).unlink(missing_ok=True)
            # Its input ends with this process, whatever ends it.
            command = [sys.executable, "-m", __name__, path]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=errors) as process:
                processes[:] = [process]
                code = process.wait()
            if not background.stopped.is_set():
                logging.getLogger(__name__).warning("the process of planners ended (%s), and starts again", code)

        background = _backgrounds[path] = Background("process of planners", run, every=3.0).start()

        def end(owner: int) -> None:
            # A process that was forked ends before its parent does.
            if os.getpid() == owner:
                background.stop()
                for process in processes:
                    process.kill()
                background.join()

        atexit.register(end, os.getpid())
    (os.environ[PLANNERS],) = _backgrounds


def ask(path: str, arguments: list[str]) -> None:
    """Have a process forked that does what Python does with these arguments, and wait for its end.

    It has the environment and the streams of this one, and ends with it.

    Raises:
        OSError: no process is forked.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = json.dumps([arguments, dict(os.environ)]).encode()
        socket.send_fds(connection, [_LENGTH.pack(len(request))], [0, 1, 2])
        connection.sendall(request)
        if not connection.recv(1):
            raise ConnectionError("the request was not taken")
        connection.recv(1)


def serve(path: str) -> socket.socket | None:
    """Fork a process for each connection, until the standard input ends.

    Returns:
        In a forked process its connection; None in this one.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(128)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
            connection = listener.accept()[0]
            # Who asks finds the connection closed, and starts Python itself.
            with suppress(OSError):
                if os.fork() == 0:
                    return connection
            connection.close()
    return None


def _become(connection: socket.socket) -> list[str]:
    """Take the environment and the streams of who asks; return the arguments."""
    header, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
    (left,) = _LENGTH.unpack(header)
    request = b""
    while left > len(request) and (more := connection.recv(left - len(request))):
        request += more
    arguments, environment = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    for number in range(3):
        os.dup2(streams[number], number)
        os.close(streams[number])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.sendall(b"1")
    _end_with(connection)
    return list(arguments)


def _end_with(connection: socket.socket) -> None:
    """End this process when the other side of a connection ends."""
    import fcntl

    signal.signal(signal.SIGIO, lambda *_: os._exit(1))
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    with suppress(BlockingIOError):
        # It may have ended before.
        if not connection.recv(1, socket.MSG_DONTWAIT):
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
    connection = serve(path)
    if connection is not None:
        _, module, *rest = _become(connection)
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
