"""Dead letters as the console needs them, read from the stream that holds them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnout.engine.dead_letters import DESTINATION, LEFT_OUT, SUBSCRIPTION
from turnout.errors import ConfigError, Mistake
from turnout.routes import Route
from turnout.routes.endpoints import NatsSink
from turnout.server.errors import ConflictError
from turnout.server.sources import opened
from turnout.wire import Connection, PullReader, Range, stored_message, stream_info, streams_of

__all__ = ["Group", "Letter", "Letters", "grouped", "hex_lines", "letter_at", "letters_of", "shown"]

_CONTEXT = "__connect.errors."
_OURS = (DESTINATION, LEFT_OUT, SUBSCRIPTION)
_WIDTH = 16


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the record as it came, and why.

    Attributes:
        stream: that holds it.
        sequence: there.
        at: when it was set aside, in seconds since the epoch.
        context: Connect's ``__connect.errors.*`` headers without that prefix, and those of turnout.
        headers: those that the record came with.
    """

    stream: str
    sequence: int
    at: float
    key: bytes | None
    value: bytes | None
    context: Mapping[str, str]
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def place(self) -> str:
        """Where it is: ``stream:sequence``."""
        return f"{self.stream}:{self.sequence}"

    @property
    def stage(self) -> str:
        """Where the record failed; "" where the letter does not say."""
        return self.context.get("stage", "")

    @property
    def reason(self) -> str:
        """Why, in the words of the failure."""
        return self.context.get("exception.message", "no subscription wanted it" if self.context else "")

    def as_given(self) -> dict[str, Any]:
        """The record as `turnout.engine.given` reads one: text where it is text, base64 where it is none."""
        offset = self.context.get("offset", "")
        record = {
            "topic": self.context.get("topic", ""),
            "partition": int(self.context.get("partition") or 0),
            "offset": int(offset) if offset.isdecimal() else 0,
            "headers": [[name, None if raw is None else raw.decode("utf-8", "replace")] for name, raw in self.headers],
        }
        for part, raw in (("key", self.key), ("value", self.value)):
            if raw is not None:
                text = _text(raw)
                record |= {f"{part}Base64": base64.b64encode(raw).decode()} if text is None else {part: text}
        return record


@dataclass(frozen=True, slots=True)
class Letters:
    """The last dead letters of a route, the newest first.

    Attributes:
        total: how many the stream holds, older ones included.
    """

    items: tuple[Letter, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Group:
    """Letters that failed at one stage for one reason, the newest first."""

    stage: str
    reason: str
    letters: tuple[Letter, ...]


def letters_of(route: Route, limit: int) -> Letters:
    """The last *limit* dead letters.

    Raises:
        ConflictError: the route has none, or they do not lie in a stream.
        StreamError: no stream takes them.
        ConnectionLostError: the server is away.
    """
    sink, topic = _place_of(route)
    with opened(sink) as connection:
        stream = _stream(connection, topic, route)
        state = stream_info(connection, stream, subjects_filter=topic)["state"]
        total = sum((state.get("subjects") or {}).values())
        letters = list(_last(connection, stream, topic, state, limit)) if total else []
    return Letters(tuple(reversed(letters[-limit:])), total)


def letter_at(route: Route, place: str) -> Letter:
    """The dead letter at ``stream:sequence``.

    Raises:
        ConfigError: it is no such place.
        StreamError: there is no such letter.
    """
    sink, topic = _place_of(route)
    stream, _, sequence = place.rpartition(":")
    if not sequence.isdecimal():
        raise ConfigError([Mistake("letter", f"expected stream:sequence, found {place!r}")], what="bad place")
    with opened(sink) as connection:
        if stream != _stream(connection, topic, route):
            raise ConfigError([Mistake("letter", f"the dead letters of {route.name} are not in {stream!r}")])
        batch = stored_message(connection, stream, int(sequence))
    if batch.column("topic")[0].as_py() != topic:
        raise ConfigError([Mistake("letter", f"{place} is no dead letter of {route.name}")])
    return next(_letters(batch, stream))


def grouped(letters: Sequence[Letter]) -> list[Group]:
    """The letters by stage and reason, the largest group first."""
    groups: dict[tuple[str, str], list[Letter]] = {}
    for letter in letters:
        groups.setdefault((letter.stage, letter.reason), []).append(letter)
    made = [Group(stage, reason, tuple(members)) for (stage, reason), members in groups.items()]
    return sorted(made, key=lambda group: -len(group.letters))


def hex_lines(raw: bytes) -> str:
    r"""Bytes as people read them that are no text: place, hexadecimal, and what of it is ASCII.

    >>> hex_lines(b"\x00ab")
    '00000000  00 61 62                                         .ab'
    """
    lines = []
    for place in range(0, len(raw), _WIDTH):
        row = raw[place : place + _WIDTH]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{place:08x}  {row.hex(' '):<47}  {shown}".rstrip())
    return "\n".join(lines)


def shown(raw: bytes | None) -> str:
    """Bytes as text where they are text, as hexadecimal where they are not."""
    if raw is None:
        return "null"
    text = _text(raw)
    return hex_lines(raw) if text is None else text


def _text(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if all(one.isprintable() or one in "\n\r\t" for one in text) else None


def _place_of(route: Route) -> tuple[NatsSink, str]:
    """The sink and the topic of a route's dead letters."""
    if route.dead_letter is None:
        raise ConflictError(f"route {route.name} keeps no dead letters: deadLetter in its file names a topic for them")
    name, colon, topic = route.dead_letter.topic.partition(":")
    named = bool(colon) and name in route.sinks
    sink = route.sinks[name] if named else next(iter(route.sinks.values()))
    if not isinstance(sink, NatsSink):
        raise ConflictError(f"route {route.name} sends its dead letters to {sink.format}: read them there")
    return sink, topic if named else route.dead_letter.topic


def _stream(connection: Connection, topic: str, route: Route) -> str:
    streams = streams_of(connection, topic)
    if not streams:
        raise ConflictError(f"route {route.name}: no stream takes its dead letters on {topic}")
    return streams[0]


def _last(connection: Connection, stream: str, topic: str, state: Mapping[str, Any], limit: int) -> Iterator[Letter]:
    """At least the last *limit* letters, the oldest first: more is looked at until they are together."""
    first, end = max(1, int(state["first_seq"])), int(state["last_seq"]) + 1
    reach = limit
    while True:
        begin = max(first, end - reach)
        reader = PullReader(connection, Range(stream, begin, end, (topic,)))
        letters = [letter for batch in reader.batches() for letter in _letters(batch, stream)]
        if len(letters) >= limit or begin == first:
            yield from letters
            return
        reach *= 16


def _letters(batch: Any, stream: str) -> Iterator[Letter]:
    for row in batch.to_pylist():
        pairs = [(one["key"], one["value"]) for one in row["headers"] or ()]
        context = {name.removeprefix(_CONTEXT): _header(raw) for name, raw in pairs if _is_context(name)}
        own = tuple((name, raw) for name, raw in pairs if not _is_context(name) and name != "Nats-Msg-Id")
        at = row["timestamp"].timestamp()
        yield Letter(stream, row["offset"], at, row["key"], row["value"], context, own)


def _is_context(name: str) -> bool:
    return name.startswith(_CONTEXT) or name in _OURS


def _header(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("utf-8", "replace")
