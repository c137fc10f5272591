"""A server in a process of its own, as people start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil


@contextmanager
def serving(files: Path, environment: Mapping[str, str] | None = None) -> Iterator[tuple[psutil.Process, str]]:
    """A server process over the files, and where it is reached."""
    config = files / "turnout.yaml"
    config.write_text("listen: '127.0.0.1:0'\nspark: {master: 'local[2]'}\n", encoding="utf-8")
    command = [sys.executable, "-m", "turnout", "serve", str(files)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    ) as process:
        assert process.stderr is not None
        try:
            lines = iter(process.stderr.readline, "")
            url = next((line.split()[-1] for line in lines if line.startswith("serving on ")), "")
            if not url:
                raise RuntimeError("the server did not start")
            yield psutil.Process(process.pid), url
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
