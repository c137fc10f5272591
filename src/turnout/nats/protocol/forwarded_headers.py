"""Headers that a NATS sink does not forward unless it names them: they instruct the server."""

from __future__ import annotations

import re

NOT_FORWARDED = (
    # About the stream that a record was read from: in another one it would be wrong or harmful.
    "Nats-Msg-Id",
    "Nats-Expected-*",
    "Nats-Stream-Source",
    # Instructions to the server about the message, others of its stream, or later ones.
    "Nats-Rollup",
    "Nats-TTL",
    "Nats-Marker-Reason",
    "Nats-Incr",
    "Nats-Counter-Sources",
    "Nats-Batch-*",
    "Nats-Schedule",
    "Nats-Schedule-*",
    "Nats-Scheduler",
    "Nats-Required-Api-Level",
    # Recipients of traces, and whether it is delivered at all.
    "Nats-Trace-*",
    # The client, as one server names it to another.
    "Nats-Request-Info",
)
"""Headers that instruct a nats-server (as of 2.15), which a sink forwards only if it names them.

``traceparent`` is not among them: it traces only where the server's configuration says so, and other programs use it.
"""

_WITHHELD = re.compile("|".join(re.escape(name).replace(r"\*", ".+") for name in NOT_FORWARDED), re.IGNORECASE)


def instructs_server(name: str) -> bool:
    """Return True for one of `NOT_FORWARDED`, in any case: a client or a proxy may not write it as the server does."""
    return _WITHHELD.fullmatch(name) is not None
