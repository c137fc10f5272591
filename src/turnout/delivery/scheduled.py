"""The leader of a delay stream: it publishes the messages that wait there, each at its time."""

from __future__ import annotations

import asyncio
import base64
import heapq
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from turnout.base.clocks import parse_time
from turnout.base.histogram import Histogram
from turnout.base.untrusted import decimal
from turnout.delivery.streams import Shares
from turnout.engine.deliveries import Addresses
from turnout.engine.messages import CONNECT_PREFIX, ListedMessages
from turnout.engine.scheduling import AT, IDENTITY, KEY, NO_VALUE, SINK, TIME, TO, WAITING, token_of
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.loops import compile_loops
from turnout.nats.jetstream import (
    ConsumerConfig,
    JetStream,
    KeyValueConfig,
    Message,
    OrderedSubscription,
    Stream,
    connect,
)
from turnout.nats.jetstream.config import RawMessage
from turnout.nats.jetstream.errors import SubscriptionClosedError
from turnout.nats.protocol.headers import Headers
from turnout.routes import Route
from turnout.routes.document import ScheduledPart
from turnout.routes.endpoints import KafkaSink, NatsSink
from turnout.runtime.kafka.publisher import KafkaSinkOptions
from turnout.runtime.nats.sink import SinkOptions
from turnout.runtime.preflight import make_delay_stream
from turnout.runtime.publishing import SinkPublisher

_log = logging.getLogger(__name__)

LEASE_SECONDS: Final = 6.0
"""Length of the lease, and time to live of its key: so long after the end of a leader another one leads."""

_RETRY_SECONDS: Final = 0.5
_REFUSED_SECONDS: Final = 60.0
"""Pause before a message is published again that its server has refused, and that has no dead letter topic."""

_MOST_AT_ONCE: Final = 500
_POLL_SECONDS: Final = 0.25


@dataclass(slots=True)
class ScheduledCounts:
    """Numbers of a leader since it began.

    Attributes:
        published: messages that their sinks have stored.
        cancelled: messages that were cancelled or replaced before their time.
        refused: messages that their sinks refused.
        late: how long after its time each was stored.
    """

    published: int = 0
    cancelled: int = 0
    refused: int = 0
    late: Histogram = field(default_factory=Histogram)


@dataclass(order=True, frozen=True, slots=True)
class _Waiting:
    """Message that waits: when it is due, in microseconds since 1970, and where it is."""

    due: int
    sequence: int
    subject: str = field(compare=False)


