"""Dead letters of a server's routes: the newest ones, single ones, and their records as sandbox input."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from turnout.engine.sample_records import SampleRecord
from turnout.errors import StreamError
from turnout.history.dead_letters import DeadLetter, LetterBox, is_wanted, masked_letter, meeting, read
from turnout.history.masking import hidden_anywhere
from turnout.records.text import readable
from turnout.routes import Route
from turnout.server.errors import ConflictError

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
