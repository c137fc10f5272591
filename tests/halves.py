"""Runs the whole suite in two processes side by side: whole routes and what shares a Spark session, and all others.

``python -m tests.halves``; with ``--every`` the heavy ones too, see `tests.heavy`, of which most with Spark are in the
first half. That half waits for JVMs much of the time, the second computes and waits for servers: together they take two
cores as long as the longer one. Other arguments are handed to one ordinary run instead.

What fails beside the other half is run once more, alone, and both outcomes are printed: a server that answers late
because the machine was busy is told apart from a mistake, which fails twice.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

_FIRST = "((session or integration or (spark and heavy)) and not beside)"
_HALVES = {"with whole routes": f"{_FIRST} and {{}}", "without them": f"not {_FIRST} and {{}}"}
_EVERY = "not soak and not packaging"
_USUAL = f"{_EVERY} and not heavy"
_PYTEST = [sys.executable, "-m", "pytest"]
_SOME_FAILED = 1  # pytest's exit code; any other means that tests could not be run


def main(arguments: list[str]) -> int:
    """Run pytest; its exit code, or that of the first half that failed."""
    every = arguments == ["--every"]
    if arguments and not every:
        return subprocess.run([*_PYTEST, "-m", _EVERY, *arguments], check=False).returncode
    chosen = _EVERY if every else _USUAL
    (first, expression), (second, others) = ((half, marks.format(chosen)) for half, marks in _HALVES.items())
    with (
        tempfile.TemporaryDirectory(prefix="turnout-halves-") as folder,
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
    ):
        with subprocess.Popen(
            [*_PYTEST, "-m", others, *_cache(folder, second)], stdout=output, stderr=subprocess.STDOUT
        ) as beside:
            print(f"the tests {second} run beside these, their output follows", flush=True)
            code = subprocess.run([*_PYTEST, "-m", expression, *_cache(folder, first)], check=False).returncode
            print(f"the tests {first} are done; waiting for those {second}", flush=True)
            beside.wait()
        output.seek(0)
        print(output.read(), flush=True)
        codes = {first: code, second: beside.returncode}
        return max(_again(folder, half) if code == _SOME_FAILED else code for half, code in codes.items())


def _cache(folder: str, half: str) -> list[str]:
    """Where pytest remembers what failed in a half."""
    return ["-o", f"cache_dir={Path(folder, half.replace(' ', '-'))}"]


def _again(folder: str, half: str) -> int:
    """Run what failed in a half alone; pytest's exit code."""
    print(f"\nsome tests {half} failed beside the others (above); they are run once more, alone", flush=True)
    return subprocess.run([*_PYTEST, "--last-failed", *_cache(folder, half)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
