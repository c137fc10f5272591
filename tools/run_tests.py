"""Run the whole suite in several processes, and what failed once more, alone.

``python -m tools.run_tests``; with ``--every`` the heavy tests too; with ``--strict`` a test that needs a second try is
a failure. Other arguments go to one ordinary run of pytest instead.

While they are collected, the user's cache gets what they would wait for or make several times: compiled loops, the
archive of Spark's classes, which halves the start of each JVM, and the server that tests of MongoDB talk to. Many tests
wait for servers, so there are more processes than cores. Tests that pass only at the second try are printed and counted
at the end, and fail ``--strict`` unless `UNSTABLE` names them with a reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from turnout.errors import TurnoutError

UNSTABLE: dict[str, str] = {}
"""Node id of a test that may need a second try → the reason."""

_PROCESSES = 8
_EVERY = "not soak and not packaging"
_USUAL = f"{_EVERY} and not heavy"
_PYTEST = [sys.executable, "-m", "pytest"]
_WARM_UP = Path(__file__).parents[1] / "deploy" / "image" / "warm_up.py"
_WRITES_ARCHIVE = "-XX:ArchiveClassesAtExit"
_SOME_FAILED = 1  # pytest's exit code; any other code but 0 means that tests could not be run


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a selection of tests.

    Attributes:
        marks: expression of marks that selects its tests.
        cache: pytest's cache folder, which remembers the failed tests.
    """

    marks: str
    cache: Path

    def run_all(self) -> int:
        """Run the tests in several processes, a module in one of them, and return pytest's exit code."""
        with _filled_caches() as ready:
            parallel = ["-p", "tools.forked_tests", "--processes", str(_PROCESSES), "--after", str(ready)]
            command = [*_PYTEST, "-m", self.marks, *parallel, "--durations", "60", *self._cache_option]
            return subprocess.run(command, check=False, pass_fds=[ready]).returncode

    def run_failed(self) -> int:
        """Run the failed tests again, one after the other, and return pytest's exit code."""
        return subprocess.run([*_PYTEST, "--last-failed", *self._cache_option], check=False).returncode

    def failed(self) -> set[str]:
        """Return the node ids of the tests that failed last."""
        file = self.cache / "v" / "cache" / "lastfailed"
        return set(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else set()

    @property
    def _cache_option(self) -> list[str]:
        return ["-o", f"cache_dir={self.cache}"]


def main(arguments: list[str]) -> int:
    """Run pytest and return its exit code, or that of the second try."""
    every, strict = "--every" in arguments, "--strict" in arguments
    if set(arguments) - {"--every", "--strict"}:
        return subprocess.run([*_PYTEST, "-m", _EVERY, *arguments], check=False).returncode
    with tempfile.TemporaryDirectory(prefix="turnout-tests-") as folder:
        run = Run(_EVERY if every else _USUAL, Path(folder))
        os.environ.setdefault("TURNOUT_HYPOTHESIS", "check" if every else "test")
        code = run.run_all()
        before = run.failed() if code == _SOME_FAILED else set()
        if before:
            print("\nsome tests failed beside the others (above); they run once more, alone", flush=True)
            code = run.run_failed()
        return max(code, _report(before - run.failed(), strict=strict))


@contextmanager
def _filled_caches() -> Iterator[int]:
    """Fill what this user's cache lacks; the result is a pipe that ends when the tests may begin.

    A failure is no reason to stop: each process then compiles, or loads classes, itself. Tests of MongoDB wait for
    their server themselves.
    """
    from turnout.loops.compiled import cache_is_filled
    from turnout.runtime.java import find_java
    from turnout.spark.session.build import archive_options

    commands = [] if cache_is_filled() else [["-m", "turnout", "warm-up"]]
    with suppress(TurnoutError):
        if any(option.startswith(_WRITES_ARCHIVE) for option in archive_options(find_java())):
            commands.append([str(_WARM_UP)])
    ready, filling = os.pipe()
    processes = [subprocess.Popen([sys.executable, *command], pass_fds=[filling]) for command in commands]
    os.close(filling)
    processes.append(subprocess.Popen([sys.executable, "-m", "tests.ferretdb"]))
    yield ready
    os.close(ready)
    for process in processes:
        process.wait()


def _report(second_try: set[str], *, strict: bool) -> int:
    """Print the tests that passed only at the second try, and return the exit code that they deserve."""
    for test in sorted(second_try):
        print(f"passed only at the second try: {test} ({UNSTABLE.get(test, 'no known reason')})")
    print(f"{len(second_try)} tests needed a second try", flush=True)
    return _SOME_FAILED if strict and second_try - UNSTABLE.keys() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
