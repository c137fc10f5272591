"""What a redrive leaves behind among the dead letters: a note, or letters that are gone or have one more try."""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnout.errors import StreamError
from turnout.history.dead_letters import REDRIVEN, TRIES, DeadLetter, LetterBox
from turnout.routes import Route
from turnout.wire import Connection, Publisher

__all__ = ["mark"]

_NO_MESSAGE = 10037


def mark(
    route: Route, box: LetterBox, delivered: Sequence[DeadLetter], failed: Sequence[DeadLetter], *, delete: bool
) -> None:
    """Take note of what became of letters.

    Without *delete* one message with the header ``Turnout-Redriven`` is added on the letters' topic: its body names the
    sequences of those that are done, and how often the others have been tried. With it, letters that are done are
    deleted from their stream, and one that failed again is written anew with ``Turnout-Redrive-Tries`` before it is
    deleted: its first reason, and everything else of it, stays.

    Raises:
        StreamError: the server refuses to delete, or to store a note.
        ConnectionLostError: the server does not come back in time.
    """
    if not delivered and not failed:
        return
    with box.connection() as connection:
        if not delete:
            _note(connection, route, box, delivered, failed)
            return
        with Publisher(connection) as publisher:
            for letter in failed:
                _rewrite(publisher, box, letter)
    with box.connection() as connection:
        for letter in (*delivered, *failed):
            _delete(connection, letter)


def _note(
    connection: Connection, route: Route, box: LetterBox, delivered: Sequence[DeadLetter], failed: Sequence[DeadLetter]
) -> None:
    body = {
        "delivered": [letter.sequence for letter in delivered],
        "failed": {str(letter.sequence): letter.tries + 1 for letter in failed},
    }
    headers = [
        (REDRIVEN, str(len(delivered) + len(failed))),
        # By this a route's letters, and what is said of them, are told from those of others on the topic.
        ("__connect.errors.connector.name", route.name),
    ]
    with Publisher(connection) as publisher:
        publisher.publish(box.topic, json.dumps(body).encode(), headers)


def _rewrite(publisher: Publisher, box: LetterBox, letter: DeadLetter) -> None:
    tries = letter.tries + 1
    first = letter.message_id.removesuffix(f":{TRIES}:{letter.tries}") or f"{letter.stream}:{letter.sequence}"
    headers = [(name, value or b"") for name, value in letter.raw]
    publisher.publish(
        box.topic, letter.record.value or b"", [*headers, (TRIES, str(tries))], message_id=f"{first}:{TRIES}:{tries}"
    )


def _delete(connection: Connection, letter: DeadLetter) -> None:
    try:
        connection.api(f"STREAM.MSG.DELETE.{letter.stream}", {"seq": letter.sequence, "no_erase": True})
    except StreamError as failure:
        # It is gone already: another redrive, or a limit of the stream, was faster.
        if failure.err_code != _NO_MESSAGE and failure.code != 404:
            raise
