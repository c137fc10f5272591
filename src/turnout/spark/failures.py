"""What Spark's exceptions say, without what surrounds it."""

from __future__ import annotations

import re

from turnout.errors import RunError

__all__ = ["in_one_line", "run_error"]

_PREFIX = re.compile(
    r"^(?:[\w.$]*(?:Error|Exception)(?:\[\w+\])?: |\[[A-Z_.]+\] |SQLSTATE: \w+\s*"
    r"|Query \[id = [^\]]*\] terminated with exception: )+"
)
_SUFFIX = re.compile(r"\s*(?:SQLSTATE: \w+\s*)+$")
_NOISE = re.compile(
    r"^(at |File |Traceback|During handling|The above|== |SQLSTATE|JVM stacktrace|Caused by: org\.apache)"
)


def in_one_line(failure: BaseException) -> str:
    """The sentence that tells what happened: the last one of a Python trace inside a Java trace inside a message."""
    text = str(failure)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"^(turnout|pyspark_nats|[\w.]+)?\.?\w*(Error|Exception): ", line)]
    telling = [line for line in lines if not _NOISE.match(line)]
    chosen = (errors or telling or [type(failure).__name__])[-1 if errors else 0]
    return _SUFFIX.sub("", _PREFIX.sub("", chosen)).strip() or chosen


def run_error(action: str, failure: BaseException) -> RunError:
    """A RunError that says what was being done and, in one line, why it stopped."""
    return RunError(f"{action}: {in_one_line(failure)}")
