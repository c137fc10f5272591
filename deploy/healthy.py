"""Whether a container that runs a route is well: its JVM is there. Exit code 0 or 1, as Docker asks."""

import sys
from pathlib import Path


def is_java(process: Path) -> bool:
    """Whether a process is a JVM; one that has just ended is none."""
    try:
        return (process / "comm").read_text() == "java\n"
    except OSError:
        return False


sys.exit(not any(is_java(process) for process in Path("/proc").glob("[0-9]*")))
