"""Feeds: the messages of one subscription, read from the stream by the matches that a route's runs have stored.

No message is stored twice for a feed. A page looks up the sequences of the subscription's matches, fetches these
records from the stream, and puts them through the route for this subscription alone: the messages are those that its
destinations get, with their ids. The route is the current one; a record that it drops now is left out. Of a Kafka
topic the partitions take turns: each gives its next match after the others have given one, if they have any. So do
several streams or topics.
"""

from __future__ import annotations

import base64
import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final, Self

import numpy as np
import pyarrow as pa

from turnout.base.caches import LruCache
from turnout.base.clocks import EPOCH
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject
from turnout.conditions import any_of, exists, not_
from turnout.engine import Program, Result
from turnout.errors import ConfigError, Mistake, SubscriptionNotFoundError
from turnout.nats.wire.streams import StreamPosition
from turnout.routes import Route
from turnout.runtime.backfill import pending_positions
from turnout.runtime.checkpoint import checkpoint_of, local_folder
from turnout.runtime.cursors import FeedCursor, split_part, with_part
from turnout.runtime.endpoints import FeedRecords, RecordKey, adapter_of
from turnout.runtime.matches import MatchFolder, Sequences, hash_of
from turnout.runtime.offsets import Offsets, committed
from turnout.subscriptions import Snapshot, Subscription
from turnout.subscriptions.destinations import FEED
from turnout.subscriptions.index import Index
from turnout.subscriptions.store import Store, open_store
from turnout.subscriptions.store_url import existing

_log = logging.getLogger(__name__)

MOST_MESSAGES: Final = 1_000
"""Records of one page."""

_ALWAYS: Final = any_of(exists("topic"), not_(exists("topic")))
"""Condition that is true of every record: the matches are known already."""

_FEED_TOPIC: Final = "feed"
"""Topic that stands for the record's own while a message for a feed alone is made."""

_KEPT_INDEXES: Final = 1_000
_END_CHECK_SECONDS: Final = 5.0
"""Seconds between two checks that a followed feed's cursor is not beyond the end of its stream."""

_POLL_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """One message of a feed.

    Attributes:
        cursor: position behind this message: the sequence of its record, or positions in several streams; behind a
            message that is not the last of its record also the number of the messages.
        topic: the destination; for a feed without destination the record's topic after the mappings.
        id: id of the message, as its destination's stream has it.
        key: key of the record.
        value: as the route encodes it.
        headers: names and values; the record's own message id is not among them.
        timestamp: timestamp of the record, in microseconds since 1970.
    """

    cursor: FeedCursor
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
            "headers": [
                [name, None if value is None else value.decode("utf-8", "replace")] for name, value in self.headers
            ],
            "timestamp": self.time_text or None,
        }


