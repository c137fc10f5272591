"""Exit codes, a stable interface for scripts."""

from __future__ import annotations

from turnout.errors import (
    ConditionError,
    ConfigError,
    MissingExtraError,
    RouteError,
    SubjectError,
    SubscriptionInvalidError,
    TurnoutError,
)

DONE = 0
FAILED = 1
WRONG_REQUEST = 2
# A signal cut the work off: 128 and the number of SIGINT. Commands without an end of their own (run, serve, tail …) are
# done; with one (run --once, tail --count, deliver --drain …) they are not.
INTERRUPTED = 130
# What reads the output has ended (`turnout tail … | head`): 128 and the number of SIGPIPE.
OUTPUT_CLOSED = 141

_WRONG_REQUESTS = (
    SubjectError,
    ConditionError,
    ConfigError,
    RouteError,
    SubscriptionInvalidError,
    MissingExtraError,
)


def exit_code_of(failure: TurnoutError) -> int:
    """Return 2 for a request that cannot be fulfilled, 1 for work that failed."""
    return WRONG_REQUEST if isinstance(failure, _WRONG_REQUESTS) else FAILED
