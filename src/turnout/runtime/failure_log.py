"""Log of failures for ``errors.log.enable``: a few of each micro-batch in full, the others counted."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

FAILURES: Final = "_failures"
"""Name of the observed column of a micro-batch's first failures, each a JSON object."""

FAILURES_COUNT: Final = "_failures_count"
"""Name of the observed column of the number of all failures."""

_POSITION = ("topic", "partition", "offset", "timestamp")

_log = logging.getLogger("turnout.errors")


def log_failures(metrics: Mapping[str, Any], *, route: str) -> None:
    """Write the observation to the logger ``turnout.errors``, at the level ERROR."""
    count = metrics.get(FAILURES_COUNT) or 0
    failures = metrics.get(FAILURES) or []
    for failure in failures:
        _log.error("route %s: %s", route, _sentence(json.loads(failure)))
    if count > len(failures):
        _log.error("route %s: %d more records failed in this micro-batch", route, count - len(failures))


def _sentence(failure: Mapping[str, Any]) -> str:
    """Return the sentence of Connect's log reporter for one failure."""
    position = ", ".join(f"{name}={failure[name]!r}" for name in _POSITION if failure.get(name) is not None)
    sentence = (
        f"Error encountered. Executing stage '{failure['stage']}' with class '{failure['class_name']}', "
        f"where consumed record is {{{position}}}: {failure['exception']}: {failure['message']}"
    )
    if failure.get("value") is None and failure.get("key") is None:
        return sentence
    return f"{sentence} (key={failure.get('key')!r}, value={failure.get('value')!r})"
