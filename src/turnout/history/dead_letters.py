"""The dead letters of a route: what was set aside, where it came from, why, and what has been tried since."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from turnout.engine.addresses import Addresses
from turnout.engine.dead_letters import DESTINATION, LEFT_OUT, SUBSCRIPTION
from turnout.engine.given import Given, Header
from turnout.engine.messages import VALUE_LEFT_OUT
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.routes import Route
from turnout.routes.endpoints import NatsSink, NatsSource
from turnout.wire import Connection, ConnectionOptions, Range, streams_of
from turnout.wire.apart import RangeReader, reader_of
from turnout.wire.places import Place, place_of, resolve, state_of
from turnout.wire.ways import way_to_look

__all__ = ["REDRIVEN", "TRIES", "DeadLetter", "DeadLetterGroup", "LetterBox", "grouped", "read"]

REDRIVEN: Final = "Turnout-Redriven"
"""The header of a note among dead letters: how many of them it says something of."""

TRIES: Final = "Turnout-Redrive-Tries"
"""The header of a dead letter that was redriven and failed again: how often."""

_CONTEXT: Final = "__connect.errors."
_OURS: Final = frozenset({SUBSCRIPTION, DESTINATION, LEFT_OUT, VALUE_LEFT_OUT, TRIES})
_OF_MESSAGE: Final = frozenset({"Nats-Msg-Id", "Nats-Expected-Stream", TRIES})
"""Headers of the letter as a message, which no copy of it takes over."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record, or one delivery of a record, that was set aside.

    Attributes:
        stream: where the letter lies.
        sequence: its own there.
        message_id: its own; "" for none.
        stored: when it was set aside, in microseconds since 1970.
        record: as it was read: its own place and headers. Its key is not in a letter from NATS, its time in none.
        whole: whether the letter has the value and every header; some are too large, or cannot be written.
        stage: where it failed, as Connect names stages; None for a record that no subscription wanted.
        reason: the first one.
        subscription: of one delivery, whose it was.
        destination: of one delivery, where it went.
        tries: how often it has been redriven and failed again.
        done: whether it has been delivered since.
        raw: the letter's headers.
    """

    stream: str
    sequence: int
    message_id: str
    stored: int
    record: Given
    whole: bool
    stage: str | None
    class_name: str | None
    reason: str | None
    subscription: str | None = None
    destination: str | None = None
    tries: int = 0
    done: bool = False
    raw: tuple[Header, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, row: Mapping[str, Any], stream: str, sources: Sequence[str] = ()) -> Self:
        """Read a letter.

        Args:
            row: the message as `turnout.wire` reads it, its timestamp as a number.
            stream: where it lies.
            sources: the streams that the record may be from; none where the route reads something else.
        """
        pairs = [(header["key"], header["value"]) for header in row["headers"] or ()]
        own, context = _parted(pairs)
        id_ = (row["key"] or b"").decode("utf-8", "replace")
        offset = _number(context.get(f"{_CONTEXT}offset"))
        record = Given(
            topic=context.get(f"{_CONTEXT}topic", ""),
            value=row["value"],
            headers=tuple(own),
            partition=_number(context.get(f"{_CONTEXT}partition")) or 0,
            offset=offset,
            timestamp=row["timestamp"],
            stream=_stream_of(id_, offset, sources),
        )
        return cls(
            stream,
            row["offset"],
            id_,
            row["timestamp"],
            record,
            VALUE_LEFT_OUT not in context and LEFT_OUT not in context,
            context.get(f"{_CONTEXT}stage"),
            context.get(f"{_CONTEXT}class.name"),
            context.get(f"{_CONTEXT}exception.message"),
            context.get(SUBSCRIPTION),
            context.get(DESTINATION),
            _number(context.get(TRIES)) or 0,
            raw=tuple((name, value) for name, value in pairs if name not in _OF_MESSAGE),
        )


def _number(text: str | None) -> int | None:
    """A number as a header has it; None where something else stands there: anybody may publish among the letters."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _parted(pairs: Sequence[tuple[str, bytes]]) -> tuple[list[Header], dict[str, str]]:
    """A record's own headers, and what the route has put behind them: of each name the last."""
    context: dict[str, str] = {}
    own: list[Header] = []
    for name, value in reversed(pairs):
        ours = name.startswith(_CONTEXT) or name in _OURS
        if ours and name not in context:
            context[name] = value.decode("utf-8", "replace")
        elif name not in _OF_MESSAGE:
            own.append((name, value))
    return own[::-1], context


def _stream_of(message_id: str, offset: int | None, sources: Sequence[str]) -> str | None:
    """The stream that a record is from: a letter's id begins with ``STREAM:SEQUENCE:`` if there was one."""
    named = message_id.partition(f":{offset}:")[0]
    return named if named in sources else sources[0] if len(sources) == 1 else None


