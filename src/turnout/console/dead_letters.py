"""Dead letters as the console shows them: in groups, and bytes that are no text as hexadecimal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnout.history.dead_letters import DeadLetter
from turnout.server.dead_letters import text_of_bytes

_WIDTH = 16


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters that failed at one stage for one reason, the newest first."""

    stage: str
    reason: str
    letters: Sequence[DeadLetter]

    @property
    def id(self) -> str:
        """A short name for its stage and reason, which stays while other groups grow past it."""
        return hashlib.sha256(f"{self.stage}\0{self.reason}".encode()).hexdigest()[:12]


def reason_of(letter: DeadLetter) -> str:
    """Return the reason why the record was set aside."""
    return letter.reason or ("no subscription wanted it" if letter.stage is None else letter.stage)


def grouped(letters: Iterable[DeadLetter]) -> list[LetterGroup]:
    """Return the letters grouped by stage and reason, the largest group first."""
    members: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in letters:
        members.setdefault((letter.stage or "", reason_of(letter)), []).append(letter)
    groups = [LetterGroup(stage, reason, some) for (stage, reason), some in members.items()]
    return sorted(groups, key=lambda group: -len(group.letters))


def hex_lines(raw: bytes) -> str:
    r"""Return a hex dump of bytes: offset, hexadecimal, and printable ASCII.

    >>> hex_lines(b"\x00ab")
    '00000000  00 61 62                                         .ab'
    """
    lines = []
    for place in range(0, len(raw), _WIDTH):
        row = raw[place : place + _WIDTH]
        ascii_ = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{place:08x}  {row.hex(' '):<47}  {ascii_}".rstrip())
    return "\n".join(lines)


def shown(raw: bytes | None) -> str:
    """Return bytes as text if they are text, else as hexadecimal."""
    if raw is None:
        return "null"
    text = text_of_bytes(raw)
    return hex_lines(raw) if text is None else text
