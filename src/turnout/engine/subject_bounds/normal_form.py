"""Set of subjects on its way through a route: the subjects in the stream, and the topics that result from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self, TypeAlias

from turnout.conditions.pattern import ANY, Wildcard
from turnout.subjects.pattern import FULL, PARTIAL, is_subset


class Rest(Enum):
    """Sentinel for the tokens after the last known one."""

    REST = ">"


REST: Final = Rest.REST
"""One token or more, those that the source's final ``>`` stands for."""


@dataclass(frozen=True, slots=True)
class Token:
    """Single token, not empty and without a dot.

    Attributes:
        position: position of the source's token that it is a copy of, from 0; None for one that nothing is known of.
    """

    position: int | None


Element: TypeAlias = str | Token | Wildcard | Rest
"""A part of a topic: a text, a token, any run of characters or a single one (dots included), or the rest."""


@dataclass(frozen=True, slots=True)
class SubjectForm:
    """Subjects of the stream, and their topic at one stage of the route.

    Attributes:
        source: a filter's tokens: the subjects as they are read. They may be more than actually occur.
        topic: the possible topics of such subjects.
        without: filters: topics that one of them matches are not among these, they were mapped.
    """

    source: tuple[str, ...]
    topic: tuple[Element, ...]
    without: tuple[str, ...] = ()

    @classmethod
    def read(cls, pattern: str) -> Self:
        """Return the subjects of a filter as they are read."""
        return cls.of(pattern.split("."))

    @classmethod
    def of(cls, tokens: Iterable[str]) -> Self:
        """Return the subjects of a filter given by its tokens."""
        source = tuple(tokens)
        return cls(source, joined(_dotted([[_element(position, token)] for position, token in enumerate(source)])))

    @property
    def filter(self) -> str:
        """The source as one text."""
        return ".".join(self.source)

    def bound(self, tokens: Mapping[int, str], rest: Iterable[str] = ()) -> SubjectForm:
        """Return the form of the subjects that have these tokens.

        Args:
            tokens: position → text.
            rest: replacement of the source's final ``>``, as tokens of a filter; unchanged if not given.
        """
        bound_texts = {position: text for position, text in tokens.items() if is_plain(text)}
        rest_tokens = tuple(rest)
        first = len(self.source) - 1
        source = (*self.source[:first], *rest_tokens) if rest_tokens else self.source
        instead = _dotted([[_element(first + position, token)] for position, token in enumerate(rest_tokens)])
        topic: list[Element] = []
        for element in self.topic:
            if isinstance(element, Token) and element.position in bound_texts:
                topic.append(bound_texts[element.position])
            elif element is REST and rest_tokens:
                topic += instead
            else:
                topic.append(element)
        return SubjectForm(
            tuple(bound_texts.get(position, token) for position, token in enumerate(source)),
            joined(topic),
            self.without,
        )

    @property
    def is_empty(self) -> bool:
        """True if the form is known to contain no topic."""
        tokens = self.tokens() if self.without else None
        if tokens is None:
            return False
        topics = ".".join(token if isinstance(token, str) else FULL if token is REST else PARTIAL for token in tokens)
        return any(is_subset(topics, of) for of in self.without)

    def tokens(self) -> list[Element] | None:
        """Return the topic's tokens: texts, `Token`, and the rest as the last; None if token boundaries are unknown."""
        tokens: list[Element] = []
        open_ = True
        for element in self.topic:
            if isinstance(element, Wildcard):
                return None
            if not isinstance(element, str):
                if not open_:
                    return None
                tokens.append(element)
                open_ = False
                continue
            pieces = element.split(".")
            if open_ == (pieces[0] == ""):
                # Text behind the end of a token, or a token without a character.
                return None
            begun = pieces if open_ else pieces[1:]
            open_ = begun[-1] == ""
            tokens += begun[:-1] if open_ else begun
        if open_ or "" in tokens or REST in tokens[:-1]:
            return None
        return tokens


def _element(position: int, token: str) -> Element:
    if token == FULL:
        return REST
    return Token(position) if token == PARTIAL else token


def _dotted(tokens: Iterable[Iterable[Element]]) -> list[Element]:
    elements: list[Element] = []
    for number, token in enumerate(tokens):
        elements += [*(["."] if number else []), *token]
    return elements


def joined(elements: Iterable[Element]) -> tuple[Element, ...]:
    """Return the elements with texts that follow each other as one, and without empty ones."""
    merged: list[Element] = []
    for element in elements:
        last = merged[-1] if merged else None
        if isinstance(element, str) and isinstance(last, str):
            merged[-1] = last + element
        elif element != "" and not (element is ANY and last is ANY):
            merged.append(element)
    return tuple(merged)


def is_plain(token: str) -> bool:
    """Return True if a filter can name this token: servers refuse blanks, and read a leading star as a wildcard.

    Invalid UTF-8 in a subject is replaced by other characters.
    """
    if not token or token[0] in "*>" or "." in token:
        return False
    return token.isprintable() and " " not in token and "\ufffd" not in token