@dataclass(frozen=True, slots=True)
class LetterBox:
    """Where a route's dead letters are.

    Attributes:
        sink: the place of the sink among the route's.
        endpoint: the sink.
        topic: of the letters.
        stream: that holds them.
    """

    sink: int
    endpoint: NatsSink
    topic: str
    stream: str

    @classmethod
    def of(cls, route: Route) -> Self:
        """The one of a route.

        Raises:
            ConfigError: the route sets nothing aside, or not into NATS, or without saying why.
            StreamError: no stream takes the letters.
            ConnectionLostError: the server cannot be reached.
        """
        part = route.dead_letter
        if part is None:
            raise ConfigError([Mistake("deadLetter", f"the route {route.name} has none: it sets nothing aside")])
        if not part.context_headers:
            problem = "is false: without these headers nobody knows which record a letter is"
            raise ConfigError([Mistake("deadLetter.contextHeaders", problem)])
        place, topic = Addresses(route).split(part.topic)
        endpoint = list(route.sinks.values())[place]
        if not isinstance(endpoint, NatsSink):
            problem = f"expected a sink of format nats, whose letters can be read again, found {endpoint.format}"
            raise ConfigError([Mistake("deadLetter.topic", problem)])
        stream = endpoint.stream
        if stream is None:
            with Connection.open(ConnectionOptions.from_mapping(endpoint.options())) as connection:
                stream = next(iter(streams_of(connection, topic)), None)
        if stream is None:
            raise StreamError(f"no stream takes the dead letters of {route.name}, on {topic!r}", code=404)
        return cls(place, endpoint, topic, stream)

    def connection(self) -> Connection:
        """A connection to the server of the letters."""
        return Connection.open(ConnectionOptions.from_mapping(self.endpoint.options()))


def read(
    route: Route,
    *,
    start: Place = "earliest",
    end: Place = "latest",
    stage: str | None = None,
    reason: str | None = None,
    done: bool = False,
) -> list[DeadLetter]:
    """The dead letters of a route, in the order in which they were set aside.

    Args:
        route: the route.
        start: the first place in the stream of the letters: a sequence or a time.
        end: the place after the last one.
        stage: only those that failed in this stage.
        reason: only those with this text in their reason.
        done: also those that a redrive has delivered.

    Raises:
        ConfigError: the route has none that can be read, or a place is none.
        StreamError: there is no such stream.
        ConnectionLostError: the server cannot be reached.
    """
    box = LetterBox.of(route)
    places = place_of("start", start), place_of("end", end)
    with box.connection() as connection:
        first, last = (resolve(connection, box.stream, place) for place in places)
        state = state_of(connection, box.stream)
        span = Range(box.stream, first, state.next, (box.topic,))
        rows = _rows(reader_of(connection, span, way_to_look(state)))
        letters, noted = _sorted_out(rows, route, box)
    marked = (noted.of(letter) for letter in letters if letter.sequence < last)
    return [letter for letter in marked if (done or not letter.done) and _asked_for(letter, stage, reason)]


def _rows(reader: RangeReader) -> Iterator[dict[str, Any]]:
    for batch in reader.batches():
        at = batch.schema.get_field_index("timestamp")
        yield from batch.set_column(at, "timestamp", batch.column(at).cast("int64")).to_pylist()


def _sorted_out(rows: Iterable[Mapping[str, Any]], route: Route, box: LetterBox) -> tuple[list[DeadLetter], _Noted]:
    """A route's letters, and what is noted of them; others may share the topic."""
    sources = route.source.streams if isinstance(route.source, NatsSource) else ()
    letters, noted = [], _Noted()
    for row in rows:
        headers = {header["key"]: header["value"] for header in row["headers"] or ()}
        if headers.get(f"{_CONTEXT}connector.name") != route.name.encode():
            continue
        if REDRIVEN in headers:
            noted.add(row["value"])
        else:
            letters.append(DeadLetter.of(row, box.stream, sources))
    return letters, noted


class _Noted:
    """What notes among dead letters say of them, by sequence."""

    def __init__(self) -> None:
        self._done: set[int] = set()
        self._tries: dict[str, int] = {}

    def add(self, body: bytes) -> None:
        """Take in a note; what cannot be read as one says nothing."""
        try:
            note = json.loads(body)
            done = {int(sequence) for sequence in note["delivered"]}
            tries = {str(sequence): int(count) for sequence, count in note["failed"].items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        self._done |= done
        self._tries |= {sequence: max(count, self._tries.get(sequence, 0)) for sequence, count in tries.items()}

    def of(self, letter: DeadLetter) -> DeadLetter:
        """A letter with what is noted of it."""
        tries = max(letter.tries, self._tries.get(str(letter.sequence), 0))
        done = letter.sequence in self._done
        # There may be thousands, of which few were ever redriven.
        return replace(letter, tries=tries, done=done) if done or tries != letter.tries else letter


def _asked_for(letter: DeadLetter, stage: str | None, reason: str | None) -> bool:
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
    first: int
    last: int


def grouped(letters: Iterable[DeadLetter]) -> list[DeadLetterGroup]:
    """Letters by stage and reason, those first that are most."""
    known: dict[tuple[str | None, str | None], list[int]] = {}
    for letter in letters:
        known.setdefault((letter.stage, letter.reason), []).append(letter.stored)
    counts = Counter({key: len(moments) for key, moments in known.items()})
    return [DeadLetterGroup(*key, count, min(known[key]), max(known[key])) for key, count in counts.most_common()]