class DelayLeader:
    """Publishes the messages of a route's delay stream while it holds the lease.

    Args:
        route: the route, with a delay stream.
        js: server of the delay stream.
        stream: the delay stream.
        lease: the right to publish, as the one share of this work.
    """

    def __init__(self, route: Route, js: JetStream, stream: Stream, lease: Shares) -> None:
        assert route.scheduled is not None
        self.route = route
        self.counts = ScheduledCounts()
        self._lease = lease
        self._part = route.scheduled
        self._js, self._stream = js, stream
        self._addresses = Addresses(route)
        self._heap: list[_Waiting] = []
        self._changed = asyncio.Event()
        self._stored: set[int] = set()
        """Sequences of published messages whose deletion is not confirmed."""
        self._deleting: set[asyncio.Task[None]] = set()
        self._publishers: dict[int, SinkPublisher] = {}

    @property
    def leads(self) -> bool:
        """True while no other process can publish."""
        return self._lease.is_valid and 0 in self._lease.owned

    async def _takes(self) -> bool:
        """Take or renew the lease; return whether it is held."""
        with suppress(StreamError, ConnectionError):
            await self._lease.step()
        return self.leads

    @property
    def pending(self) -> int:
        """Number of messages that wait, as far as this leader has read; cancelled ones count until their time."""
        return len(self._heap)

    @property
    def late_seconds(self) -> float:
        """Seconds for which the message that is published next has been due; 0 if it is not yet."""
        return max(0.0, time.time() - self._heap[0].due / 1e6) if self._heap else 0.0

    async def run(self, stop: threading.Event) -> None:
        """Lead whenever the lease can be taken, until *stop* is set.

        Raises:
            StreamError: the stream or its bucket is no longer there.
        """
        try:
            while not stop.is_set():
                if await self._takes():
                    await self._lead(stop)
                else:
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            await self._lease.leave()
            await self._close()

    async def _lead(self, stop: threading.Event) -> None:
        """Read and publish while the lease is held."""
        self._heap.clear()
        await self._open()
        config = ConsumerConfig(headers_only=True)
        reading = await self._js.ordered(f"{self._part.subject}.>", stream=self._stream.name, config=config)
        tasks = [asyncio.create_task(self._read(reading)), asyncio.create_task(self._renew())]
        try:
            while not stop.is_set() and self.leads:
                for task in tasks:
                    if task.done():
                        task.result()
                await self._publish_due()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*self._deleting, return_exceptions=True)
            await reading.unsubscribe()

    async def _renew(self) -> None:
        while await self._takes():
            await asyncio.sleep(self._lease.pause)

    async def _read(self, reading: OrderedSubscription) -> None:
        with suppress(SubscriptionClosedError):
            while True:
                message = await reading.next(None)
                due = _due_of(message)
                if due is None:
                    text = "the delay stream %s has a message on %s without a time: it is not published"
                    _log.warning(text, self._stream.name, message.subject)
                    continue
                waiting = _Waiting(due, message.sequence, message.subject)
                heapq.heappush(self._heap, waiting)
                if self._heap[0] is waiting:
                    self._changed.set()

    async def _publish_due(self) -> None:
        """Publish the messages that are due, or wait until the next one is."""
        now = time.time_ns() // 1_000
        due: list[_Waiting] = []
        while self._heap and self._heap[0].due <= now and len(due) < _MOST_AT_ONCE:
            due.append(heapq.heappop(self._heap))
        if due:
            try:
                await self._publish(due)
            except (StreamError, ConnectionError) as failure:
                _log.warning("messages of %s could not be published, and are tried again: %s", self.route.name, failure)
                await self._close()
                await asyncio.sleep(_RETRY_SECONDS)
            return
        self._changed.clear()
        pause = min(_POLL_SECONDS, (self._heap[0].due - now) / 1e6) if self._heap else _POLL_SECONDS
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), pause)

    async def _publish(self, due: list[_Waiting]) -> None:
        """Publish messages and delete them; those whose fate is not known are back in the heap.

        Raises:
            StreamError: a server takes no messages at all.
            ConnectionLostError: no reconnection in time.
        """
        open_ = {waiting.sequence: waiting for waiting in due}
        try:
            fresh = [waiting for waiting in due if waiting.sequence not in self._stored]
            # Those that were cancelled or replaced are not there any more.
            found = await self._stream.get_messages([waiting.sequence for waiting in fresh])
            by_sink: dict[int, list[tuple[_Waiting, RawMessage]]] = {}
            for waiting, message in zip(fresh, found, strict=True):
                if message is None:
                    self.counts.cancelled += 1
                    del open_[waiting.sequence]
                    continue
                by_sink.setdefault(self._sink_of(message), []).append((waiting, message))
            # The lease may have ended while messages were read, as after SIGSTOP.
            if not self.leads:
                return
            refused = await asyncio.gather(*(self._send(sink, some) for sink, some in by_sink.items()))
            now = time.time()
            for waiting, reason in (one for some in refused for one in some):
                self._refuse(open_.pop(waiting.sequence), reason)
            stored = [waiting for waiting in fresh if waiting.sequence in open_]
            self._stored.update(waiting.sequence for waiting in stored)
            self.counts.published += len(stored)
            self.counts.late += Histogram.of_each((max(0.0, now - waiting.due / 1e6), 1) for waiting in stored)
            # What is due next does not wait for it.
            deleting = asyncio.create_task(self._delete_all(list(open_.values())))
            self._deleting.add(deleting)
            deleting.add_done_callback(self._deleting.discard)
            open_.clear()
        finally:
            for waiting in open_.values():
                heapq.heappush(self._heap, waiting)

    def _sink_of(self, message: RawMessage) -> int:
        """Return the index of a message's sink; one that the route has no more is the first, which refuses it."""
        name = message.header(SINK)
        return self._addresses.sinks.index(name) if name in self._addresses.sinks else 0

    async def _send(self, sink: int, some: Sequence[tuple[_Waiting, RawMessage]]) -> list[tuple[_Waiting, StreamError]]:
        """Publish messages to one sink, and return those that it refuses."""
        refused = await self._store(sink, [message for _, message in some])
        if refused and self.route.dead_letter is not None:
            await self._bury(some, refused)
            self.counts.refused += len(refused)
            return []
        return [(some[index][0], reason) for index, reason in refused.items()]

    async def _bury(self, some: Sequence[tuple[_Waiting, RawMessage]], refused: dict[int, StreamError]) -> None:
        """Store dead letters in place of refused messages.

        Raises:
            StreamError: the sink does not store one.
        """
        assert self.route.dead_letter is not None
        sink, topic = self._addresses.split(self.route.dead_letter.topic)
        letters = [_letter(some[index][1], topic, str(reason)) for index, reason in refused.items()]
        for reason in (await self._store(sink, letters)).values():
            raise StreamError(f"a dead letter cannot be written to {topic!r}: {reason}")

    async def _store(self, sink: int, messages: Sequence[RawMessage]) -> dict[int, StreamError]:
        """Publish messages to one sink, wait until each is stored or refused, and return those that are refused."""
        publisher, refused = self._publisher(sink), dict[int, StreamError]()

        def send() -> None:
            publisher.send(_messages_of(messages), refused.__setitem__)
            publisher.flush()

        await asyncio.to_thread(send)
        return refused

    def _refuse(self, waiting: _Waiting, reason: StreamError) -> None:
        """Let a refused message wait for a further attempt, as there is no other place for it."""
        self.counts.refused += 1
        text = "a message of %s on %s is refused, and tried again in %.0f s, as the route has no deadLetter: %s"
        _log.error(text, self._stream.name, waiting.subject, _REFUSED_SECONDS, reason)
        again = time.time_ns() // 1_000 + round(_REFUSED_SECONDS * 1e6)
        heapq.heappush(self._heap, _Waiting(again, waiting.sequence, waiting.subject))

    async def _delete_all(self, stored: Sequence[_Waiting]) -> None:
        """Delete published messages; if that fails, they are in the heap again, for that alone."""
        try:
            await self._stream.delete_messages([waiting.sequence for waiting in stored])
        except (StreamError, ConnectionError):
            again = time.time_ns() // 1_000 + round(_RETRY_SECONDS * 1e6)
            for waiting in stored:
                heapq.heappush(self._heap, replace(waiting, due=again))
        else:
            self._stored.difference_update(waiting.sequence for waiting in stored)

    def _publisher(self, sink: int) -> SinkPublisher:
        if sink not in self._publishers:
            end = list(self.route.sinks.values())[sink]
            if isinstance(end, NatsSink):
                self._publishers[sink] = SinkOptions.of(end).publisher()
            elif isinstance(end, KafkaSink):
                self._publishers[sink] = KafkaSinkOptions.of(end).at_least_once().publisher()
            else:
                raise StreamError(f"messages wait for a sink of format {end.format}, which takes none later")
        return self._publishers[sink]

    async def _open(self) -> None:
        """Connect to the sinks before anything is due; what fails is tried again with the first message."""
        for number, sink in enumerate(self.route.sinks.values()):
            if sink.can_wait:
                with suppress(StreamError, ConnectionError):
                    await asyncio.to_thread(self._publisher, number)
        # The first message would wait for it.
        await asyncio.to_thread(compile_loops)

    async def _close(self) -> None:
        publishers, self._publishers = list(self._publishers.values()), {}
        for publisher in publishers:
            with suppress(StreamError, ConnectionError):
                await asyncio.to_thread(publisher.close)


