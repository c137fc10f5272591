"""Mistakes in a configuration: a path, its fault, and texts of bounded length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from turnout.secrets import masked_url

MOST_MISTAKES: Final = 50
"""Mistakes that one error lists; a file with thousands of them is wrong as a whole."""
_MAX_VALUE_CHARACTERS: Final = 500
_MAX_PATH_CHARACTERS: Final = 200


def shortened(text: str, most: int = _MAX_VALUE_CHARACTERS) -> str:
    """Return a text of *most* characters at most: of a longer one the beginning and the end, with logins masked.

    >>> shortened("found '" + "x" * 5000 + "', expected a number", 60)
    "found 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx [...] xpected a number"
    """
    if len(text) <= most:
        return text
    # Half a login could not be found again.
    text = masked_url(text)
    mark = " [...] "
    end = most // 3 - len(mark) + 3
    return text if len(text) <= most else f"{text[: most - end - len(mark)]}{mark}{text[-end:]}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """Mistake in a configuration.

    Attributes:
        path: the place, as its author would name it: ``transforms.late.type`` or ``sink.servers[0]``.
        problem: the fault, with the value found and the expected form.
        line: the line of the file, from 1, where one is known.

    >>> str(Mistake("sink.servers[0]", "found 'nats', expected a URL", line=7))
    "sink.servers[0]: found 'nats', expected a URL (line 7)"
    """

    path: str
    problem: str
    line: int | None = None

    def __str__(self) -> str:
        path = shortened(self.path, _MAX_PATH_CHARACTERS) or "(the whole)"
        return f"{path}: {shortened(self.problem)}" + (f" (line {self.line})" if self.line else "")

    def shortened(self) -> Self:
        """Return the same with a path and a problem of bounded length."""
        return replace(self, path=shortened(self.path, _MAX_PATH_CHARACTERS), problem=shortened(self.problem))
