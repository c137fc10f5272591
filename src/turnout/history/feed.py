"""Feeds: the messages of one subscription, read from the stream by the matches that a route's runs have stored.

No message is stored twice for a feed. A page looks up the sequences of the subscription's matches, fetches these
records from the stream, and puts them through the route for this subscription alone: the messages are those that its
destinations get, with their ids. The route is the current one; a record that it drops now is left out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from turnout.caches import LruCache
from turnout.conditions import any_of, exists, not_
from turnout.engine import Program, Result
from turnout.epoch import EPOCH
from turnout.errors import ConfigError, Mistake, SubscriptionNotFoundError
from turnout.nats.wire import Connection
from turnout.nats.wire.positions import StreamPosition, position_of, resolve
from turnout.nats.wire.rows import with_stream
from turnout.nats.wire.streams import stored_messages
from turnout.routes import Route
from turnout.runtime.checkpoint import checkpoint_of, local_folder
from turnout.runtime.committed_offsets import committed
from turnout.runtime.feeds.match_folder import MatchFolder, hash_of
from turnout.subscriptions import Snapshot, Subscription
from turnout.subscriptions.address import existing
from turnout.subscriptions.destinations import FEED
from turnout.subscriptions.index import Index
from turnout.subscriptions.store import Store, open_store
from turnout.untrusted import JsonObject

MOST_MESSAGES: Final = 1_000
"""Records of one page."""

_ALWAYS: Final = any_of(exists("topic"), not_(exists("topic")))
"""Condition that is true of every record: the matches are known already."""

_FEED_TOPIC: Final = "feed"
"""Topic that stands for the record's own while a message for a feed alone is made."""

_MESSAGE_ID: Final = "nats-msg-id"
"""Header that a sink replaces by the message's own id."""

_KEPT_INDEXES: Final = 1_000
_POLL_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """One message of a feed.

    Attributes:
        cursor: position behind this message: the sequence of its record in the route's stream.
        topic: the destination; for a feed without destination the record's topic after the mappings.
        id: id of the message, as its destination's stream has it.
        key: key of the record.
        value: as the route encodes it.
        headers: names and values; the record's own message id is not among them.
        timestamp: timestamp of the record, in microseconds since 1970.
    """

    cursor: int
    topic: str
    id: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None

    @property
    def time_text(self) -> str:
        """Time of the record in ISO 8601; "" if it has none."""
        if self.timestamp is None:
            return ""
        return (EPOCH + timedelta(microseconds=self.timestamp)).isoformat().replace("+00:00", "Z")

    def as_dict(self) -> JsonObject:
        """Return the message as JSON values; bytes that are no UTF-8 are ``keyBase64`` and ``valueBase64``."""
        return {
            "cursor": self.cursor,
            "topic": self.topic,
            "id": self.id,
            **_content("key", self.key),
            **_content("value", self.value),
            "headers": [[name, None if value is None else _text(value)] for name, value in self.headers],
            "timestamp": self.time_text or None,
        }


