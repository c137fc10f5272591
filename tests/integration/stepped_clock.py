"""A wall clock that is set while processes run, for these processes alone: libfaketime stands between them and libc."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_DEBIAN = "/usr/lib/*/faketime/libfaketime.so.1"
_WHEEL = "vendor/libfaketime/src/libfaketime.so.1"
_SHARED_MEMORY = Path("/dev/shm")
_TRY = 7200.0


class SteppedClock:
    """What `time.time` and Java's `currentTimeMillis` say in processes that are started with `environment`.

    Their monotonic clocks, and so their waits and time-outs, go on as if nothing had happened: that is what setting a
    machine's clock does. A process sees a step within a second.

    Args:
        library: libfaketime.
        folder: for the file that says how far the clock is off.
    """

    def __init__(self, library: Path, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # With its fix for older C libraries the JVM's waits return at once.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            # A file keeps the time that it was written at.
            "NO_FAKE_STAT": "1",
        }

    def set(self, seconds: float) -> None:
        """Have the clock be so much ahead of the machine's, or behind it."""
        part = self._file.with_suffix(".part")
        part.write_text(f"{seconds:+.0f}\n", encoding="ascii")
        part.rename(self._file)

    def problem(self) -> str:
        """Why the library does nothing here; "" if it does what it should."""
        self.set(_TRY)
        try:
            done = subprocess.run(
                [sys.executable, "-c", "import time; print(time.time())"],
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            self.set(0)
        if done.returncode == 0 and float(done.stdout) > time.time() + _TRY / 2:
            return ""
        return f"{self.environment['LD_PRELOAD']} has no effect: {done.stderr.strip() or done.stdout.strip()}"


@contextlib.contextmanager
def stepped_clock(folder: Path) -> Iterator[SteppedClock | str]:
    """A clock to be set; the reason where there is none."""
    library = _library()
    if library is None:
        yield "libfaketime is not installed: `pip install libfaketime`, or Debian's package of that name"
        return
    before = set(_segments())
    clock = SteppedClock(library, folder)
    try:
        yield clock.problem() or clock
    finally:
        # Processes that are killed leave theirs.
        for segment in set(_segments()) - before:
            segment.unlink(missing_ok=True)


def _library() -> Path | None:
    """The library of the system, or else the wheel's."""
    installed = sorted(Path("/").glob(_DEBIAN.removeprefix("/")))
    spec = importlib.util.find_spec("libfaketime")
    if spec is not None and spec.origin is not None:
        installed.append(Path(spec.origin).parent / _WHEEL)
    return next((library for library in installed if library.exists()), None)


def _segments() -> Iterator[Path]:
    return _SHARED_MEMORY.glob("*faketime_*")
