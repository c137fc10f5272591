"""The headers of a dead letter in two parts: the record's own, and behind them the block that the route wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from turnout.engine.dead_letters import DESTINATION, LEFT_OUT, ORIGIN, SUBSCRIPTION
from turnout.engine.letter_seal import SEAL, is_sealed
from turnout.engine.messages import VALUE_DIGEST, VALUE_LEFT_OUT
from turnout.engine.reserved import CONNECT_PREFIX
from turnout.engine.sample_records import Header
from turnout.records.types import Fields

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
