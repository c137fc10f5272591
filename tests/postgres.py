"""A real PostgreSQL server of the machine's own binaries, on a free loopback port, for as long as tests need it.

PostgreSQL refuses to run as root: then it runs as the user that Debian's package makes for it, or as nobody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from turnout.embedded import free_port


class NotAvailable(Exception):
    """There is no PostgreSQL on this machine."""


class Postgres:
    """One server with its data in a temporary folder; ``with`` starts and stops it."""

    def __init__(self) -> None:
        self._binaries = _binaries()
        self._user = _user()
        self._folder = Path(tempfile.mkdtemp(prefix="turnout-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """Address of its one database."""
        return f"postgresql://turnout@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        try:
            if self._user is not None:
                shutil.chown(self._folder, self._user)
            arguments = ["-D", "data", "-U", "turnout", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
            subprocess.run(
                [self._binaries / "initdb", *arguments],
                cwd=self._folder, user=self._user, check=True, capture_output=True,
            )  # fmt: skip
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = ["-D", "data", "-p", f"{self.port}", "-h", "127.0.0.1", "-k", str(self._folder), "-F"]
        options += ["-c", "shared_buffers=32MB"]
        self._process = subprocess.Popen(
            [self._binaries / "postgres", *options],
            cwd=self._folder, user=self._user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        asked = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", f"{self.port}"]
        deadline = time.monotonic() + 30
        while subprocess.run(asked, check=False).returncode:
            assert self._process.poll() is None, "PostgreSQL did not start"
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server at once; what was committed stays."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
            self._process = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have the server away during the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Have the server stand still during the block: it keeps its connections, and answers nothing."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii")
        processes = [self._process.pid, *map(int, children.split())]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in reversed(processes):
                os.kill(process, signal.SIGCONT)


def _binaries() -> Path:
    """Return the folder of the newest version of Debian's packages, or of the program on the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("pg_isready")
    if found:
        return found[-1].parent
    if on_path is None:
        raise NotAvailable("there is no PostgreSQL: apt-get install postgresql, or its programs on the PATH")
    return Path(on_path).resolve().parent


def _user() -> str | None:
    """Return the user to run it as; None for this one."""
    if os.geteuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
