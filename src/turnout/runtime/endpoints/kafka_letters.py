"""Dead letters in a topic of Kafka, whose records keep their keys and cannot be deleted one by one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.records.types import Fields
from turnout.runtime.endpoints.kafka_history import KafkaHistory
from turnout.runtime.endpoints.letters import NewLetter


@dataclass(frozen=True, slots=True)
class KafkaLetters:
    """Dead letters in one topic; see `turnout.runtime.endpoints.letters.SinkLetters`."""

    client: KafkaOptions
    stream: str

    keeps_keys: ClassVar[bool] = True
    deletion_problem: ClassVar[str | None] = (
        "Kafka deletes no single records; without it, a note says which letters are delivered"
    )

    def stream_of(self, row: Fields) -> str:
        """Return the partition, as ``topic:partition``."""
        return f"{row['topic']}:{row['partition']}"

    def holds(self, stream: str) -> bool:
        """Return True for a partition of the topic."""
        return stream.rpartition(":")[0] == self.stream

    @contextmanager
    def history(self) -> Iterator[KafkaHistory]:
        """Open a connection to read the letters."""
        with KafkaAdmin(self.client) as admin:
            yield KafkaHistory(admin, self.client, [self.stream])

    def at(self, sequence: int) -> dict[str, int]:
        """Return the offset in each partition."""
        with self.history() as history:
            return dict.fromkeys(history.streams, sequence)

    def add(self, letter: NewLetter, stream: str) -> None:
        """Publish a message to a partition, and wait until it is stored."""
        with KafkaProducer(self.client) as producer:
            # A topic that is compacted takes nothing without a key, and keeps one record of each.
            key = uuid.uuid4().hex.encode()
            partition = int(stream.rpartition(":")[2])
            message = KafkaMessages([self.stream], [letter.value], [key], [letter.headers], None, [partition])
            producer.publish(message, _refused)
            producer.flush()

    def exchange(self, added: Sequence[NewLetter], deleted: Sequence[tuple[str, int]]) -> None:
        """Raise an error: see `deletion_problem`."""
        raise NotImplementedError(self.deletion_problem)


def _refused(_index: int, reason: StreamError) -> None:
    raise reason
