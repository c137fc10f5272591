"""A record through a route's engine, without Spark and without delivering anything."""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Self

from turnout.engine import Program
from turnout.engine.explain import RecordExplanation, explain
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import ConfigError, Mistake, StoreUnavailableError, StreamError, SubscriptionNotFoundError
from turnout.history.dead_letters import DeadLetter, LetterBox, is_wanted, masked_letter, meeting, read
from turnout.history.diff.diff import effect_of, import_report
from turnout.history.masking import hidden_anywhere, masked_explanation
from turnout.records.text import readable
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.preflight import preflight_of_reachable
from turnout.server.errors import ConflictError
from turnout.server.routes.table import RouteEntry
from turnout.subscriptions import Store, Subscription, open_store
from turnout.subscriptions.import_set import Effect
from turnout.subscriptions.index import Index
from turnout.subscriptions.matcher import LiveMatcher
from turnout.subscriptions.past import Snapshot
from turnout.subscriptions.store import STORE_SECONDS, remaining
from turnout.subscriptions.store_url import existing, without_timeout

REACH = 20_000
"""Maximum number of messages to read of the stream of dead letters, from its end."""


def newest(route: Route, *, done: bool = False, where: str = "", masked: bool = False) -> list[DeadLetter]:
    """Return the dead letters among the last `REACH` messages of their stream, the newest first.

    Args:
        route: route of the letters.
        done: also those that a redrive has delivered.
        where: only those whose records meet this condition, as they came; "" for all.
        masked: refuse a condition on what the route masks.

    Raises:
        ConditionError: *where* cannot be read.
        ConflictError: the route sets nothing aside.
        ConfigError: its dead letters cannot be read.
        StreamError: no stream takes them.
        ConnectionLostError: the server is away.
    """
    _check(route)
    box = LetterBox.of(route)
    letters = read(route, start=box.newest(REACH), done=done)[::-1]
    return meeting(route, letters, where, strict=masked) if where.strip() else letters


def visible(
    route: Route,
    letters: Iterable[DeadLetter],
    *,
    masked: bool,
    stage: str | None = None,
    reason: str | None = None,
) -> list[DeadLetter]:
    """Return the selected letters, with hidden fields masked if requested.

    Args:
        route: route of the letters.
        letters: as they were read.
        masked: hide the fields that the route masks.
        stage: only those that failed there.
        reason: only those with this text in their reason as it is shown: one that is hidden is not searched.
    """
    if masked:
        hidden = hidden_anywhere(route.chain)
        letters = (masked_letter(letter, hidden) for letter in letters)
    return [letter for letter in letters if is_wanted(letter, stage, reason)]


def page_of(letters: Iterable[DeadLetter], before: int | None, limit: int) -> tuple[list[DeadLetter], int | None]:
    """Return a page of letters, those of the highest sequences first, and the sequence that ends it.

    Partitions of Kafka have sequences of their own: letters that share one share a page, which may be longer.

    Args:
        letters: all of them.
        before: only letters below this sequence; None for the first page.
        limit: letters of a page.

    Returns:
        The letters, and the sequence below which the next page begins; None on the last page.
    """
    older = [letter for letter in letters if before is None or letter.sequence < before]
    older.sort(key=lambda letter: -letter.sequence)
    while limit < len(older) and older[limit].sequence == older[limit - 1].sequence:
        limit += 1
    return older[:limit], older[limit - 1].sequence if limit < len(older) else None


def chosen(letters: Iterable[DeadLetter], sequences: Sequence[int] | None, stream: str | None) -> list[DeadLetter]:
    """Return the letters of a stream, or partition, with these sequences; None for any.

    Raises:
        ConflictError: letters of several partitions have one of the sequences, and no stream is named.
    """
    requested = None if sequences is None else set(sequences)
    found = [
        letter
        for letter in letters
        if (stream is None or letter.stream == stream) and (requested is None or letter.sequence in requested)
    ]
    if requested is not None and len({letter.sequence for letter in found}) < len(found):
        streams = ", ".join(sorted({letter.stream for letter in found}))
        raise ConflictError(f"several partitions have a dead letter of these sequences: {streams}; name one as stream")
    return found


