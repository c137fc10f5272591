"""Adapter of Kafka: addresses are tried, and offsets checked; the protocol is left to Spark's connector."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Final, cast

from turnout.errors import ConfigError, ConnectionLostError, Mistake, TurnoutError
from turnout.routes.endpoints import KafkaSink, KafkaSource
from turnout.routes.values import listed
from turnout.runtime.endpoints.adapter import EndpointAdapter, EndpointProbe, Start, time_of
from turnout.runtime.endpoints.changes import Change, other_changes, server_changes, unsafe_change
from turnout.untrusted import decimal, is_whole

_PING_SECONDS: Final = 3.0
_LARGEST_PARTITION: Final = (1 << 31) - 1


class KafkaAdapter(EndpointAdapter):
    """Access to a Kafka cluster."""

    endpoint: KafkaSource | KafkaSink

    @property
    def label(self) -> str:
        """Noun for a source of this format in messages."""
        return "a Kafka topic"

    def ping(self) -> None:
        """Check that one of the bootstrap servers accepts connections.

        Raises:
            ConnectionLostError: none does.
        """
        try:
            _reach(self.endpoint.hosts, _PING_SECONDS)
        except TurnoutError:
            raise ConnectionLostError(f"no server of {', '.join(self.endpoint.hosts)} answers") from None

    def probe(self, seconds: float) -> EndpointProbe:
        """Return a check of the bootstrap servers."""
        return _BrokerProbe(listed(self.endpoint.servers), seconds)

    def checked_start(self, start: Start) -> Start:
        """Return the start position if topics can be read from there.

        Raises:
            ConfigError: it is no such position.
        """
        if isinstance(start, Mapping):
            mistakes = list(_wrong_offsets(start))
            if mistakes:
                raise ConfigError(mistakes, what="bad offsets")
            return start
        return start if start in ("earliest", "latest") else time_of(start).isoformat()

    def begun_at(self, start: Start) -> KafkaSource:
        """Return the source with another start; a time is an option of Spark's connector."""
        source = cast("KafkaSource", self.endpoint)
        if not isinstance(start, str) or start in ("earliest", "latest"):
            return source.model_copy(update={"start": start})
        milliseconds = int(time_of(start).timestamp() * 1000)
        return source.model_copy(update={"options_": {**source.options_, "startingTimestamp": milliseconds}})

    def changes(self, new: KafkaSource) -> Iterator[Change]:
        """Yield the effects of a new version on the offsets in the checkpoint."""
        old = cast("KafkaSource", self.endpoint)
        yield from server_changes(old, new, "offsets of another cluster's topics are not those of this one")
        for name, before, after in (
            ("topics", old.topics, new.topics),
            ("topicPattern", old.topic_pattern, new.topic_pattern),
        ):
            if sorted(listed(before)) != sorted(listed(after)):
                reason = "the checkpoint holds the offsets of the topics that were named before"
                yield unsafe_change(f"source.{name}", reason)
        yield from other_changes(old, new, {"servers", "topics", "topicPattern"})


class _BrokerProbe(EndpointProbe):
    """Check that one of the bootstrap servers accepts connections."""

    def __init__(self, addresses: tuple[str, ...], seconds: float) -> None:
        self._addresses = addresses
        self._seconds = seconds

    def reach(self) -> str:
        address = _reach(self._addresses, self._seconds)
        return f"{address} can be reached; topics and permissions were not asked for"


def _reach(addresses: tuple[str, ...], seconds: float) -> str:
    """Return the first address that accepts connections.

    Raises:
        TurnoutError: none does; says why.
    """
    failures = []
    for address in addresses:
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
        except (OSError, ValueError) as failure:
            failures.append(f"{address}: {getattr(failure, 'strerror', None) or failure}")
        else:
            return address
    raise TurnoutError("; ".join(failures))


def _wrong_offsets(start: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a mistake for each topic without offsets by partition; -2 is the earliest offset, -1 the latest one."""
    for topic, offsets in start.items():
        if not isinstance(offsets, dict):
            yield Mistake(f"to.{topic}", f"expected offsets by partition, found {offsets!r}")
            continue
        for partition, offset in offsets.items():
            if decimal(partition, _LARGEST_PARTITION) is None or not is_whole(offset, -2):
                yield Mistake(f"to.{topic}.{partition}", f"expected a partition and its offset, found {offset!r}")
