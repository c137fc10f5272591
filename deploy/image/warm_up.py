"""Make the archive of Spark's classes for an image: run a route once, and keep what its JVM wrote.

The run compiles turnout's loops, too. The archive is in ``$XDG_CACHE_HOME/turnout``, where every start looks for it
(`turnout.spark.session.build`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from turnout.runtime.java import find_java
from turnout.spark.session.build import archive_options

SECONDS = 180
"""For the JVM to write its archive."""

ROUTE = """\
name: warm-up
source: {format: json, path: in}
value: {format: json}
transforms:
  - {name: only, type: Filter, predicate: {type: TopicNameMatches, pattern: "none"}}
mappings:
  "warm.*": [{destination: "warmed.{{wildcard(1)}}", weight: 100%}]
sink: {format: json, path: out}
trigger: {availableNow: true}
"""
RECORDS = "".join(json.dumps({"topic": f"warm.{name}", "value": '{"a": 1}'}) + "\n" for name in "ab")


def run_a_route() -> None:
    """Start a JVM as a route does, have it do what a route does, and end it."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "in").mkdir()
        (here / "in" / "records.json").write_text(RECORDS, encoding="utf-8")
        (here / "route.yaml").write_text(ROUTE, encoding="utf-8")
        words = [sys.executable, "-m", "turnout", "run", "route.yaml", "--checkpoint", "checkpoint"]
        subprocess.run(words, cwd=here, check=True)


def adopted() -> Path | None:
    """The archive, once the JVM has written it: that begins when the JVM ends, and is over when nothing changes."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for option in archive_options(find_java()):
            name, _, value = option.partition("=")
            if name == "-XX:SharedArchiveFile":
                return Path(value)
        time.sleep(1)
    return None


run_a_route()
archive = adopted()
if archive is None:
    sys.exit(f"the JVM has left no archive of its classes within {SECONDS} seconds")
# Whoever runs the image maps it.
archive.parent.chmod(0o755)
archive.chmod(0o444)
sys.stdout.write(f"{archive.name}: {archive.stat().st_size >> 20} MiB\n")
