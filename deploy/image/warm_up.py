"""Leaves the archive of Spark's classes in an image: runs a route once, and has what its JVM wrote taken over.

The archive lies in ``$XDG_CACHE_HOME/turnout``, where every start looks for it; see turnout.spark.session.cds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from turnout.spark.session.cds import archive_options
from turnout.spark.session.java import find_java

ROUTE = """\
name: warm-up
source: {format: csv, path: in}
value: {format: json}
transforms:
  - {name: only, type: Filter, predicate: {type: TopicNameMatches, pattern: "none"}}
mappings:
  "warm.*": [{destination: "warmed.{{wildcard(1)}}", weight: 100%}]
sink: {format: csv, path: out}
trigger: {availableNow: true}
"""
ROWS = 'topic,value\nwarm.a,"{""a"": 1}"\nwarm.b,"{""a"": 2}"\n'


def run_a_route() -> None:
    """Start a JVM as a route does, have it do what a route does, and end it."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "in").mkdir()
        (here / "in" / "records.csv").write_text(ROWS, encoding="utf-8")
        (here / "route.yaml").write_text(ROUTE, encoding="utf-8")
        words = ["turnout", "run", "route.yaml", "--checkpoint", "checkpoint"]
        subprocess.run(words, cwd=here, check=True)


def age(cache: Path) -> None:
    """Make what the JVM wrote old: a file that has just changed is taken for one that is still being written."""
    for part in cache.glob("*.part"):
        os.utime(part, (0, 0))


cache = Path(os.environ["XDG_CACHE_HOME"]) / "turnout"
run_a_route()
age(cache)
options = archive_options(find_java())
archives = list(cache.glob("*.jsa"))
if len(archives) != 1 or not any(str(archives[0]) in option for option in options):
    sys.exit(f"expected one archive of classes in {cache}, found {[path.name for path in cache.iterdir()]}")
cache.chmod(0o755)
archives[0].chmod(0o644)
sys.stdout.write(f"{archives[0].name}: {archives[0].stat().st_size >> 20} MiB\n")