def _due_of(message: Message) -> int | None:
    """Return the time of a message in microseconds since 1970; None if it has none."""
    with suppress(ValueError):
        return round(parse_time(message.header(AT)).timestamp() * 1e6)
    return None


def _messages_of(found: Sequence[RawMessage]) -> ListedMessages:
    """Return messages in the form in which sinks take them."""
    keys = [message.headers.get(KEY) for message in found]
    return ListedMessages(
        [message.header(TO) for message in found],
        [message.header(IDENTITY) or None for message in found],
        range(len(found)),
        [None if message.header(NO_VALUE) else message.data for message in found],
        [_pairs(message) for message in found],
        [None if key is None else base64.b64decode(key[0]) for key in keys],
        [-1] * len(found),
        [decimal(message.header(TIME)) for message in found],
    )


def _pairs(message: RawMessage) -> list[tuple[str | None, bytes | None]]:
    removed = {*WAITING, "Nats-Msg-Id", "Nats-Expected-Stream"}
    return [
        (name, value.encode("utf-8", "surrogateescape"))
        for name, values in message.headers.items()
        if name not in removed
        for value in values
    ]


def _letter(message: RawMessage, topic: str, reason: str) -> RawMessage:
    """Return the dead letter of a message, with what its sink has said."""
    line = reason.encode("ascii", "backslashreplace").decode().replace("\n", " ").replace("\r", " ")
    more: Headers = {
        TO: [topic],
        IDENTITY: [f"{message.header(IDENTITY)}:dead"],
        f"{CONNECT_PREFIX}topic": [message.header(TO)],
        f"{CONNECT_PREFIX}exception.message": [line[:10_000]],
    }
    return replace(message, headers={**message.headers, **more})


