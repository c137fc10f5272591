"""Runs the whole suite in two processes side by side: the tests that share a Spark session, and all others.

``python -m tests.halves``. The first half waits for a JVM much of the time, the second computes and waits for servers:
together they take two cores as long as the longer one. Arguments are handed to one ordinary run instead.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

_HALVES = {"with Spark": "spark and not soak", "without Spark": "not spark and not soak"}


def main(arguments: list[str]) -> int:
    """Run pytest; its exit code, or that of the first half that failed."""
    pytest = [sys.executable, "-m", "pytest"]
    if arguments:
        return subprocess.run([*pytest, "-m", "not soak", *arguments], check=False).returncode
    (first, expression), (second, others) = _HALVES.items()
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        subprocess.Popen([*pytest, "-m", others], stdout=output, stderr=subprocess.STDOUT) as beside,
    ):
        print(f"the tests {second} run beside these, their output follows", flush=True)
        code = subprocess.run([*pytest, "-m", expression], check=False).returncode
        print(f"the tests {first} are done; waiting for those {second}", flush=True)
        beside.wait()
        output.seek(0)
        print(output.read(), flush=True)
    return code or beside.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
