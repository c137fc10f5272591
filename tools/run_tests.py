"""Run the whole suite in two groups side by side: whole routes and what shares a Spark session, and all others.

``python -m tools.run_tests``; with ``--every`` the heavy tests too, of which most with Spark are in the first group;
with ``--strict`` a test that needs a second try is a failure. Other arguments go to one ordinary run of pytest instead.
The second group is divided among worker processes, as most of its tests wait for servers.

Tests that fail beside the others run once more, alone. Those that pass only then are printed and counted at the end,
and fail ``--strict`` unless `UNSTABLE` names them with a reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

UNSTABLE: dict[str, str] = {}
"""Node id of a test that may need a second try → the reason."""

_ROUTES = "((session or integration or (spark and heavy)) and not beside)"
_EVERY = "not soak and not packaging"
_USUAL = f"{_EVERY} and not heavy"
_PYTEST = [sys.executable, "-m", "pytest"]
_SOME_FAILED = 1  # pytest's exit code; any other code but 0 means that tests could not be run


@dataclass(frozen=True, slots=True)
class Group:
    """Tests that one call of pytest runs.

    Attributes:
        title: name of the group in messages.
        marks: expression of marks that selects its tests.
        workers: processes that share them.
        cache: pytest's cache folder, which remembers the failed tests.
    """

    title: str
    marks: str
    workers: int
    cache: Path

    @property
    def command(self) -> list[str]:
        """Command line of the first run."""
        parallel = ["-n", str(self.workers), "--dist", "loadscope"] if self.workers > 1 else []
        return [*_PYTEST, "-m", self.marks, *parallel, *self._cache_option]

    @property
    def _cache_option(self) -> list[str]:
        return ["-o", f"cache_dir={self.cache}"]

    def failed(self) -> set[str]:
        """Return the node ids of the tests that failed last."""
        file = self.cache / "v" / "cache" / "lastfailed"
        return set(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else set()

    def run_failed_again(self) -> int:
        """Run the failed tests alone and return pytest's exit code."""
        print(f"\nsome tests {self.title} failed beside the others (above); they run once more, alone", flush=True)
        return subprocess.run([*_PYTEST, "--last-failed", *self._cache_option], check=False).returncode


def main(arguments: list[str]) -> int:
    """Run pytest and return its exit code, or that of the first group that failed."""
    every, strict = "--every" in arguments, "--strict" in arguments
    if set(arguments) - {"--every", "--strict"}:
        return subprocess.run([*_PYTEST, "-m", _EVERY, *arguments], check=False).returncode
    chosen = _EVERY if every else _USUAL
    with tempfile.TemporaryDirectory(prefix="turnout-tests-") as folder:
        groups = (
            Group("with whole routes", f"{_ROUTES} and {chosen}", 1, Path(folder, "routes")),
            Group("without them", f"not {_ROUTES} and {chosen}", 2, Path(folder, "others")),
        )
        codes = _run_side_by_side(*groups)
        second_try: set[str] = set()
        for group, code in zip(groups, codes, strict=True):
            if code == _SOME_FAILED:
                before = group.failed()
                codes[groups.index(group)] = group.run_failed_again()
                second_try |= before - group.failed()
    return max(*codes, _report(second_try, strict=strict))


def _run_side_by_side(first: Group, second: Group) -> list[int]:
    """Run both groups at once, print the output of the second one at its end, and return the exit codes."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        with subprocess.Popen(second.command, stdout=output, stderr=subprocess.STDOUT) as beside:
            print(f"the tests {second.title} run beside these, their output follows", flush=True)
            code = subprocess.run(first.command, check=False).returncode
            print(f"the tests {first.title} are done; waiting for those {second.title}", flush=True)
            beside.wait()
        output.seek(0)
        print(output.read(), flush=True)
        return [code, beside.returncode]


def _report(second_try: set[str], *, strict: bool) -> int:
    """Print the tests that passed only at the second try, and return the exit code that they deserve."""
    for test in sorted(second_try):
        print(f"passed only at the second try: {test} ({UNSTABLE.get(test, 'no known reason')})")
    print(f"{len(second_try)} tests needed a second try", flush=True)
    return _SOME_FAILED if strict and second_try - UNSTABLE.keys() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