def letter_at(route: Route, sequence: int, stream: str | None = None) -> DeadLetter:
    """Return the dead letter of that sequence, also one that was delivered since.

    Args:
        route: route of the letters.
        sequence: sequence of the letter; in Kafka its offset.
        stream: its stream, in Kafka ``topic:partition``; None for any.

    Raises:
        ConflictError: the route sets nothing aside, or several partitions of Kafka have one and *stream* is None.
        StreamError: there is none, with code 404.
    """
    _check(route)
    box = LetterBox.of(route)
    letters = chosen(
        read(route, start=box.letters.at(sequence), end=box.letters.at(sequence + 1), done=True), None, stream
    )
    if len(letters) > 1:
        streams = ", ".join(letter.stream for letter in letters)
        raise ConflictError(f"several partitions have a dead letter {sequence}: {streams}; name one as stream")
    if not letters or letters[0].sequence != sequence:
        raise StreamError(f"route {route.name} has no dead letter {sequence}", code=404)
    return letters[0]


def _check(route: Route) -> None:
    if route.dead_letter is None:
        raise ConflictError(f"route {route.name} sets nothing aside: deadLetter in its file names where to")


def as_given(record: SampleRecord) -> dict[str, object]:
    """Return a record in the notation of `turnout.engine.sample_records`: texts, or base64 for other bytes."""
    written: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset or 0,
        "headers": [[name, readable(raw)] for name, raw in record.headers],
    }
    if record.stream is not None:
        written["stream"] = record.stream
    for part, raw in (("key", record.key), ("value", record.value)):
        if raw is not None:
            text = text_of_bytes(raw)
            written |= {f"{part}Base64": base64.b64encode(raw).decode()} if text is None else {part: text}
    return written


def text_of_bytes(raw: bytes) -> str | None:
    """Decode bytes as text; None if they are not UTF-8 or not printable."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\n\r\t" for character in text) else None


_CACHED_INDEXES = 4
"""Maximum number of indexes of other stores than the server's; the least recently used is evicted."""


class StoredSubscriptions(Mapping[str, Subscription]):
    """Subscriptions of a store by id, each read on access."""

    def __init__(self, live: LiveMatcher) -> None:
        self._live = live

    def __getitem__(self, id_: str) -> Subscription:
        try:
            return self._live.subscription(id_)
        except SubscriptionNotFoundError as missing:
            raise KeyError(id_) from missing

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a store may hold millions: search it")

    def __len__(self) -> int:
        return len(self._live.matcher)


