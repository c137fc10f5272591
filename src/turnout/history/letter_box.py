"""Streams and topics that hold a route's dead letters: reading them, and adding to them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from turnout.engine.addresses import Addresses
from turnout.engine.letter_seal import SEAL, seal
from turnout.engine.sample_records import Header
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.nats.wire import Connection, Publisher, streams_of
from turnout.nats.wire.positions import StreamPosition
from turnout.records.types import Fields
from turnout.routes import Route
from turnout.routes.endpoints import KafkaSink, NatsSink
from turnout.runtime.endpoints import SourceHistory
from turnout.runtime.endpoints.kafka_history import KafkaHistory
from turnout.runtime.endpoints.nats_history import NatsHistory


@dataclass(frozen=True, slots=True)
class LetterBox:
    """Streams and topics that hold a route's dead letters.

    Attributes:
        sink: index of the sink among the route's.
        endpoint: the sink.
        topic: topic of the letters.
        stream: that holds them; in Kafka the topic itself.
        secret: seals letters and notes; None for a route without one.
    """

    sink: int
    endpoint: NatsSink | KafkaSink
    topic: str
    stream: str
    secret: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, route: Route) -> Self:
        """Return the letter box of a route.

        Raises:
            ConfigError: the route sets nothing aside, or into files, or without saying why.
            StreamError: no stream takes the letters.
            ConnectionLostError: the server cannot be reached.
        """
        part = route.dead_letter
        if part is None:
            raise ConfigError([Mistake("deadLetter", f"the route {route.name} has none: it sets nothing aside")])
        if not part.context_headers:
            problem = "is false: without these headers a letter's record is unknown"
            raise ConfigError([Mistake("deadLetter.contextHeaders", problem)])
        sink, topic = Addresses(route).split(part.topic)
        endpoint = list(route.sinks.values())[sink]
        if isinstance(endpoint, KafkaSink):
            return cls(sink, endpoint, topic, topic, part.secret)
        if not isinstance(endpoint, NatsSink):
            problem = (
                f"expected a sink of format nats or kafka, whose letters can be read again, found {endpoint.format}"
            )
            raise ConfigError([Mistake("deadLetter.topic", problem)])
        stream = endpoint.stream
        if stream is None:
            with Connection.open(endpoint.connection) as connection:
                stream = next(iter(streams_of(connection, topic)), None)
        if stream is None:
            raise StreamError(f"no stream takes the dead letters of {route.name}, on {topic!r}", code=404)
        return cls(sink, endpoint, topic, stream, part.secret)

    @property
    def in_kafka(self) -> bool:
        """True if the letters are records of a Kafka topic, which keep their keys and cannot be deleted one by one."""
        return isinstance(self.endpoint, KafkaSink)

    def stream_of(self, row: Fields) -> str:
        """Return the stream of a letter, in Kafka ``topic:partition``."""
        return f"{row['topic']}:{row['partition']}" if self.in_kafka else self.stream

    def holds(self, stream: str) -> bool:
        """Return True if letters are stored in this stream, or partition."""
        return stream.rpartition(":")[0] == self.topic if self.in_kafka else stream == self.stream

    @contextmanager
    def history(self) -> Iterator[SourceHistory]:
        """Open a connection to read the letters.

        Raises:
            StreamError: the stream, or the topic, does not exist.
            ConnectionLostError: the server cannot be reached.
        """
        if isinstance(self.endpoint, KafkaSink):
            client = self.endpoint.client
            with KafkaAdmin(client) as admin:
                yield KafkaHistory(admin, client, [self.topic])
        else:
            with Connection.open(self.endpoint.connection) as connection:
                yield NatsHistory(connection, [self.stream], (self.topic,))

    def newest(self, count: int) -> dict[str, int]:
        """Return where about the last *count* messages begin, by stream.

        Raises:
            StreamError: the stream, or the topic, does not exist.
            ConnectionLostError: the server cannot be reached.
        """
        with self.history() as history:
            share = max(1, count // max(1, len(history.streams)))
            ends = {stream: history.bounds(stream) for stream in history.streams}
            return {stream: max(end.first, end.next - share) for stream, end in ends.items()}

    def at(self, sequence: int) -> StreamPosition:
        """Return a sequence of the letters' stream as a place; in Kafka, the offset in each partition."""
        if not self.in_kafka:
            return sequence
        with self.history() as history:
            return dict.fromkeys(history.streams, sequence)

    def connection(self) -> Connection:
        """Return a connection to the server of letters in NATS."""
        assert isinstance(self.endpoint, NatsSink)
        return Connection.open(self.endpoint.connection)

    def add(self, headers: Sequence[Header], value: bytes, stream: str) -> None:
        """Publish a note among the letters of a stream, with the route's seal where the route has a secret.

        Raises:
            StreamError: the server refuses it.
            ConnectionLostError: the server does not come back in time.
        """
        if not isinstance(self.endpoint, KafkaSink):
            with self.connection() as connection, Publisher(connection) as publisher:
                self.publish(publisher, headers, value)
            return
        with KafkaProducer(self.endpoint.client) as producer:
            # A topic that is compacted takes nothing without a key, and keeps one record of each.
            key = uuid.uuid4().hex.encode()
            partition = int(stream.rpartition(":")[2])
            written = [self._sealed(headers, value)]
            producer.publish(KafkaMessages([self.topic], [value], [key], written, None, [partition]), _refused)
            producer.flush()

    def publish(
        self,
        publisher: Publisher,
        headers: Sequence[Header],
        value: bytes,
        message_id: str | None = None,
        *,
        sealed: bool = True,
    ) -> None:
        """Publish a message among letters in NATS, likewise."""
        written = self._sealed(headers, value) if sealed else [(name, raw or b"") for name, raw in headers]
        publisher.publish(self.topic, value, written, message_id=message_id)

    def _sealed(self, headers: Sequence[Header], value: bytes) -> list[tuple[str, bytes]]:
        written = [(name, raw or b"") for name, raw in headers]
        if self.secret is not None:
            written.append((SEAL, seal(self.secret, headers, value).encode()))
        return written


def _refused(_index: int, reason: StreamError) -> None:
    raise reason
