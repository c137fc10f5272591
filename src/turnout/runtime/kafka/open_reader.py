"""Reader of an open split of Kafka's partitions."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar, Final, cast

import pyarrow as pa

from turnout.base.background import Background
from turnout.base.untrusted import JsonObject
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.clients import patiently
from turnout.kafka.follower import PartitionFollower
from turnout.kafka.reader import listed_records, record_batch
from turnout.records.listed import TOPIC_ID, ListedRecords
from turnout.records.types import ArrowBatch
from turnout.runtime.kafka.source import KafkaOffsets, KafkaSourceOptions, by_topic
from turnout.runtime.open_splits import OpenPosition

_CHECK_SECONDS: Final = 1.0
_FEW_RECORDS: Final = 200
"""Number of records up to which they are handed out as lists."""


class KafkaOpenReader(PartitionFollower):
    """Records of some partitions as they arrive; see `turnout.runtime.open_task.OpenRecords`.

    Where it ends, the driver, which plans the next split, finds the same, and reports what is lost.

    Args:
        options: options of the source.
        topics: number of partitions of each of its topics.
        start: where to begin.
        admin: for questions about the topics.
        seconds: the longest wait.
    """

    time: ClassVar[None] = None

    def __init__(
        self,
        options: KafkaSourceOptions,
        topics: Mapping[str, int],
        start: KafkaOffsets,
        admin: KafkaAdmin,
        seconds: float,
    ) -> None:
        super().__init__(options.client, admin, start.next_offsets(), start.last, seconds)
        self._options = options
        self._topics = topics
        self._start = start

    def look(self) -> None:
        """Check the topics on a thread beside the reader's, which ends, or raises the failure."""
        try:
            # The reader's own connection tells how long brokers are away.
            with suppress(ConnectionLostError):
                self._check()
        except StreamError as failure:
            self.failure = failure

    @property
    def next(self) -> OpenPosition:
        """The next offsets, with the ids of their topics and the last record before each."""
        return replace(self._start, next=by_topic(self.offsets), last=self.last).to_json()

    def check(self) -> bool:
        """Return False if a topic is gone or another one, or has other partitions than the driver has planned.

        Raises:
            StreamError: the topics may not be described.
            ConnectionLostError: no broker answers for ``patience`` seconds.
        """
        return patiently(self._options.client, self._check)

    def _check(self) -> bool:
        infos = self._options.found_topics(self._admin)
        ids = self._start.ids
        is_planned = {name: len(info.partitions) for name, info in infos.items()} == self._topics and all(
            ids.get(name, info.id) == info.id for name, info in infos.items()
        )
        if not is_planned:
            self.has_ended = True
        return is_planned

    def _columns(self, records: list[Any]) -> ArrowBatch | ListedRecords:
        def batch() -> ArrowBatch:
            columns = record_batch(None, 0, records)
            if not self._start.identified:
                return columns
            ids = [self._topic_id(cast("str", record.topic())) for record in records]
            return columns.append_column(TOPIC_ID, pa.array(ids, pa.string()))

        return batch() if len(records) > _FEW_RECORDS else listed_records(records, self._topic_id, batch)

    def _topic_id(self, topic: str) -> str | None:
        """Return what message ids have of a topic's id; None for nothing."""
        return self._start.ids.get(topic) if topic in self._start.identified else None


@contextmanager
def opened(
    options: KafkaSourceOptions,
    topics: Mapping[str, int],
    start: OpenPosition,
    _calls: socket.socket,
    seconds: float,
    _time: int | None = None,
) -> Iterator[KafkaOpenReader]:
    """Open the reader of a split.

    Args:
        options: how the source is read.
        topics: number of partitions of each topic of the source.
        start: the first offsets.
        seconds: the longest wait.
    """
    position = KafkaOffsets.of_json(cast("JsonObject", start))
    with (
        KafkaAdmin(options.client) as admin,
        closing(KafkaOpenReader(options, topics, position, admin, seconds)) as one,
        Background("check of the topics of an open split", one.look, every=_CHECK_SECONDS, delay=_CHECK_SECONDS),
    ):
        yield one
