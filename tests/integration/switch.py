"""``turnout run`` in a process of its own, with the handles by which tests disturb it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from tests.integration.routes import command


class Switch:
    """The process, its JVM and its Python workers. What it prints lies in ``switch.log``, of all its starts.

    Args:
        folder: for the checkpoint.
        route: the route's file.
        arguments: more of the command line.
        log: the folder of the log, if it is another.
        env: more of the environment.
    """

    def __init__(
        self,
        folder: Path,
        route: Path,
        *arguments: str,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._env = {**os.environ, **(env or {})}
        self.log = (log or folder) / "switch.log"
        self.checkpoint = folder / "checkpoint"
        self._command = command("run", str(route), "--master", "local[2]", "--checkpoint", str(self.checkpoint))
        self._command += arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._began_at = 0

    def start(self, *arguments: str) -> Self:
        self._began_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._env,
                start_new_session=True,
            )
        return self

    @property
    def process(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def jvm(self) -> psutil.Process | None:
        """Its JVM, once there is one."""
        return next((process for process in self._family() if _name(process) == "java"), None)

    def workers(self) -> list[psutil.Process]:
        """The workers that are forked from the daemon."""
        return [process for process in self._family() if _is_daemon(process) and _is_daemon(_parent(process))]

    def helpers(self) -> list[psutil.Process]:
        """All Python processes that the JVM has started."""
        return [process for process in self._family() if _name(process).startswith("python")]

    def all(self) -> list[psutil.Process]:
        """The process and all that it has started."""
        return [self.process, *self._family()]

    def signal_group(self, number: int) -> None:
        """Signal the process group, as a terminal or a supervisor does."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def kill(self) -> None:
        """kill -9 of the process, its JVM and its workers, and return when they are gone."""
        assert self._process is not None
        family = self._family()
        for one in (self.process, *family) if self.runs() else family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, 30)
        self._process.wait(30)

    def said(self) -> str:
        """Return the output since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._began_at)
            return log.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.runs():
            self.kill()

    def _family(self) -> list[psutil.Process]:
        if not self.runs():
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.process.children(recursive=True)
        return []


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""


def _parent(process: psutil.Process) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return process.parent()
    return None


def _is_daemon(process: psutil.Process | None) -> bool:
    """Whether it is the daemon or one of the workers that it forks; one that is just ending is neither."""
    with contextlib.suppress(psutil.Error):
        return process is not None and "turnout.spark.session.daemon" in " ".join(process.cmdline())
    return False


@contextlib.contextmanager
def running(folder: Path, route: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Switch]:
    """A switch that is started, and killed in the end if it still runs."""
    with Switch(folder, route, *arguments, env=env) as switch:
        yield switch.start()