def _content(name: str, content: bytes | None) -> JsonObject:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(content).decode()}


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Part of a feed.

    Attributes:
        messages: in the order of the stream; of a record with several destinations, one for each.
        cursor: the position behind which the next page begins.
        is_last: whether the feed has nothing more at this moment.
        removed: number of records of this page that the stream no longer holds.
    """

    messages: tuple[FeedMessage, ...]
    cursor: FeedCursor
    is_last: bool
    removed: int = 0


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
        self._replaced = frozenset().union(*(sink.replaced_headers for sink in route.sinks.values()))
        self._program = Program.of(_quiet(route))
        self._indexes = LruCache[tuple[str, tuple[str, ...], str], Index](_KEPT_INDEXES)
        self._store: Store = open_store(existing(route.subscriptions.store))
        self._records: FeedRecords = adapter_of(route.source).feed_records()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the store."""
        self._records.close()
        self._store.close()

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the cursor from which a feed begins at a position of the source.

        Args:
            position: ``earliest``, ``latest``, a time, or a sequence of a stream.

        Raises:
            ConfigError: it is no position.
        """
        return self._records.start(position)

    def page(self, subscription_id: str, after: FeedCursor, limit: int = 100) -> FeedPage:
        """Return the messages of the next records of a feed.

        Args:
            subscription_id: id of the subscription.
            after: the cursor of a message or page; 0 for the beginning.
            limit: number of records.

        Raises:
            SubscriptionNotFoundError: there is no such subscription, or it was deleted.
            ConfigError: the cursor is of another kind of source, or beyond the end of a stream.
            StreamError: the stream is not there.
            ConnectionLostError: the server does not answer.
        """
        subscription = self._store.read(subscription_id)
        self._check_end(after)
        return self._page(subscription, after, limit)

    def check(self, subscription_id: str, cursor: FeedCursor) -> None:
        """Raise if a subscription has no such cursor.

        Raises:
            SubscriptionNotFoundError: there is none of this id.
            ConfigError: the cursor is of another kind of source, or beyond the end of a stream.
        """
        self._store.read(subscription_id)
        self._check_end(cursor)

    def identity_texts(self) -> dict[str, str]:
        """Return what distinguishes each stream or topic from others of its name, as the runs have noted it."""
        return committed(self._checkpoint).identity_texts

    def reachable(self, cursor: FeedCursor) -> FeedCursor:
        """Return a reader's cursor, at the beginning of each stream that it is beyond the end of.

        A warning says so. Such a stream has older data than before, or is another one.
        """
        record, part = split_part(cursor)
        at = self._records.offsets(record)
        beyond = self._beyond(at)
        if not beyond:
            return cursor
        for stream, end in beyond.items():
            _log.warning("a feed's reader begins again in %s: %s", stream, _beyond_text(stream, at[stream], end))
        kept = {stream: position for stream, position in at.items() if stream not in beyond}
        within = list(at)[part[0]] if part is not None else ""
        known = self._records.cursor(kept)
        return known if part is None or within not in kept else with_part(known, list(kept).index(within), part[1])

    def _check_end(self, cursor: FeedCursor) -> None:
        """Raise if a cursor is beyond the end of a stream, where it would wait for other messages to take its place."""
        at = self._records.offsets(split_part(cursor)[0])
        mistakes = [
            Mistake("after", f"{_beyond_text(stream, at[stream], end)}; begin again with 0")
            for stream, end in self._beyond(at).items()
        ]
        if mistakes:
            raise ConfigError(mistakes, what="bad cursor")

    def _beyond(self, at: Mapping[str, int]) -> dict[str, int]:
        """Return the ends of those streams that end before a position, which runs of the route have not reached."""
        done = committed(self._checkpoint)
        ahead = [stream for stream, position in at.items() if position > 0 and position >= done.sequence(stream)]
        ends = self._records.ends(ahead) if ahead else {}
        return {stream: end for stream, end in ends.items() if at[stream] >= end}

    def follow(self, subscription_id: str, after: FeedCursor, stop: Event, limit: int = 100) -> Iterator[FeedPage]:
        """Yield pages while the route runs, until *stop* is set or the subscription is deleted.

        A page without messages is a heartbeat. Messages that a subscription matched before its deletion are
        yielded.

        Raises:
            SubscriptionNotFoundError: it is deleted, and all of its feed is read.
            ConfigError: the cursor is beyond the end of a stream, also of one that is replaced meanwhile.
        """
        subscription, deleted = self._store.read(subscription_id), None
        checked = -math.inf
        while not stop.is_set():
            if monotonic() - checked > _END_CHECK_SECONDS:
                self._check_end(after)
                checked = monotonic()
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

    def _page(self, subscription: Subscription, after: FeedCursor, limit: int) -> FeedPage:
        done = committed(self._checkpoint)
        record, part = split_part(after)
        at = self._records.offsets(record)
        begun = ""
        already_read: dict[RecordKey, int] = {}
        if part is not None:
            # The record at the cursor is read again, and the messages that its reader has are left out.
            begun = list(at)[part[0]]
            already_read[begun, at[begun]] = part[1]
            at[begun] -= 1
        streams = self._records.streams(done)
        # Earlier records that come late are not passed over: the feed waits for them.
        pending = pending_positions(self._checkpoint, subscription, streams)
        ends = {stream: min(done.sequence(stream), pending.get(stream, LARGEST_SEQUENCE)) for stream in streams}
        limit = max(1, min(limit, MOST_MESSAGES))
        spans = {done.label(stream): (at.get(stream, -1), ends[stream]) for stream in streams}
        # One more than needed: shows whether this is the last page.
        found = self._matches.pages(hash_of(subscription.id), spans, limit + 1)
        keys = _in_turns({stream: found[done.label(stream)] for stream in streams}, next(reversed(at), ""), begun)
        is_last = len(keys) <= limit
        cursors: dict[RecordKey, _RecordCursors] = {}
        for stream, sequence in keys[:limit]:
            within = {**at, stream: sequence}
            at.pop(stream, None)
            at[stream] = sequence
            parts = (list(within).index(stream), already_read.get((stream, sequence), 0))
            cursors[stream, sequence] = _RecordCursors(self._records.cursor(within), *parts, self._records.cursor(at))
        if is_last:
            # Without a match in a stream its turn stays where it was.
            at = dict.fromkeys([stream for stream in streams if stream not in at], -1) | at
            at = {stream: max(position, ends.get(stream, 0) - 1) for stream, position in at.items()}
            at = {stream: position for stream, position in at.items() if position >= 0}
        messages, removed = self._messages(subscription, cursors, done)
        return FeedPage(messages, self._records.cursor(at), is_last, removed)

    def _messages(
        self, subscription: Subscription, cursors: Mapping[RecordKey, _RecordCursors], done: Offsets
    ) -> tuple[tuple[FeedMessage, ...], int]:
        """Return the messages of records, and how many of these are no longer held."""
        if not cursors:
            return (), 0
        keys, batch = self._records.read(list(cursors), done)
        removed = len(cursors) - len(keys)
        if not keys:
            return (), removed
        result = self._program.run(batch, self._index(subscription))
        return tuple(_feed_messages([cursors[key] for key in keys], result, replaced=self._replaced)), removed

    def _index(self, subscription: Subscription) -> Index:
        destinations = tuple(_FEED_TOPIC if topic == FEED else topic for topic in subscription.destinations)
        only = Subscription(destinations, _ALWAYS, id=subscription.id, project=subscription.project)

        def build() -> Index:
            return Index.of(Snapshot((only,), self._store.revision()))

        return self._indexes.get_or_add((subscription.id, destinations, subscription.project), build)


def _beyond_text(stream: str, position: int, end: int) -> str:
    return (
        f"{position} is beyond the end of {stream}, which ends at {end - 1}: the stream was made anew or has older data"
        " than before, or the cursor is not of it"
    )


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


def _in_turns(found: Mapping[str, Sequences], last: str, begun: str = "") -> list[RecordKey]:
    """Return the matches of all streams, one of each in turn, from the stream *begun*, or that behind *last*."""
    names = list(found)
    begin = names.index(begun) if begun in found else names.index(last) + 1 if last in found else 0
    names = names[begin:] + names[:begin]
    sequences = np.concatenate([np.zeros(0, np.int64), *(found[name] for name in names)])
    counts = [len(found[name]) for name in names]
    rounds = np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)])
    turns = np.repeat(np.arange(len(names)), counts)
    order = np.lexsort((turns, rounds))
    return [(names[turn], at) for turn, at in zip(turns[order].tolist(), sequences[order].tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class _RecordCursors:
    """Cursors of the messages of one record.

    Attributes:
        within: cursor at the record, without the number of messages.
        index: the record's entry in it.
        read: number of its messages that the reader has already.
        behind: cursor behind the record.
    """

    within: FeedCursor
    index: int
    read: int
    behind: FeedCursor

    def at(self, number: int, of: int) -> FeedCursor:
        """Return the cursor behind the message *number*, counted from 1."""
        return self.behind if number == of else with_part(self.within, self.index, number)


def _feed_messages(
    cursors: Sequence[_RecordCursors], result: Result, *, replaced: frozenset[str]
) -> Iterator[FeedMessage]:
    """Yield the messages of a result in the order of its records, without replaced headers.

    Args:
        cursors: cursors of each record.
        result: messages of the records.
        replaced: names of headers, in lower case.
    """
    if result.sent is None:
        return
    messages, topics = result.messages, result.sent.topics
    rows = result.sent.deliveries.rows.tolist()
    times = messages.column("timestamp").cast(pa.int64()).to_pylist()
    columns = [messages.column(name).to_pylist() for name in ("key", "value", "headers")]
    fields = zip(rows, messages.topics.to_pylist(), messages.ids.to_pylist(), times, *columns, strict=True)
    counts = Counter(rows)
    numbers = Counter[int]()
    for row, topic, id_, time, key, value, headers in sorted(fields, key=itemgetter(0)):
        numbers[row] += 1
        if numbers[row] <= cursors[row].read:
            continue
        shown = topics[row] or "" if topic == _FEED_TOPIC else topic
        pairs = tuple(
            (header["key"], header["value"]) for header in headers or () if header["key"].lower() not in replaced
        )
        cursor = cursors[row].at(numbers[row], counts[row])
        yield FeedMessage(cursor, shown, id_, key, value, pairs, time)
