"""Marks of a redrive among dead letters: a note, deleted letters, or letters with one more try.

`dead_letters` reads the notes, so that no letter is redriven twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from turnout.engine.sample_records import Header
from turnout.history.dead_letters import DeadLetter
from turnout.history.letter_block import CONNECTOR, REDRIVEN, TRIES
from turnout.history.letter_box import LetterBox
from turnout.routes import Route
from turnout.runtime.endpoints.letters import NewLetter

_OF_TRIES = re.compile(rf":{TRIES}:\d+(:\d+)?$", re.ASCII)
"""Suffix that a rewritten letter has after its first id."""


def mark(
    route: Route, box: LetterBox, delivered: Sequence[DeadLetter], failed: Sequence[DeadLetter], *, delete: bool
) -> None:
    """Mark letters as delivered, or as failed again.

    Without *delete* one message with the header ``Turnout-Redriven`` is added on the letters' topic: its body names the
    sequences of those that are done, and how often the others have been tried. With it, letters that are done are
    deleted from their stream, and one that failed again is written anew with ``Turnout-Redrive-Tries`` before it is
    deleted: its first reason, and everything else of it, is kept. The route's secret, if it has one, seals what is
    written.

    Raises:
        StreamError: the server refuses to delete, or to store a note.
        ConnectionLostError: the server does not come back in time.
    """
    if not delivered and not failed:
        return
    if not delete:
        for stream in dict.fromkeys(letter.stream for letter in (*delivered, *failed)):
            _note(
                route,
                box,
                stream,
                *([one for one in letters if one.stream == stream] for letters in (delivered, failed)),
            )
        return
    done = [(letter.stream, letter.sequence) for letter in (*delivered, *failed)]
    box.letters.exchange([_rewritten(box, letter) for letter in failed], done)


def _note(
    route: Route, box: LetterBox, stream: str, delivered: Sequence[DeadLetter], failed: Sequence[DeadLetter]
) -> None:
    body = {
        "delivered": [letter.sequence for letter in delivered],
        "failed": {str(letter.sequence): letter.tries + 1 for letter in failed},
        # A copy of the note says nothing of letters that have these sequences in another stream, or later.
        "stream": stream,
        "until": max(letter.stored for letter in (*delivered, *failed)),
    }
    headers: list[Header] = [
        (REDRIVEN, str(len(delivered) + len(failed)).encode()),
        # Distinguishes a route's letters, and their notes, from those of others on the topic.
        (CONNECTOR, route.name.encode()),
    ]
    box.letters.add(box.letter(headers, json.dumps(body).encode()), stream)


def _rewritten(box: LetterBox, letter: DeadLetter) -> NewLetter:
    """Return a letter with one more try."""
    tries = letter.tries + 1
    first = _OF_TRIES.sub("", letter.message_id) or f"{letter.stream}:{letter.sequence}"
    headers = [*letter.raw, (TRIES, str(tries).encode())]
    # With the sequence no other letter gets this id, whatever ids others publish with: a copy that the server takes for
    # one that it has would be lost, as the letter is deleted after it.
    id_ = f"{first}:{TRIES}:{tries}:{letter.sequence}"
    return box.letter(headers, letter.record.value or b"", id_, sealed=letter.verified)