def scheduled_of(route: Route) -> ScheduledPart:
    """Return the route's block.

    Raises:
        ConfigError: no message of the route is delivered later.
    """
    if route.scheduled is None:
        problem = f"the route {route.name} has none, and no sink with delay or deliverAt"
        raise ConfigError([Mistake("scheduled", problem)])
    return route.scheduled


def _holder(route: Route) -> NatsSink:
    """Return the sink whose server has the messages that wait."""
    part = scheduled_of(route)
    name = part.sink_name({name: sink.format for name, sink in route.sinks.items()})
    sink = None if name is None else route.sinks[name]
    if not isinstance(sink, NatsSink):
        raise ConfigError([Mistake("scheduled.sink", "needs a sink of format nats, which has the messages that wait")])
    return sink


@asynccontextmanager
async def opened_leader(route: Route) -> AsyncIterator[DelayLeader]:
    """Connect to the server of a route's delay stream, and make the stream and the lease's bucket unless they exist.

    Raises:
        ConfigError: the route has no delay stream.
        StreamError: the server refuses one of them.
        ConnectionLostError: it cannot be reached.
    """
    part = scheduled_of(route)
    if part.stream is None:
        problem = "the route has no delay stream: the servers of its sinks publish waiting messages by themselves"
        raise ConfigError([Mistake("scheduled.stream", problem)])
    await asyncio.to_thread(make_delay_stream, route)
    async with connect(_holder(route).connection) as js:
        stream = await js.stream(part.stream)
        bucket = await js.create_key_value(KeyValueConfig(bucket=f"{part.stream}-leader", ttl=LEASE_SECONDS))
        lease = Shares(bucket, "leader", js.connection.unique(), 1, LEASE_SECONDS)
        yield DelayLeader(route, js, stream, lease)


async def _streams(js: JetStream, part: ScheduledPart) -> list[Stream]:
    """Return the streams with the route's waiting messages."""
    names = [part.stream] if part.stream is not None else await js.stream_names(f"{part.subject}.>")
    return [await js.stream(name) for name in names]


async def pending(route: Route) -> int:
    """Return the number of messages that wait in the delay stream, or in the streams of the first sink of format nats.

    Raises:
        StreamError: there is no such stream.
        ConnectionLostError: the server cannot be reached.
    """
    part = scheduled_of(route)
    async with connect(_holder(route).connection) as js:
        total = 0
        for stream in await _streams(js, part):
            # Far behind the last page the answer has the number alone.
            body = {"subjects_filter": f"{part.subject}.>", "offset": 1 << 30}
            total += int((await js.api.call(f"STREAM.INFO.{stream.name}", body)).get("total", 0))
        return total


async def cancel(route: Route, identities: Sequence[str]) -> dict[str, int]:
    """Remove waiting messages by their ids, and return how many each id had.

    A message whose time has come may be published at the same moment.

    Raises:
        StreamError: the server refuses to remove one.
        ConnectionLostError: the server cannot be reached.
    """
    part = scheduled_of(route)
    removed = dict.fromkeys(identities, 0)
    async with connect(_holder(route).connection) as js:
        for stream in await _streams(js, part):
            for identity in removed:
                removed[identity] += await stream.purge(f"{part.subject}.{token_of(identity)}.*")
    return removed


async def publish_scheduled(
    route: Route, stop: threading.Event, ready: Callable[[DelayLeader], None] = lambda _: None
) -> ScheduledCounts:
    """Publish the messages of a route's delay stream until *stop* is set, also over failures of servers.

    Args:
        route: the route.
        stop: ends it.
        ready: called with the leader before it begins.

    Raises:
        ConfigError: the route has no delay stream.
        StreamError: the server refuses the stream.
    """
    async with opened_leader(route) as leader:
        ready(leader)
        await leader.run(stop)
        return leader.counts
