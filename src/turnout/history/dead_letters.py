"""Dead letters of a route: their records, origins and reasons, and the results of redrives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Self

import numpy as np

from turnout.base.clocks import Microseconds, seconds_of_micros
from turnout.base.untrusted import LARGEST_SEQUENCE, decimal, is_whole
from turnout.codecs import Codec, codec_of
from turnout.codecs.plain import Raw
from turnout.conditions import Condition, parse
from turnout.engine.dead_letters import DESTINATION, LEFT_OUT, ORIGIN, SEAL, SUBSCRIPTION, is_sealed, seal
from turnout.engine.deliveries import Addresses
from turnout.engine.messages import CONNECT_PREFIX, VALUE_DIGEST, VALUE_LEFT_OUT
from turnout.engine.reading import batch_of
from turnout.engine.replay import Where
from turnout.engine.sample_records import Header, SampleRecord, record_batch
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.history.masking import Hidden, check_condition
from turnout.nats.protocol.positions import Origin
from turnout.nats.wire.streams import StreamPosition, position_of
from turnout.records import ALIVE
from turnout.records.types import Fields, RowIds
from turnout.routes import Route
from turnout.runtime.endpoints import NewLetter, SinkLetters, adapter_of, rows_of
from turnout.transforms.base import KEY, VALUE

REDRIVEN: Final = "Turnout-Redriven"
"""The header of a note among dead letters: how many of them it says something of."""

TRIES: Final = "Turnout-Redrive-Tries"
"""The header of a dead letter that was redriven and failed again: how often."""

CONNECTOR: Final = f"{CONNECT_PREFIX}connector.name"
"""The header with the route's name: others may share the topic."""

_TOPIC: Final = f"{CONNECT_PREFIX}topic"
_WRITTEN: Final = frozenset({ORIGIN, SUBSCRIPTION, DESTINATION, LEFT_OUT, VALUE_LEFT_OUT, VALUE_DIGEST, SEAL, TRIES})
_OF_MESSAGE: Final = frozenset({"Nats-Msg-Id", "Nats-Expected-Stream"})
"""Headers of the letter as a message, which no copy of it takes over."""


@dataclass(frozen=True, slots=True)
class LetterHeaders:
    """The headers of a dead letter, or of a note, in their parts.

    Attributes:
        own: the record's.
        block: name → text written by the route.
        all: in the order of the stream.
    """

    own: tuple[Header, ...]
    block: Mapping[str, str]
    all: Sequence[tuple[str, bytes]]

    @classmethod
    def of(cls, row: Fields) -> Self:
        """Split the headers of a message into their parts.

        The block is read from the end, each name once, to `ORIGIN`; letters of earlier versions have none, and theirs
        begins with the topic. A record may have had headers of the same names: they are before it.
        """
        pairs = [(header["key"], header["value"] or b"") for header in row["headers"] or ()]
        block: dict[str, str] = {}
        rest: list[Header] = []
        end = len(pairs)
        while end and ORIGIN not in block:
            name, value = pairs[end - 1]
            if _is_added(name):
                rest.append((name, value))
            elif _is_written(name) and name not in block and (_TOPIC not in block or name == ORIGIN):
                block[name] = value.decode("utf-8", "replace")
            else:
                break
            end -= 1
        own = (header for header in (*pairs[:end], *reversed(rest)) if header[0] not in _OF_MESSAGE)
        return cls(tuple(own), block, pairs)

    @property
    def raw(self) -> tuple[Header, ...]:
        """Headers that a copy keeps: all except those of the letter as a message, of its tries, and its seal."""
        removed = {*_OF_MESSAGE, TRIES, SEAL}
        return tuple(pair for pair in self.all if pair[0] not in removed)

    @property
    def are_of_note(self) -> bool:
        """True if the headers are exactly those of a note. A letter always has more."""
        names = [name for name, _ in self.own if not _is_added(name)]
        return names == [REDRIVEN] and self.block.keys() - {SEAL} == {CONNECTOR}

    def sealed(self, secret: str | None, value: bytes | None) -> bool:
        """Return whether the route itself wrote the message; without a secret its topic is believed."""
        if secret is None:
            return True
        is_noted = self.are_of_note or ORIGIN in self.block
        return is_noted and is_sealed(secret, self.all, value, self.block.get(SEAL))


def _is_added(name: str) -> bool:
    """Return True if a server or a publisher may have added a header of this name, at any position."""
    return name.lower().startswith("nats-")


def _is_written(name: str) -> bool:
    return name.startswith(CONNECT_PREFIX) or name in _WRITTEN


