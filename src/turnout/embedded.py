"""Real servers for the demo, the tests and the benchmarks, started on free loopback ports."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Self

from turnout.base.files import append_privately, lasting_folder, private_file, private_folder, remove
from turnout.errors import ConnectionLostError, TurnoutError

__all__ = ["NatsServer", "find_nats_server"]

_PR_SET_PDEATHSIG = 1


def start_server(command: Sequence[str | Path], log: BinaryIO) -> subprocess.Popen[bytes]:
    """Start a server, with its output in *log*.

    Ctrl-C at the terminal reaches the program only, which then stops the server. If the program is killed, Linux ends
    the server; other systems leave it.
    """
    return subprocess.Popen(
        command,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def _die_with_parent() -> None:
    """Make Linux send SIGTERM to the child when the thread that started it ends, also by kill -9."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
_PORTS = range(15_000, 32_000)
_TRIES = 100


def free_port() -> int:
    """Return a loopback TCP port that was free a moment ago.

    It is below the ports of outgoing connections, so that none of them takes it while a server restarts.
    """
    for _ in range(_TRIES):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise TurnoutError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")


def _version(binary: Path) -> tuple[int, ...]:
    """Return the version that ``nats-server --version`` prints, (0,) if it does not run."""
    try:
        process = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return (0,)
    version = _VERSION.search(process.stdout)
    return tuple(int(part) for part in version.groups()) if version else (0,)


def find_nats_server() -> Path:
    """Return the nats-server to use: the one beside this Python (its wheel), or one on PATH if that is newer.

    Raises:
        TurnoutError: when there is none; the message names the cure.
    """
    # Not resolved: a venv's python is a link into the base installation, the wheel's script is beside the link.
    neighbour = Path(sys.executable).parent / "nats-server"
    on_path = shutil.which("nats-server")
    candidates = {path for path in (neighbour, Path(on_path) if on_path else None) if path and path.exists()}
    versions = {path: _version(path) for path in candidates}
    usable = [path for path, version in versions.items() if version > (0,)]
    if not usable:
        raise TurnoutError('no nats-server was found: install "turnout[demo]", or put nats-server on PATH')
    return max(usable, key=lambda path: (versions[path], path == neighbour))


class NatsServer:
    """nats-server process with JetStream for the duration of a ``with`` block.

    Args:
        work: folder for its store, log and configuration; a temporary one, removed afterwards, if not given.
        config: text of a configuration file; the listen address and the store folder are arguments.
        arguments: more command-line arguments.
        jetstream: switch JetStream on; leave it to *config* with False.
        port: the client port; a free one if 0.

    Not promised: the port was free when it was chosen, another process may take it before the server does;
    `start` then tries another one.
    """

    def __init__(
        self,
        work: Path | None = None,
        *,
        config: str | None = None,
        arguments: Sequence[str] = (),
        jetstream: bool = True,
        port: int = 0,
    ) -> None:
        self._given_work = work
        self._config = config
        self._arguments = tuple(arguments)
        self._jetstream = jetstream
        self._fixed_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port
        self.work = Path()

    @property
    def url(self) -> str:
        """``nats://127.0.0.1:port``."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.work / "nats-server.log"

    @property
    def pid(self) -> int:
        """The process id of the running server.

        Raises:
            TurnoutError: when it does not run.
        """
        if self._process is None:
            raise TurnoutError("this nats-server is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start the process and wait until it greets a client.

        Raises:
            TurnoutError: when there is no binary, or it refuses its configuration (its last words are given).
        """
        if self._process is not None:
            return self
        if not self.work.name:
            self.work = private_folder(self._given_work) if self._given_work else lasting_folder("nats")
        attempts = 1 if self._fixed_port or self.port else 5
        for attempt in range(attempts):
            port = self.port or free_port()
            if self._launch(port):
                self.port = port
                return self
            if "address already in use" not in self._last_words() or attempt == attempts - 1:
                break
        raise TurnoutError(f"nats-server did not start: {self._last_words()}")

    def _launch(self, port: int) -> bool:
        """Start once on *port*; return False if the server does not become ready."""
        command: list[str | Path] = [find_nats_server(), "-a", "127.0.0.1", "-p", str(port)]
        command += ["-sd", self.work / "store"]
        if self._config is not None:
            path = self.work / "nats-server.conf"
            private_file(path).write_text(self._config, encoding="utf-8")
            command += ["-c", path]
        if self._jetstream:
            command.append("-js")
        command += self._arguments
        with append_privately(self.log) as log:
            self._process = start_server(command, log)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                return False
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), timeout=1) as probe,
            ):
                if probe.recv(5).startswith(b"INFO"):
                    return True
            time.sleep(0.02)
        self.stop()
        return False

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return " | ".join(lines[-4:]) or "it said nothing"

    def stop(self, *, kill: bool = False) -> None:
        """Stop the process and keep its store; with *kill*, as kill -9 would."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            # A server that a test has paused does not see a TERM.
            os.kill(process.pid, signal.SIGCONT)
            os.kill(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=15)

    def restart(self, *, kill: bool = False) -> None:
        """Stop and start again on the same port with the same store.

        Raises:
            ConnectionLostError: it does not recover.
        """
        self.stop(kill=kill)
        try:
            self.start()
        except TurnoutError as failure:
            raise ConnectionLostError(str(failure)) from failure

    def pause(self) -> None:
        """Freeze the process (SIGSTOP), and wait until it is: connections stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        # Its threads run on until the kernel has stopped each of them.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused process continue."""
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._clean()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._clean()

    def _clean(self) -> None:
        if self._given_work is None and self.work.name:
            remove(self.work)
