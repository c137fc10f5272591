"""Adapter of Kafka: topics of a source, a sink, and their checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, cast

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.terminal import first_names, plural
from turnout.base.untrusted import decimal, is_whole
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.kafka.admin import KafkaAdmin, TopicInfo
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.routes.endpoints import KafkaSink, KafkaSource
from turnout.routes.values import listed
from turnout.runtime.endpoints import (
    Change,
    CheckOutput,
    EndpointAdapter,
    EndpointProbe,
    Start,
    StreamEnd,
    other_changes,
    server_changes,
    time_of,
    unsafe_change,
)
from turnout.runtime.kafka.history import (
    KafkaFeedRecords,
    KafkaHistory,
    KafkaLetters,
    hasty,
    kafka_originals,
    offsets_by_topic,
)
from turnout.runtime.kafka.publisher import KafkaSinkOptions, milliseconds
from turnout.runtime.kafka.source import KafkaSourceOptions, partitions_of, position_of, resolved

if TYPE_CHECKING:
    import pyarrow as pa

    from turnout.engine import Messages
    from turnout.engine.sample_records import SampleRecord
    from turnout.records.published import Published, Refuse
    from turnout.routes.webhooks import WebhooksPart
    from turnout.runtime.endpoints import SourceStreams


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


_SECONDS: Final = 3.0
_LARGEST_PARTITION: Final = (1 << 31) - 1

_PARTITIONS: Final = 8
_MONTH_MS: Final = 31 * MILLISECONDS_PER_DAY
_DELIVERY_TOPICS: Final[tuple[tuple[int, Mapping[str, str]], ...]] = (
    # Deliveries have the times of their records, which may be older than the retention.
    (_PARTITIONS, {"retention.ms": str(_MONTH_MS), "message.timestamp.type": "LogAppendTime"}),
    (1, {"retention.ms": "-1"}),
    (1, {"cleanup.policy": "compact"}),
)
"""Partitions and settings of the topics of waiting deliveries, of dead letters, and of attempts."""


class KafkaAdapter(EndpointAdapter):
    """Access to a Kafka cluster."""

    endpoint: KafkaSource | KafkaSink

    @property
    def label(self) -> str:
        """Noun for a source of this format in messages."""
        return "a Kafka topic"

    @property
    def position_label(self) -> str:
        """Noun for a position of this source in messages."""
        return "offset"

    @property
    def identity(self) -> tuple[str, ...]:
        """Addresses, credentials, and everything else of the client."""
        client = self.endpoint.client
        return (*client.servers, *(f"{name}={value}" for name, value in sorted(client.properties.items())))

    @contextmanager
    def _admin(self, seconds: float = _SECONDS) -> Iterator[KafkaAdmin]:
        """Open a connection with short timeouts."""
        with KafkaAdmin(replace(self.endpoint.client, timeout=seconds)) as admin:
            yield admin

    def ping(self) -> None:
        """Check that a broker answers, and accepts the credentials.

        Raises:
            ConnectionLostError: none does.
            StreamError: a broker refuses the credentials.
        """
        with self._admin() as admin:
            admin.topics()

    def probe(self, seconds: float) -> EndpointProbe:
        """Return a check of the cluster and its topics."""
        return KafkaProbe(self.endpoint, seconds)

    # Before a run

    def source_streams(self) -> None:
        """Check that the topics that are named exist."""
        with self._admin() as admin:
            admin.describe(listed(self._source.topics))

    def feeds(self, streams: SourceStreams | None) -> bool:  # noqa: ARG002 - topics are known by their names
        """Check that a broker answers; topics that are read are known by their names."""
        self.ping()
        return False

    # Positions

    @property
    def _source(self) -> KafkaSource:
        return cast("KafkaSource", self.endpoint)

    def checked_start(self, start: Start) -> Start:
        """Return the start position if topics can be read from there, offsets by topic and partition.

        Raises:
            ConfigError: it is no such position.
        """
        if isinstance(start, Mapping):
            start = offsets_by_topic(start)
            mistakes = list(_wrong_offsets(start))
            if mistakes:
                raise ConfigError(mistakes, what="bad offsets")
            return start
        return start if start in ("earliest", "latest") else time_of(start, "{topic:partition: offset}").isoformat()

    def sequences(self, start: Start | None = None) -> dict[str, int]:
        """Return the offset of each partition, by ``topic:partition``, that a start means now."""
        position = position_of(self._source.start if start is None else start)
        with self._admin() as admin:
            infos = self._topics(admin)
            offsets = resolved(admin, position, infos, admin.ends(partitions_of(infos)))
        return {f"{topic}:{number}": offset for (topic, number), offset in offsets.items()}

    # Streams

    reports_ends: ClassVar[bool] = True

    @contextmanager
    def session(self) -> Iterator[KafkaSession]:
        """Open a connection with short timeouts."""
        with self._admin() as admin:
            yield KafkaSession(admin, self.endpoint.client)

    @contextmanager
    def history(self) -> Iterator[KafkaHistory]:
        """Open a connection to read the partitions; those of a pattern's topics as they are now."""
        with KafkaAdmin(self.endpoint.client) as admin:
            yield self._history_of(admin, self.endpoint.client)

    def feed_records(self) -> KafkaFeedRecords:
        """Open consumers to read records of the topics by their offsets."""
        return KafkaFeedRecords(self.history, self._source)

    def record_at(self, stream: str, sequence: int) -> pa.RecordBatch:
        """Return the record at an offset of ``topic:partition``."""
        client = hasty(self.endpoint.client, _SECONDS)
        with KafkaAdmin(client) as admin:
            return KafkaHistory(admin, client, [stream.rpartition(":")[0]]).record_at(stream, sequence)

    def last_records(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the records at the last *count* offsets of each partition."""
        client = hasty(self.endpoint.client, _SECONDS)
        with KafkaAdmin(client) as admin:
            history = self._history_of(admin, client)
            for stream in history.streams:
                end = history.bounds(stream)
                if (start := max(end.first, end.next - count)) < end.next:
                    yield from history.read(stream, start, end.next)

    def originals(self, records: Sequence[SampleRecord]) -> Sequence[SampleRecord]:
        """Return records as their partitions have them; deleted ones as given."""
        return kafka_originals(self._source, self.history, records)

    def sample(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the last records of each partition, about *count* in all."""
        with self._admin() as admin:
            partitions = len(partitions_of(self._topics(admin)))
        yield from self.last_records(max(1, count // max(1, partitions)))

    def _topics(self, admin: KafkaAdmin) -> dict[str, TopicInfo]:
        return KafkaSourceOptions.of(self._source).found_topics(admin)

    def _history_of(self, admin: KafkaAdmin, client: KafkaOptions) -> KafkaHistory:
        source = self._source
        return KafkaHistory(admin, client, listed(source.topics) or sorted(self._topics(admin)))

    # Messages

    def send(self, messages: Messages, refuse: Refuse, name: str) -> Published:  # noqa: ARG002
        """Publish messages, and wait until each is stored or refused; outside of a run there are no transactions."""
        options = KafkaSinkOptions.of(cast("KafkaSink", self.endpoint)).at_least_once()
        with closing(options.publisher()) as publisher:
            publisher.send(messages, refuse)
            return publisher.flush()

    def letters(self, topic: str) -> KafkaLetters:
        """Return access to the dead letters in a topic."""
        return KafkaLetters(self.endpoint.client, topic)

    def make_delivery_streams(self, webhooks: WebhooksPart, *, create: bool = True) -> list[str]:
        """Make the topics of waiting deliveries, of dead letters and of attempts, unless they exist."""
        missing = []
        with KafkaAdmin(self.endpoint.client) as admin:
            existing = admin.existing(webhooks.topics)
            for name, (partitions, config) in zip(webhooks.topics, _DELIVERY_TOPICS, strict=True):
                if name not in existing:
                    missing.append(name)
                    admin.create_topic(name, partitions, config, dry=not create)
                elif existing[name].writable is False:
                    raise StreamError(f"the user may not write to {name}, which webhooks need", code=_DENIED)
        return missing

    # Changes

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


@dataclass(frozen=True, slots=True)
class KafkaSession:
    """Requests over one connection."""

    admin: KafkaAdmin
    client: KafkaOptions

    def ends(self, source: KafkaSource) -> dict[str, StreamEnd]:
        """Return the bounds of each partition, by ``topic:partition``."""
        infos = KafkaSourceOptions.of(source).found_topics(self.admin)
        ends = self.admin.ends(partitions_of(infos))
        return {f"{topic}:{number}": StreamEnd(end.first, end.next) for (topic, number), end in ends.items()}

    def age(self, stream: str, sequence: int, now: float) -> float | None:
        """Return the seconds since the time of the record at an offset of a partition, or of the next one."""
        topic, _, number = stream.rpartition(":")
        end = self.admin.ends([(topic, int(number))])[topic, int(number)]
        hasty = replace(self.client, patience=_SECONDS)
        for batch in RangeReader(hasty, PartitionRange(topic, int(number), sequence, end.next), most_bytes=1).batches():
            written = batch.column("timestamp")[0].as_py()
            return None if written is None else max(0.0, now - written.timestamp())
        return None


def _wrong_offsets(start: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a mistake for each topic without offsets by partition; -2 is the earliest offset, -1 the latest one."""
    for topic, offsets in start.items():
        if not isinstance(offsets, dict):
            yield Mistake(f"to.{topic}", f"expected offsets by partition, found {offsets!r}")
            continue
        for partition, offset in offsets.items():
            if decimal(partition, _LARGEST_PARTITION) is None or not is_whole(offset, -2):
                yield Mistake(f"to.{topic}.{partition}", f"expected a partition and its offset, found {offset!r}")
