"""Cluster placement of a stream or a consumer: its replicas and its leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnout.nats.jetstream._codec import nested_list, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """A server that follows.

    Attributes:
        name: the server's name.
        current: it has everything that the leader has.
        offline: the leader does not reach it.
        active: seconds since the leader heard from it.
        lag: how many operations it is behind.
    """

    name: str = ""
    current: bool = False
    offline: bool = False
    active: float = seconds(0.0)
    lag: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The group of servers behind a stream or a consumer.

    Attributes:
        name: the cluster's name; empty for a server that is in none.
        leader: the server that leads; empty while there is none.
        replicas: the servers that follow.
    """

    name: str = ""
    leader: str = ""
    replicas: Sequence[PeerInfo] = nested_list(PeerInfo, ())
    extra: Mapping[str, Any] = field(default_factory=dict)
