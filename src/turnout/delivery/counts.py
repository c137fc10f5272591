"""Counts of a dispatcher."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DeliveryCounts:
    """Counts of a dispatcher.

    Attributes:
        delivered: messages that an endpoint has taken.
        requests: requests that were sent.
        failed: requests without a 2xx.
        dead: messages that were given up.
        parked: messages given back to the queue, as their endpoint is slow.
        unstored: outcomes of requests, as dead letters, that the queue's server did not store at the first attempt.
        stored_late: those of them that it has stored since.
    """

    delivered: int = 0
    requests: int = 0
    failed: int = 0
    dead: int = 0
    parked: int = 0
    unstored: int = 0
    stored_late: int = 0