@dataclass(frozen=True, slots=True)
class LetterBox:
    """Dead letters of a route.

    Attributes:
        letters: letters in the sink that holds them.
        secret: seals letters and notes; None for a route without one.
    """

    letters: SinkLetters
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
        letters = adapter_of(list(route.sinks.values())[sink]).letters(topic)
        if letters is None:
            raise StreamError(f"no stream takes the dead letters of {route.name}, on {topic!r}", code=404)
        return cls(letters, part.secret)

    def newest(self, count: int) -> dict[str, int]:
        """Return where about the last *count* messages begin, by stream.

        Raises:
            StreamError: the stream, or the topic, does not exist.
            ConnectionLostError: the server cannot be reached.
        """
        with self.letters.history() as history:
            share = max(1, count // max(1, len(history.streams)))
            ends = {stream: history.bounds(stream) for stream in history.streams}
            return {stream: max(end.first, end.next - share) for stream, end in ends.items()}

    def letter(
        self, headers: Sequence[Header], value: bytes, message_id: str | None = None, *, sealed: bool = True
    ) -> NewLetter:
        """Return a message to add, with the route's seal if it has a secret.

        Args:
            headers: headers of the message.
            value: its value.
            message_id: id that the server knows a repeated message by; None for none.
            sealed: False for one whose contents the route does not vouch for.
        """
        written = [(name, raw or b"") for name, raw in headers]
        if sealed and self.secret is not None:
            written.append((SEAL, seal(self.secret, headers, value).encode()))
        return NewLetter(written, value, message_id)


_LARGEST_INT: Final = (1 << 31) - 1
"""Largest value of the columns of partitions and of tries."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Record, or single delivery of a record, that was set aside.

    Attributes:
        stream: name of the stream that holds the letter; in Kafka ``topic:partition``.
        sequence: its own there.
        message_id: its own; "" for none.
        stored: when it was set aside, in microseconds since 1970.
        record: as it was read: its own position and headers. Its key is not in a letter in NATS, its time in none.
        whole: whether the letter has the value and every header; some are too large, or cannot be written.
        stage: stage that failed, in Connect's terms; None for an unmatched record.
        reason: the first one.
        subscription: for one delivery, its subscription.
        destination: for one delivery, its destination.
        tries: how often it has been redriven and failed again.
        done: whether it has been delivered since.
        verified: whether the route itself wrote it. Without a ``secret`` of the route its topic is believed; with one
            the letter's seal says so, and where that is missing everything here is what some publisher claims.
        raw: the letter's headers.
    """

    stream: str
    sequence: int
    message_id: str
    stored: Microseconds
    record: SampleRecord
    whole: bool
    stage: str | None
    class_name: str | None
    reason: str | None
    subscription: str | None = None
    destination: str | None = None
    tries: int = 0
    done: bool = False
    verified: bool = True
    raw: tuple[Header, ...] = field(default=(), repr=False)

    @property
    def stored_seconds(self) -> float:
        """Time at which it was set aside, in seconds since 1970."""
        return seconds_of_micros(self.stored)

    @classmethod
    def of(
        cls,
        row: Fields,
        headers: LetterHeaders,
        stream: str,
        sources: Sequence[str] = (),
        secret: str | None = None,
        *,
        with_key: bool = False,
    ) -> Self:
        """Read a letter.

        Args:
            row: the message as a history reads it, its timestamp as a number.
            headers: its headers.
            stream: stream of the letter.
            sources: the streams that the record may be from; none where the route reads something else.
            secret: the route's.
            with_key: its key is the record's, as in Kafka, and not the letter's id.
        """
        block = headers.block
        verified = headers.sealed(secret, row["value"])
        id_ = "" if with_key else (row["key"] or b"").decode("utf-8", "replace")
        offset = _number(block.get(f"{CONNECT_PREFIX}offset"))
        # The seal covers the origin, and not the letter's own id.
        origin = f"{block[ORIGIN]}:" if verified and secret is not None else id_
        source = _stream_of(origin, offset, sources)
        record = SampleRecord(
            topic=block.get(f"{CONNECT_PREFIX}topic", ""),
            value=row["value"],
            key=row["key"] if with_key else None,
            headers=headers.own,
            partition=_number(block.get(f"{CONNECT_PREFIX}partition"), _LARGEST_INT) or 0,
            offset=offset,
            timestamp=row["timestamp"],
            stream=None if source is None else source.stream,
            identity=_topic_id(block) if source is None else source.token,
        )
        return cls(
            stream,
            row["offset"],
            id_,
            Microseconds(row["timestamp"] or 0),
            record,
            VALUE_LEFT_OUT not in block and LEFT_OUT not in block,
            block.get(f"{CONNECT_PREFIX}stage"),
            block.get(f"{CONNECT_PREFIX}class.name"),
            block.get(f"{CONNECT_PREFIX}exception.message"),
            block.get(SUBSCRIPTION),
            block.get(DESTINATION),
            _number(block.get(TRIES), _LARGEST_INT - 1) or 0,
            verified=verified,
            raw=headers.raw,
        )


def _number(text: str | None, largest: int = LARGEST_SEQUENCE) -> int | None:
    """Parse the number in a header; None if it is invalid, as any client may publish to the letters' topic."""
    return None if text is None else decimal(text, largest)


def _stream_of(origin: str, offset: int | None, sources: Sequence[str]) -> Origin | None:
    """Return a record's origin: the one in a letter id ``STREAM.IDENTITY:SEQUENCE:…``, else in the only source."""
    found = Origin.of(origin.partition(f":{offset}:")[0], offset or 0)
    if found.stream in sources:
        return found
    return Origin(sources[0], offset or 0) if len(sources) == 1 else None


def _topic_id(block: Mapping[str, str]) -> str:
    """Return the id of the Kafka topic in a letter's origin; "" without one, as of earlier releases."""
    position = ":".join(block.get(f"{CONNECT_PREFIX}{part}", "") for part in ("topic", "partition", "offset"))
    origin = block.get(ORIGIN, "")
    return origin.removeprefix(f"{position}:") if origin.startswith(f"{position}:") else ""


def read(
    route: Route,
    *,
    start: StreamPosition = "earliest",
    end: StreamPosition = "latest",
    stage: str | None = None,
    reason: str | None = None,
    done: bool = False,
) -> list[DeadLetter]:
    """Return the dead letters of a route, in the order in which they were set aside.

    Args:
        route: the route.
        start: the first position in the stream of the letters: a sequence or a time.
        end: the position after the last one.
        stage: only those that failed in this stage.
        reason: only those with this text in their reason.
        done: also those that a redrive has delivered.

    Raises:
        ConfigError: the route has none that can be read, or a position is none.
        StreamError: there is no such stream.
        ConnectionLostError: the server cannot be reached.
    """
    box = LetterBox.of(route)
    bounds = position_of("start", start), position_of("end", end)
    rows, limits = [], {}
    with box.letters.history() as history:
        for stream in history.streams:
            first, limits[stream] = (history.resolve(stream, bound) for bound in bounds)
            available = history.bounds(stream)
            # Notes follow the letters that they are of.
            for batch in history.read(stream, max(first, available.first), available.next):
                rows += rows_of(batch)
    letters = of_messages(rows, route, box)
    before = (letter for letter in letters if letter.sequence < limits[letter.stream])
    return [letter for letter in before if (done or not letter.done) and is_wanted(letter, stage, reason)]


def of_messages(rows: Iterable[Fields], route: Route, box: LetterBox) -> list[DeadLetter]:
    """Return a route's letters among the messages on their topic, with the marks of its notes.

    Args:
        rows: the messages as a history reads them, their timestamps as numbers; others may be among them.
        route: the route.
        box: location of the messages.
    """
    sources = route.source.streams
    letters, noted = [], _RedriveMarks(box.letters)
    for row in rows:
        headers = LetterHeaders.of(row)
        if headers.block.get(CONNECTOR) != route.name:
            continue
        if not headers.are_of_note:
            stream, with_key = box.letters.stream_of(row), box.letters.keeps_keys
            letters.append(DeadLetter.of(row, headers, stream, sources, box.secret, with_key=with_key))
        elif headers.sealed(box.secret, row["value"]):
            noted.add(row["value"])
    return [noted.of(letter) for letter in letters]


class _RedriveMarks:
    """Marks of redrives among dead letters, by stream and sequence.

    Args:
        letters: location of the letters. A note of another stream, or of letters stored later, is ignored: it is a
            copy.
    """

    def __init__(self, letters: SinkLetters) -> None:
        self._letters = letters
        self._done: dict[tuple[str, int], int] = {}
        self._tries: dict[tuple[str, int], tuple[int, int]] = {}

    def add(self, body: bytes | None) -> None:
        """Add the marks of a note; an invalid note is ignored."""
        try:
            note = json.loads(body or b"")
            until = _whole(note.get("until", LARGEST_SEQUENCE))
            stream = note.get("stream", self._letters.stream)
            done = [_whole(sequence) for sequence in note["delivered"]]
            tries = {_whole(decimal(key)): _whole(count, _LARGEST_INT - 1) for key, count in note["failed"].items()}
            if not self._letters.holds(stream):
                return
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return
        for sequence in done:
            self._done[stream, sequence] = max(until, self._done.get((stream, sequence), 0))
        for sequence, count in tries.items():
            self._tries[stream, sequence] = max((count, until), self._tries.get((stream, sequence), (0, 0)))

    def of(self, letter: DeadLetter) -> DeadLetter:
        """Return a letter with its marks."""
        position = letter.stream, letter.sequence
        done = letter.stored <= self._done.get(position, -1)
        noted, until = self._tries.get(position, (0, 0))
        tries = max(letter.tries, noted) if letter.stored <= until else letter.tries
        # Few of possibly thousands were redriven.
        return replace(letter, tries=tries, done=done) if done or tries != letter.tries else letter


def _whole(number: object, largest: int = LARGEST_SEQUENCE) -> int:
    """Return a number of a note, within its bounds.

    Raises:
        TypeError: it is something else.
    """
    if not is_whole(number, 0, largest):
        raise TypeError
    return number


def is_wanted(letter: DeadLetter, stage: str | None, reason: str | None) -> bool:
    """Return True if a letter has this stage, and this text in its reason; None matches any."""
    if stage is not None and (letter.stage or "").upper() != stage.upper():
        return False
    return reason is None or reason.lower() in (letter.reason or "").lower()


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters with one stage and one reason.

    Attributes:
        count: how many they are.
        first: when the first of them was set aside, in microseconds since 1970.
        last: when the last was.
    """

    stage: str | None
    reason: str | None
    count: int
    first: Microseconds
    last: Microseconds

    @property
    def first_seconds(self) -> float:
        """Time of the first in seconds since 1970."""
        return seconds_of_micros(self.first)

    @property
    def last_seconds(self) -> float:
        """Time of the last in seconds since 1970."""
        return seconds_of_micros(self.last)


def grouped(letters: Iterable[DeadLetter]) -> list[DeadLetterGroup]:
    """Return letters grouped by stage and reason, the largest group first."""
    times_by_reason: dict[tuple[str | None, str | None], list[Microseconds]] = {}
    for letter in letters:
        times_by_reason.setdefault((letter.stage, letter.reason), []).append(letter.stored)
    counts = Counter({key: len(moments) for key, moments in times_by_reason.items()})
    return [
        DeadLetterGroup(*key, count, min(times_by_reason[key]), max(times_by_reason[key]))
        for key, count in counts.most_common()
    ]


def masked_letter(letter: DeadLetter, hidden: Hidden) -> DeadLetter:
    """Return a dead letter with its record, its reason and its headers masked."""
    if not hidden:
        return letter
    record = replace(
        letter.record,
        key=hidden.raw(KEY, letter.record.key),
        value=hidden.raw(VALUE, letter.record.value),
        headers=hidden.raw_headers(letter.record.headers),
    )
    reason = None if letter.reason is None else hidden.failure(letter.reason)
    return replace(letter, record=record, reason=reason, raw=hidden.raw_headers(letter.raw))


_BATCH_LETTERS: Final = 1_000
_WHOLE: Final = {"value.*": "value.*", "key.*": "key.*"}
"""Paths of any record: what a transform would have renamed or computed is not in the metadata of one that failed."""


def meeting(
    route: Route, letters: Iterable[DeadLetter], where: str | Condition, *, strict: bool = False
) -> list[DeadLetter]:
    """Return the letters whose records, as read from the source, match a condition.

    A record that cannot be decoded has its topic and its headers, and neither key nor value.

    Args:
        route: whose letters they are.
        letters: of `turnout.history.dead_letters.read`.
        where: the condition, over the metadata that the route's subscriptions see, and any path: ``value.city:Oulu``.
        strict: refuse a condition on what the route masks, which would tell what it is.

    Raises:
        ConditionError: *where* cannot be read.
        ConfigError: *strict*, and it is on what is masked; it has a name that is neither listed nor a letter's header.
    """
    condition = parse(where) if isinstance(where, str) else where
    paths = {**_WHOLE, **(route.subscriptions.metadata if route.subscriptions else {})}
    if strict:
        check_condition(route, 0, condition, paths)
    selected = Where(condition, paths)
    codecs = codec_of(route.key), codec_of(route.value)
    found: list[DeadLetter] = []
    waiting = iter(letters)
    while part := list(islice(waiting, _BATCH_LETTERS)):
        rows = _rows(selected, [letter.record for letter in part], codecs)
        found += [part[row] for row in rows]
    selected.check_seen()
    return found


def _rows(where: Where, records: Sequence[SampleRecord], codecs: tuple[Codec, Codec]) -> list[int]:
    """Return the numbers of the records that are chosen, in order."""
    rows, broken = _chosen(where, records, codecs)
    found: list[int] = rows.tolist()
    if not len(broken):
        return found
    bare = [replace(records[row], key=None, value=None) for row in broken.tolist()]
    others, _ = _chosen(where, bare, (Raw(), Raw()))
    return sorted([*found, *broken[others].tolist()])


def _chosen(where: Where, records: Sequence[SampleRecord], codecs: tuple[Codec, Codec]) -> tuple[RowIds, RowIds]:
    """Return the rows that are chosen, and those that cannot be decoded."""
    batch, _ = batch_of(record_batch(records), *codecs)
    alive = batch.outcomes == ALIVE
    return where.chosen(batch, np.flatnonzero(alive)), np.flatnonzero(~alive)
