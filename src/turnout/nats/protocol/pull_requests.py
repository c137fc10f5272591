"""Pull requests: their subject and body, the statuses that answer them, and consumers made for one reader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Final

from turnout.base.untrusted import JsonObject
from turnout.nats.protocol.headers import CONFLICT, HEARTBEAT, NO_MESSAGES, NO_RESPONDERS, PIN_MISMATCH, REQUEST_TIMEOUT

NANOSECONDS: Final = 1_000_000_000


def next_request(stream: str, consumer: str) -> str:
    """Return the API request that pulls from a consumer, without the prefix."""
    return f"CONSUMER.MSG.NEXT.{stream}.{consumer}"


def pull_body(
    batch: int,
    *,
    expires: float | None = None,
    no_wait: bool = False,
    max_bytes: int | None = None,
    heartbeat: float | None = None,
    more: Mapping[str, object] | None = None,
) -> bytes:
    """Return the JSON of a pull request with *more* fields; *expires* and *heartbeat* are in seconds."""
    body: dict[str, object] = {"batch": batch, **(more or {})}
    if expires:
        body["expires"] = round(expires * NANOSECONDS)
    if no_wait:
        body["no_wait"] = True
    if max_bytes:
        body["max_bytes"] = max_bytes
    if heartbeat:
        body["idle_heartbeat"] = round(heartbeat * NANOSECONDS)
    return json.dumps(body, separators=(",", ":")).encode()


def ephemeral_config(
    start: int | datetime | None, filters: Sequence[str] = (), *, idle_seconds: int = 30, **more: object
) -> JsonObject:
    """Return the configuration of a consumer without acknowledgements that the server removes when it is not used.

    Args:
        start: the first sequence or time to deliver; None for new messages only.
        filters: subjects, none for all.
        idle_seconds: time without requests after which the server removes the consumer.
        more: further fields.
    """
    config: JsonObject = {
        "deliver_policy": "new",
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": idle_seconds * NANOSECONDS,
        **more,
    }
    if isinstance(start, datetime):
        config |= {"deliver_policy": "by_start_time", "opt_start_time": start.isoformat()}
    elif start is not None:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    if len(filters) == 1:
        config["filter_subject"] = filters[0]
    elif filters:
        config["filter_subjects"] = list(filters)
    return config


class PullStatus(Enum):
    """Meaning of a status that answers a pull request (ADR-15, "Pull Mode Statuses")."""

    HEARTBEAT = auto()
    EXPIRED = auto()
    """The request has ended: nothing was there, or its time is over."""
    COMPLETED = auto()
    """The request has ended: its messages or bytes are used up."""
    TOO_LARGE = auto()
    """The request has ended: the next message has more bytes than are left."""
    MOVED = auto()
    """The server stops, or another one leads now: the same request may work later."""
    TOO_MANY_REQUESTS = auto()
    """The consumer's limit of waiting requests is reached."""
    UNPINNED = auto()
    """Another client has the pin: the same request may be made without an id (ADR-42)."""
    DELETED = auto()
    """The consumer, or its stream, was deleted."""
    NO_RESPONDERS = auto()
    """The consumer does not exist, or its server is not ready."""
    REFUSED = auto()
    """Any other."""

    @classmethod
    def of(cls, code: int, text: str) -> PullStatus:
        """Classify a status by its code and description."""
        if code == CONFLICT:
            return _CONFLICTS.get(text.lower(), cls.REFUSED)
        return _CODES.get(code, cls.REFUSED)

    @property
    def ends_request(self) -> bool:
        """True if the request has ended as it should, perhaps without a message."""
        return self in _ENDS


_ENDS: Final = frozenset({PullStatus.EXPIRED, PullStatus.COMPLETED, PullStatus.TOO_LARGE})
_CODES: Final[Mapping[int, PullStatus]] = {
    HEARTBEAT: PullStatus.HEARTBEAT,
    NO_MESSAGES: PullStatus.EXPIRED,
    REQUEST_TIMEOUT: PullStatus.EXPIRED,
    NO_RESPONDERS: PullStatus.NO_RESPONDERS,
    PIN_MISMATCH: PullStatus.UNPINNED,
}
_CONFLICTS: Final[Mapping[str, PullStatus]] = {
    "batch completed": PullStatus.COMPLETED,
    "message size exceeds maxbytes": PullStatus.TOO_LARGE,
    "leadership change": PullStatus.MOVED,
    "server shutdown": PullStatus.MOVED,
    "exceeded maxwaiting": PullStatus.TOO_MANY_REQUESTS,
    "consumer deleted": PullStatus.DELETED,
    "stream deleted": PullStatus.DELETED,
}