class Matchers:
    """Live indexes of stores. Safe to use from several threads; ``with`` closes the stores that it has opened.

    Args:
        open_: opens a store by its URL.
    """

    def __init__(self, open_: Callable[[str], Store] = open_store) -> None:
        self._open = open_
        self._lock = threading.Lock()
        """For the tables, never held while a store is opened."""
        self._own: dict[str, LiveMatcher] = {}
        self._opened: OrderedDict[str, Future[tuple[Store, LiveMatcher]]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            opened = list(self._opened.values())
            self._opened.clear()
        for opening in opened:
            opening.add_done_callback(_close)

    def know(self, url: str, live: LiveMatcher) -> None:
        """Register the index of a store that another component maintains."""
        self._own[existing(without_timeout(url))] = live

    def is_known(self, url: str) -> bool:
        """Return True if another component maintains the index of a store."""
        return existing(without_timeout(url)) in self._own

    def of(self, route: Route) -> LiveMatcher | None:
        """Return the matcher of a route; None without subscriptions. The first call for a store reads all of it.

        Calls for one store wait for the first; those for others do not.

        Raises:
            StoreUnavailableError: the store is away, or is not read before the caller's deadline.
            ConfigError: there is no such store.
        """
        if route.subscriptions is None:
            return None
        url = existing(route.subscriptions.store)
        own = self._own.get(without_timeout(url))
        if own is not None:
            return own
        with self._lock:
            is_first = url not in self._opened
            opening = self._opened.setdefault(url, Future())
            self._opened.move_to_end(url)
            evicted = self._opened.popitem(last=False)[1] if len(self._opened) > _CACHED_INDEXES else None
        if evicted is not None:
            evicted.add_done_callback(_close)
        if is_first:
            self._read(url, opening)
        try:
            return opening.result(remaining(STORE_SECONDS))[1]
        except TimeoutError:
            raise StoreUnavailableError("the store is still being read: try again later") from None

    def _read(self, url: str, opening: Future[tuple[Store, LiveMatcher]]) -> None:
        """Open and read a store for all waiting callers; the next call retries a failure."""
        try:
            store = self._open(url)
            try:
                opening.set_result((store, LiveMatcher(store)))
            except BaseException:
                store.close()
                raise
        except BaseException as failure:  # noqa: BLE001 - it is raised from the future
            with self._lock:
                if self._opened.get(url) is opening:
                    del self._opened[url]
            opening.set_exception(failure)

    def index(self, route: Route) -> Index | None:
        """Return the current index of the route's subscriptions; see `of`."""
        live = self.of(route)
        return None if live is None else live.index()


def _close(opened: Future[tuple[Store, LiveMatcher]]) -> None:
    if opened.exception() is None:
        opened.result()[0].close()


def route_of(entry: RouteEntry) -> Route:
    """Return the route as it runs, or would.

    Raises:
        ConflictError: no version of it could ever be used.
    """
    if entry.version is None:
        raise ConflictError(f"route {entry.name} cannot be used: {entry.status.reason}")
    return entry.version.route


MAX_COMPARED = 10_000
"""Maximum number of records of each stream that an import is compared on."""


def import_effect(entry: RouteEntry, matchers: Matchers, last: int, before: Snapshot, after: Snapshot) -> Effect:
    """Return the effect of an import into the server's store on the last records of a route.

    Raises:
        ConflictError: the route matches with another store, or cannot be used.
        ConfigError: it has no subscriptions, or a source without history; or too many records are asked for.
        StreamError: a stream does not exist.
        ConnectionLostError: the server is away.
    """
    route = route_of(entry)
    if not 1 <= last <= MAX_COMPARED:
        raise ConfigError(
            [Mistake("last", f"expected 1 to {MAX_COMPARED:,} records, found {last:,}")], what="bad request"
        )
    if route.subscriptions is not None and not matchers.is_known(route.subscriptions.store):
        raise ConflictError(f"route {route.name} does not match with this server's store")
    return effect_of(import_report(route, last, before, after, examples=0).differences)


def batch_of(route: Route, record: Mapping[str, object]) -> ArrowBatch:
    """Return a given record as a batch, in the form of the route's source.

    Raises:
        ConfigError: it is no record; lists every mistake.
    """
    return record_batch([SampleRecord.of(record, stream=route.source.only_stream, route=route)])


def batch_at(route: Route, position: str) -> ArrowBatch:
    """Return a record of the route's source, by ``STREAM:SEQ`` or ``TOPIC:PARTITION:OFFSET``.

    A sequence alone suffices if the source has one stream.

    Raises:
        ConfigError: it is no such place.
        ConflictError: the source keeps no history.
        StreamError: there is no such message.
        ConnectionLostError: the server is away.
    """
    source = route.source
    if not source.keeps_history:
        raise ConflictError(f"route {route.name} does not read a stream: give the record itself")
    try:
        stream, sequence = source.message(position)
    except ValueError as wrong:
        raise ConfigError([Mistake("at", str(wrong))], what="bad place") from None
    return adapter_of(source).record_at(stream, sequence)


def explained(
    route: Route, batch: ArrowBatch, matchers: Matchers, *, asked: str | None = None, masked: bool = False
) -> RecordExplanation:
    """Explain the only record of a batch, matched with the route's current subscriptions.

    With *masked*, the route's masks apply to every part of it.

    Raises:
        SubscriptionNotFoundError: there is no subscription *asked*.
        StoreUnavailableError: the store is away.
    """
    live = matchers.of(route)
    reachable, notes = preflight_of_reachable(route)
    if live is None:
        explanation = explain(Program.of(reachable), batch, asked=asked, notes=notes)
    else:
        stored = StoredSubscriptions(live)
        explanation = explain(Program.of(reachable), batch, live.index(), stored, asked=asked, notes=notes)
    return masked_explanation(explanation, route) if masked else explanation
