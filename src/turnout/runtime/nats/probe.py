"""Checks of a nats-server that change nothing, except for a consumer in memory that is deleted immediately."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from turnout.base.terminal import first_names, plural
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.frames import ephemeral_config, next_request, pull_body
from turnout.nats.wire import Connection, DirectReader, PullReader, Range, create_consumer, delete_consumer, stream_info
from turnout.nats.wire.records import with_stream
from turnout.nats.wire.streams import StreamPosition, position_of, schedules_problem, storing_problem
from turnout.routes.endpoints import NatsSink, NatsSource
from turnout.runtime.endpoints import CheckOutput, EndpointProbe
from turnout.runtime.nats.sink import DELIVER_TO
from turnout.subjects import matches

if TYPE_CHECKING:
    from turnout.engine import Messages

_MOST_TOPICS = 100
_DENIED = 403
_NOT_FOUND = 404
_STREAM_NOT_FOUND = 10059
_INACTIVE_SECONDS = 10


class NatsProbe(EndpointProbe):
    """Probe of one NATS source or sink.

    Args:
        end: the source or the sink.
        seconds: how long to wait for an answer.
        connection: an open one, instead of `reach`.
    """

    def __init__(self, end: NatsSource | NatsSink, seconds: float, connection: Connection | None = None) -> None:
        self.end = end
        self.seconds = seconds
        self.connection = connection

    def close(self) -> None:
        """Close the connection, if one is open."""
        if self.connection is not None:
            self.connection.close()

    def reach(self) -> str:
        """Connect, and return the server's address and version as text.

        Raises:
            TurnoutError: no server can be reached, or it refuses the credentials.
        """
        options = self.end.connection
        options = replace(
            options,
            timeout=min(options.timeout, self.seconds),
            connect_timeout=min(options.connect_timeout, self.seconds),
            reconnect_timeout=self.seconds,
        )
        self.connection = Connection(options)
        self.connection.connect()
        return f"{self.connection.server}, nats-server {self.connection.info.get('version', 'of unknown version')}"

    @property
    def _open(self) -> Connection:
        assert self.connection is not None
        return self.connection

    @property
    def _source(self) -> NatsSource:
        return cast("NatsSource", self.end)

    # Reading

    def streams(self) -> Sequence[str]:
        """Return the source's streams."""
        return self._source.streams

    def latest(self, stream: str, count: int) -> tuple[list[pa.RecordBatch], str]:
        """Return the latest messages of a stream as record batches, read as a run reads them, and a summary.

        Raises:
            TurnoutError: the stream is not there, or may not be read.
        """
        state = self._info(stream)["state"]
        first, end = max(1, state["first_seq"]), state["last_seq"] + 1
        position = position_of("start", cast("StreamPosition", self._source.start))
        start = position.get(stream) if isinstance(position, Mapping) else position
        if isinstance(start, int) and start > end:
            raise StreamError(
                f"the start, {start:,}, is beyond the last message, {end - 1:,}: a run that begins there fails"
            )
        latest_range = Range(stream, max(first, end - count), end, self._source.filters)
        by_sequence = self._source.ack_consumer is not None
        if latest_range.end <= latest_range.start and not by_sequence:
            self._try_consumer(latest_range)
        reader = DirectReader(self._open, latest_range) if by_sequence else PullReader(self._open, latest_range)
        batches = [with_stream(batch, stream) for batch in reader.batches()]
        read = sum(batch.num_rows for batch in batches)
        return (
            batches,
            f"{state['messages']:,} messages, may be read; {read:,} of the latest {count:,} were{self._acks(stream)}",
        )

    def subjects(self, stream: str) -> list[str]:
        """Return the subjects that a stream captures; the messages of a mirror have other subjects.

        Raises:
            TurnoutError: the stream does not exist, or access is denied.
        """
        return list(self._info(stream)["config"].get("subjects") or ())

    def _info(self, stream: str) -> JsonObject:
        try:
            return stream_info(self._open, stream)
        except StreamError as failure:
            if failure.err_code != _STREAM_NOT_FOUND:
                raise
            names = self._streams({})
            names_text = f"; there are {first_names(names)}" if names else ""
            raise StreamError(f"there is no stream {stream!r}{names_text}", code=_NOT_FOUND) from None

    def _try_consumer(self, span: Range) -> None:
        """Check that a consumer may be created and pulled from, for a stream without messages to read."""
        config = ephemeral_config(None, span.filters, idle_seconds=_INACTIVE_SECONDS)
        name = create_consumer(self._open, span.stream, config)["name"]
        subject = self._open.api_subject(next_request(span.stream, name))
        self._open.request(subject, pull_body(1, no_wait=True), timeout=self.seconds)
        delete_consumer(self._open, span.stream, name)

    def _acks(self, stream: str) -> str:
        """Describe the durable consumer that acknowledges, if one is configured."""
        name = self._source.ack_consumer
        if name is None:
            return ""
        try:
            floor = self._open.api(f"CONSUMER.INFO.{stream}.{name}")["ack_floor"]["stream_seq"]
        except StreamError as failure:
            if failure.code != _NOT_FOUND:
                raise
            return f"; the consumer {name} will be made"
        return f"; the consumer {name} has acknowledged up to {floor}"

    # Publishing

    def sink_checks(
        self,
        topics: Sequence[str],
        messages: Sequence[Messages] = (),
    ) -> Iterator[tuple[str, CheckOutput]]:
        """Yield the checks of the streams and of the permissions."""
        sink = cast("NatsSink", self.end)
        stream = sink.stream
        if sink.schedules is not None:
            yield "schedules", lambda: self.schedules(str(sink.schedules), messages)
        yield "streams", lambda: self.streams_taking(topics, stream)
        yield "permissions", lambda: self.may_publish(topics)

    def streams_taking(self, topics: Sequence[str], stream: str | None) -> str:
        """Check that a stream, the requested one if any, captures each of these topics.

        Raises:
            StreamError: a stream is not there, or a topic is none of its subjects.
        """
        if stream is not None:
            self._check_stores(stream)
        try:
            owners = {topic: self._streams({"subject": topic}) for topic in topics[:_MOST_TOPICS]}
        except StreamError as failure:
            if failure.code != _DENIED:
                raise
            return f"could not be checked: {failure}"
        unowned = [
            topic for topic, names in owners.items() if not names or (stream is not None and stream not in names)
        ]
        if unowned:
            taken = "no stream takes" if stream is None else f"the stream {stream} of the sink does not take"
            raise StreamError(f"{first_names(unowned)}: {taken} messages there", code=_NOT_FOUND)
        if not owners:
            return "there is no topic to check: no record was sampled"
        streams = sorted({name for names in owners.values() for name in names})
        for name in streams[:_MOST_TOPICS]:
            self._check_stores(name)
        return f"{len(owners):,} topics of the sample and the dead letters belong to {first_names(streams)}"

    def schedules(self, subject: str, messages: Sequence[Messages]) -> str:
        """Check that a stream publishes waiting messages, and has the subjects of those in the sample.

        Raises:
            StreamError: it does not.
        """
        names = self._streams({"subject": f"{subject}.>"})
        if not names:
            raise StreamError(f"no stream takes {subject}.>, where messages wait until their times", code=_NOT_FOUND)
        found = {name: self._info(name)["config"] for name in names}
        for name, config in found.items():
            problem = schedules_problem(config)
            if problem is not None:
                raise StreamError(f"the stream {name!r} publishes no waiting messages: it {problem}")
        targets = {
            (pair["value"] or b"").decode("utf-8", "replace")
            for some in messages
            for pairs in some.column("headers").to_pylist()
            for pair in pairs or ()
            if pair["key"] == DELIVER_TO
        }
        patterns = [pattern for config in found.values() for pattern in config.get("subjects") or ()]
        others = sorted(target for target in targets if not any(matches(pattern, target) for pattern in patterns))
        if others:
            problem = f"a schedule of the stream {first_names(names)} publishes in that stream alone"
            raise StreamError(f"{first_names(others)}: {problem}", code=_NOT_FOUND)
        return f"{first_names(names)} publishes waiting messages at their times, up to 0.25 s late"

    def _check_stores(self, stream: str) -> None:
        """Check that a stream stores what is published, and acknowledges it.

        Raises:
            StreamError: it does not.
        """
        problem = storing_problem(self._info(stream)["config"])
        if problem is not None:
            raise StreamError(f"the stream {stream!r} {problem}")

    def _streams(self, request: Mapping[str, object]) -> list[str]:
        return list(self._open.api("STREAM.NAMES", request).get("streams") or ())

    def may_publish(self, topics: Sequence[str]) -> str:
        """Check the user's publish permissions as the server reports them; nothing is published.

        Raises:
            StreamError: it may not.
        """
        try:
            response = self._open.request("$SYS.REQ.USER.INFO", timeout=self.seconds)
            user = json.loads(response.payload or b"{}").get("data", {})
        except (StreamError, ConnectionLostError) as failure:
            return f"could not be checked: {failure}"
        publish = (user.get("permissions") or {}).get("publish") or {}
        refused = [topic for topic in topics if not _allowed(topic, publish)]
        if refused:
            problem = f"the user {user.get('user', '')!r} may not publish to {first_names(refused)}"
            raise StreamError(problem, code=_DENIED)
        return f"{plural(len(topics), 'topic')} may be published to" if topics else "no topic to check"


def _allowed(topic: str, permissions: JsonMapping) -> bool:
    allow, deny = permissions.get("allow"), permissions.get("deny") or ()
    if any(matches(subject, topic) for subject in deny):
        return False
    return not allow or any(matches(subject, topic) for subject in allow)
