"""Phrases that `tools.words` refuses: comments, docstrings and other strings, templates, scripts and pages.

The phrases are regular expressions; a space in them matches a line break, too. Matching ignores case.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_BREAK = r"\s+(?:(?:#|//|\*)\s+)?"
"""White space between two words; comments continue behind their sign."""


class PhraseFinding(NamedTuple):
    """Phrase that was found: its line, its text, and the text to write instead."""

    line: int
    text: str
    instead: str


class Phrases:
    """Table of phrases, compiled."""

    def __init__(self, phrases: Mapping[str, str], exceptions: Mapping[str, str]) -> None:
        """Compile the phrases.

        Args:
            phrases: regular expression → the text to write instead.
            exceptions: ``path:phrase`` → the reason, the phrase as it was found.

        Raises:
            re.error: a phrase is no regular expression.
        """
        self._instead = {
            re.compile(rf"\b(?:{text.replace(' ', _BREAK)})\b", re.IGNORECASE): instead
            for text, instead in phrases.items()
        }
        self._exceptions = {key.lower() for key in exceptions}

    def in_source(self, path: str, source: str) -> Iterator[PhraseFinding]:
        """Yield the phrases in the comments and strings of a Python module."""
        for line, text in _prose(source):
            yield from self.in_text(path, text, line)

    def in_text(self, path: str, text: str, line: int = 1) -> Iterator[PhraseFinding]:
        """Yield the phrases in a text that begins in *line*."""
        for phrase, instead in self._instead.items():
            for found in phrase.finditer(text):
                words = " ".join(re.sub(r"\s[#/*]+\s", " ", found[0]).split())
                if f"{path}:{words}".lower() not in self._exceptions:
                    yield PhraseFinding(line + text.count("\n", 0, found.start()), words, instead)


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings and the blocks of comments of a module, each with its first line."""
    block: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and first + len(block) != token.start[0]:
                yield first, "\n".join(block)
                block = []
            first = first if block else token.start[0]
            block.append(token.string)
        elif token.type == tokenize.STRING:
            yield token.start[0], token.string
    if block:
        yield first, "\n".join(block)
