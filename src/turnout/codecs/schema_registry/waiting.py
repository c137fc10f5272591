"""Policy for a registry that does not answer: wait for it, or dead-letter the records that need it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from turnout.codecs.schema_registry.client import RegistryUnavailableError
from turnout.codecs.schema_registry.options import RegistryOptions
from turnout.errors import RecordError

_Answer = TypeVar("_Answer")

_FIRST_DELAY: Final = 0.5
_MAX_DELAY: Final = 10.0


def answered(options: RegistryOptions, request: Callable[[], _Answer]) -> _Answer:
    """Return the result of a request, repeated while the registry is down.

    Args:
        options: options of the registry: *dead_letter* is the policy, *wait* its time in seconds.
        request: raises `RegistryUnavailableError` while the registry is down.

    Raises:
        RegistryUnavailableError: the registry was down for longer.
        RecordError: it is down, and the route dead-letters records without a schema.
    """
    deadline = time.monotonic() + options.wait
    delay = _FIRST_DELAY
    while True:
        try:
            return request()
        except RegistryUnavailableError as failure:
            if options.dead_letter:
                raise RecordError(str(failure)) from failure
            if time.monotonic() + delay > deadline:
                raise
        time.sleep(delay)
        delay = min(2 * delay, _MAX_DELAY)
