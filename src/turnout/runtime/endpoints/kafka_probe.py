"""Checks of a Kafka cluster that change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from turnout.base.plural import first_names, plural
from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.routes.endpoints import KafkaSink, KafkaSource
from turnout.routes.values import listed
from turnout.runtime.endpoints.adapter import CheckOutput, EndpointProbe
from turnout.runtime.endpoints.kafka_history import KafkaHistory, hasty
from turnout.runtime.kafka_publisher import milliseconds
from turnout.runtime.kafka_source import KafkaSourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from turnout.engine import Messages

_DENIED: Final = 403
_NOT_FOUND: Final = 404


class KafkaProbe(EndpointProbe):
    """Checks of one Kafka source or sink.

    Args:
        endpoint: the source or the sink.
        seconds: how long to wait for an answer.
    """

    noun: ClassVar[str] = "topic"

    def __init__(self, endpoint: KafkaSource | KafkaSink, seconds: float) -> None:
        self._endpoint = endpoint
        self._client = hasty(endpoint.client, seconds)
        self._admin: KafkaAdmin | None = None

    def close(self) -> None:
        """Close the connection, if one is open."""
        if self._admin is not None:
            self._admin.close()

    def reach(self) -> str:
        """Contact the brokers; the topics that a source names must exist."""
        found = self._open.topics()
        if isinstance(self._endpoint, KafkaSource) and self._endpoint.topics is not None:
            self._open.describe(listed(self._endpoint.topics))
        return f"{', '.join(self._client.servers)} answers; {plural(len(found), 'topic')} can be seen"

    @property
    def _open(self) -> KafkaAdmin:
        if self._admin is None:
            self._admin = KafkaAdmin(self._client)
        return self._admin

    def streams(self) -> Sequence[str]:
        """Return the topics of the source."""
        assert isinstance(self._endpoint, KafkaSource)
        return sorted(KafkaSourceOptions.of(self._endpoint).found_topics(self._open))

    def latest(self, stream: str, count: int) -> tuple[list[pa.RecordBatch], str]:
        """Return the records at the latest offsets of a topic, about *count* over its partitions, and a summary."""
        history = KafkaHistory(self._open, self._client, [stream])
        share = max(1, count // len(history.streams))
        batches, offsets = [], 0
        for partition in history.streams:
            end = history.bounds(partition)
            offsets += end.next - end.first
            if (start := max(end.first, end.next - share)) < end.next:
                batches += list(history.read(partition, start, end.next))
        read = sum(batch.num_rows for batch in batches)
        found = f"{plural(offsets, 'offset')} in {plural(len(history.streams), 'partition')}, may be read"
        return batches, f"{found}; {read:,} of the latest records were"

    def sink_checks(
        self, topics: Sequence[str], messages: Sequence[Messages] = ()
    ) -> Iterator[tuple[str, CheckOutput]]:
        """Yield the checks of the topics and of the permissions, without the topic that a run creates for webhooks."""
        deliveries = self._endpoint.deliveries if isinstance(self._endpoint, KafkaSink) else None
        written = [topic for topic in topics if deliveries is None or not topic.startswith(f"{deliveries[0]}.")]
        yield "topics", lambda: self._topics_exist(written)
        yield "permissions", lambda: self._may_write(written)
        yield "records", lambda: self._may_store(written, messages)

    def _topics_exist(self, topics: Sequence[str]) -> str:
        if not topics:
            return "there is no topic to check: no record was sampled"
        found = self._open.existing(topics)
        missing = [topic for topic in topics if topic not in found]
        if not missing:
            return f"all {len(topics):,} topics of the sample and the dead letters exist"
        creates = self._open.creates_topics()
        if creates is False:
            raise StreamError(f"{first_names(missing)}: no such topic, and brokers create none", code=_NOT_FOUND)
        creation = "brokers create them" if creates else "the brokers did not report whether they create them"
        return f"{first_names(missing)}: not there yet; {creation}"

    def _may_write(self, topics: Sequence[str]) -> str:
        found = self._open.existing(topics)
        refused = [name for name, info in found.items() if info.writable is False]
        if refused:
            raise StreamError(f"the user may not write to {first_names(refused)}", code=_DENIED)
        writable = [name for name, info in found.items() if info.writable is not None]
        return f"{plural(len(writable), 'topic')} may be written to" if writable else "no topic to check"

    def _may_store(self, topics: Sequence[str], messages: Sequence[Messages]) -> str:
        """Check the sample's messages against the settings by which topics refuse records, as brokers will do."""
        existing = self._open.existing(topics)
        if not existing:
            return "no topic to check"
        rules = self._open.topic_rules(existing)
        refused: Counter[str] = Counter()
        for some in messages:
            names, keys = some.topics.to_pylist(), some.column("key").to_pylist()
            times = milliseconds(some.column("timestamp")) or [None] * len(names)
            for name, key, at in zip(names, keys, times, strict=True):
                problem = rules[name].problem(key, at) if name in rules else None
                if problem is not None:
                    refused[f"the topic {name!r} {problem}"] += 1
        if refused:
            problem, count = refused.most_common(1)[0]
            raise StreamError(
                f"{plural(refused.total(), 'message')} of the sample would be refused, {count:,} as {problem}"
            )
        texts = [f"{name!r} {text}" for name in sorted(rules) if (text := rules[name].text())]
        unknown = [name for name in existing if name not in rules]
        if unknown:
            texts.append(f"the settings of {first_names(unknown)} may not be described")
        return "; ".join(texts) or f"{plural(len(rules), 'topic')} without limits for keys and times"