def _content(name: str, content: bytes | None) -> JsonObject:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(content).decode()}


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Part of a feed.

    Attributes:
        messages: in the order of the stream; of a record with several destinations, one for each.
        cursor: the sequence behind which the next page begins.
        is_last: whether the feed has nothing more at this moment.
    """

    messages: tuple[FeedMessage, ...]
    cursor: int
    is_last: bool


class FeedReader:
    """Reads the feeds of a route's subscriptions over one connection; one thread at a time may use it.

    Args:
        route: a route with ``feeds: true``.
        checkpoint: checkpoint of its runs; the route's own if not given.

    Raises:
        ConfigError: the route has no feeds, or its checkpoint is not on this machine.
        ConnectionLostError: the server of its source cannot be reached.
        SubscriptionStoreError: its store cannot be opened.
    """

    def __init__(self, route: Route, checkpoint: Path | None = None) -> None:
        folder = checkpoint or local_folder(str(checkpoint_of(route)))
        if route.subscriptions is None or not route.subscriptions.feeds:
            problem = "is not on, so that runs of the route store no matches: feeds: true"
            raise ConfigError([Mistake("subscriptions.feeds", problem)], what=f"route {route.name}")
        if folder is None:
            problem = "needs a checkpoint on this machine, where the matches are"
            raise ConfigError([Mistake("subscriptions.feeds", problem)], what=f"route {route.name}")
        self._checkpoint = folder
        self._matches = MatchFolder.beside(folder)
        (self._stream,) = route.source.streams
        self._program = Program.of(_quiet(route))
        self._indexes = LruCache[tuple[str, tuple[str, ...], str], Index](_KEPT_INDEXES)
        self._store: Store = open_store(existing(route.subscriptions.store))
        self._connection = Connection.open(route.nats_source().connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the store."""
        self._connection.close()
        self._store.close()

    def start(self, position: StreamPosition) -> int:
        """Return the cursor from which a feed begins at a place of the stream.

        Args:
            position: ``earliest``, ``latest``, a sequence or a time.

        Raises:
            ConfigError: it is no place.
        """
        self._reconnect()
        return resolve(self._connection, self._stream, position_of("from", position)) - 1

    def page(self, subscription_id: str, after: int, limit: int = 100) -> FeedPage:
        """Return the messages of the next records of a feed.

        Args:
            subscription_id: id of the subscription.
            after: the cursor: a sequence.
            limit: number of records.

        Raises:
            SubscriptionNotFoundError: there is no such subscription, or it was deleted.
            StreamError: the stream is not there.
            ConnectionLostError: the server does not answer.
        """
        return self._page(self._store.read(subscription_id), after, limit)

    def check(self, subscription_id: str) -> None:
        """Raise if there is no such subscription.

        Raises:
            SubscriptionNotFoundError: there is none of this id.
        """
        self._store.read(subscription_id)

    def follow(self, subscription_id: str, after: int, stop: Event, limit: int = 100) -> Iterator[FeedPage]:
        """Yield pages while the route runs, until *stop* is set or the subscription is deleted.

        A page without messages is a heartbeat. Messages that a subscription matched before its deletion are
        yielded.

        Raises:
            SubscriptionNotFoundError: it is deleted, and all of its feed is read.
        """
        subscription, deleted = self._store.read(subscription_id), None
        while not stop.is_set():
            try:
                subscription = self._store.read(subscription_id)
            except SubscriptionNotFoundError as error:
                deleted = error
            page = self._page(subscription, after, limit)
            after = page.cursor
            yield page
            if page.is_last:
                if deleted is not None:
                    raise deleted
                stop.wait(_POLL_SECONDS)

    def _page(self, subscription: Subscription, after: int, limit: int) -> FeedPage:
        until = committed(self._checkpoint).sequence(self._stream)
        limit = max(1, min(limit, MOST_MESSAGES))
        # One more than needed: shows whether this is the last page.
        found = self._matches.page(self._stream, hash_of(subscription.id), after, until, limit + 1)
        sequences, is_last = found[:limit].tolist(), len(found) <= limit
        cursor = max(after, until - 1) if is_last else sequences[-1]
        return FeedPage(tuple(self._messages(subscription, sequences)), cursor, is_last)

    def _messages(self, subscription: Subscription, sequences: list[int]) -> Iterator[FeedMessage]:
        if not sequences:
            return
        self._reconnect()
        batch = stored_messages(self._connection, self._stream, sequences)
        if batch.num_rows:
            result = self._program.run(with_stream(batch, self._stream), self._index(subscription))
            yield from _feed_messages(batch, result)

    def _index(self, subscription: Subscription) -> Index:
        destinations = tuple(_FEED_TOPIC if topic == FEED else topic for topic in subscription.destinations)
        only = Subscription(destinations, _ALWAYS, id=subscription.id, project=subscription.project)

        def build() -> Index:
            return Index.of(Snapshot((only,), self._store.revision()))

        return self._indexes.get_or_add((subscription.id, destinations, subscription.project), build)

    def _reconnect(self) -> None:
        if not self._connection.is_open:
            self._connection.reconnect()


def _quiet(route: Route) -> Route:
    """Return the route for messages that are read: whatever fails is left out, and nothing is refused by rights."""
    assert route.subscriptions is not None
    tolerant = replace(route.chain, errors=replace(route.chain.errors, tolerance="all", log=False))
    return replace(
        route,
        chain=tolerant,
        dead_letter=None,
        unmatched="drop",
        subscriptions=route.subscriptions.model_copy(update={"feeds": False}),
        sinks={name: sink.model_copy(update={"allow": None}) for name, sink in route.sinks.items()},
    )


def _feed_messages(batch: pa.RecordBatch, result: Result) -> Iterator[FeedMessage]:
    if result.sent is None:
        return
    messages, topics = result.messages, result.sent.topics
    sequences = batch.column("offset").to_pylist()
    rows = result.sent.deliveries.rows.tolist()
    times = messages.column("timestamp").cast(pa.int64()).to_pylist()
    columns = [messages.column(name).to_pylist() for name in ("key", "value", "headers")]
    fields = zip(rows, messages.topics.to_pylist(), messages.ids.to_pylist(), times, *columns, strict=True)
    for row, topic, id_, time, key, value, headers in fields:
        shown = topics[row] or "" if topic == _FEED_TOPIC else topic
        pairs = tuple(
            (header["key"], header["value"]) for header in headers or () if header["key"].lower() != _MESSAGE_ID
        )
        yield FeedMessage(sequences[row], shown, id_, key, value, pairs, time)
