"""Sets of subjects: their normal form, what of them a pattern can match, and few filters for many.

Of a pattern that narrows a form, the state is the position that is compared next; several are possible at once behind
a wildcard. Nothing that can match is left out; some that cannot may stay in.

Of regular expressions only what topics are matched by is understood: texts, ``.``, classes, groups, alternatives and
repetitions. Where there is anything else, the answer is that anything may match.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, product
from typing import Final, Self, TypeAlias

from turnout.conditions.pattern import ANY, ONE, Piece, Wildcard
from turnout.subjects.pattern import FULL, PARTIAL, collide, is_subset


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
        topics = self.topic_filter if self.without else None
        return topics is not None and any(is_subset(topics, of) for of in self.without)

    @property
    def topic_filter(self) -> str | None:
        """The possible topics as a filter; None if token boundaries are unknown."""
        tokens = self.tokens()
        if tokens is None:
            return None
        return ".".join(token if isinstance(token, str) else FULL if token is REST else PARTIAL for token in tokens)

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


Glob: TypeAlias = tuple[str | Wildcard, ...]
"""A pattern by its characters and wildcards."""

_States: TypeAlias = frozenset[int]


def glob_of(pieces: Sequence[Piece]) -> Glob:
    """Return a pattern's pieces, character by character."""
    return tuple(character for piece in pieces for character in (piece if isinstance(piece, str) else (piece,)))


def narrowed(form: SubjectForm, glob: Glob) -> list[SubjectForm]:
    """Return the forms of the subjects whose topic the pattern can match; empty if it can match none."""
    return [form for form in dict.fromkeys(_Narrowing(form, glob).forms()) if not form.is_empty]


class _Narrowing:
    """Intersection of one form with one pattern."""

    def __init__(self, form: SubjectForm, glob: Glob) -> None:
        self._form = form
        self._glob = glob

    def forms(self) -> Iterator[SubjectForm]:
        """Yield a form for each way in which the pattern can match."""
        yield from self._from(0, self._closed({0}), {})

    def _from(self, position: int, states: _States, bound: dict[int, str]) -> Iterator[SubjectForm]:
        topic = self._form.topic
        while position < len(topic) and states:
            element = topic[position]
            following = topic[position + 1] if position + 1 < len(topic) else None
            if element is REST and following is None:
                for rest in self._rests(states, []):
                    yield self._form.bound(bound, rest)
                return
            if isinstance(element, Token) and element.position is not None:
                bound_text = bound.get(element.position)
                if bound_text is None:
                    for text, next_states in self._choices(states, _ends(following)):
                        more = bound if text is None else {**bound, element.position: text}
                        yield from self._from(position + 1, next_states, more)
                    return
                element = bound_text
            states = self._states_after(element, states)
            position += 1
        if position == len(topic) and len(self._glob) in states:
            yield self._form.bound(bound)

    def _states_after(self, element: Element, states: _States) -> _States:
        """Return the states after an element that binds no token."""
        if isinstance(element, str):
            for character in element:
                states = self._step(states, character)
            return states
        if element is ONE:
            return self._step(states, None)
        if isinstance(element, Token):
            return self._behind_token(states)
        # A run of characters, whatever the pattern.
        return frozenset(range(min(states), len(self._glob) + 1)) if states else states

    def _choices(self, states: _States, whole: bool) -> list[tuple[str | None, _States]]:
        """Return the texts that a token may have, or (None) any, with the states after it.

        Args:
            states: before the token.
            whole: whether the topic's token ends with this one.
        """
        texts = {self._token_from(state) if whole else None: state for state in states}
        free = frozenset(state for state in states if not whole or self._token_from(state) is None)
        choices: list[tuple[str | None, _States]] = [(text, self._states_after(text, states)) for text in texts if text]
        if free:
            choices.append((None, self._behind_token(free)))
        return choices

    def _token_from(self, state: int) -> str | None:
        """Return the token that the pattern requires from a state on; "" if none can match, None if several can."""
        text = ""
        for element in self._glob[state:]:
            if element == ".":
                break
            if not isinstance(element, str):
                return None
            text += element
        return text if is_plain(text) or not text else None

    def _rests(self, states: _States, before: list[str]) -> Iterator[list[str]]:
        """Yield the possible last tokens, as the end of a filter."""
        if any(self._spans(state) for state in states):
            yield [*before, ">"]
            return
        for text, next_states in self._choices(states, whole=True):
            tokens = [*before, text or "*"]
            if len(self._glob) in next_states:
                yield tokens
            further = self._step(next_states, ".")
            if further:
                yield from self._rests(further, tokens)

    def _spans(self, state: int) -> bool:
        """Return True if the pattern may match any number of tokens from this one on."""
        for element in self._glob[state:]:
            if element == ".":
                return False
            if element is ANY:
                return True
        return False

    def _behind_token(self, states: _States) -> _States:
        """Return the states after one or more characters other than dots."""
        reached: set[int] = set()
        waiting = set(states)
        while waiting:
            next_states = self._step(frozenset(waiting), "", but_dots=True)
            waiting = set(next_states) - reached
            reached |= next_states
        return frozenset(reached)

    def _step(self, states: _States, character: str | None, *, but_dots: bool = False) -> _States:
        """Return the states after one character: the given one; any for None; any but a dot for *but_dots*."""
        next_states: set[int] = set()
        for state in states:
            if state == len(self._glob):
                continue
            element = self._glob[state]
            if element is ANY:
                next_states.add(state)
            elif element is ONE or character is None or (element != "." if but_dots else element == character):
                next_states.add(state + 1)
        return self._closed(next_states)

    def _closed(self, states: set[int]) -> _States:
        """Return the states, and those reachable from them without a character."""
        closed = set(states)
        for state in sorted(states):
            at = state
            while at < len(self._glob) and self._glob[at] is ANY:
                at += 1
                closed.add(at)
        return frozenset(closed)


def _ends(following: Element | None) -> bool:
    """Return True if a token ends at the start of this element."""
    return following is None or (isinstance(following, str) and following.startswith("."))


_MAX_ALTERNATIVES: Final = 32
"""This many alternatives are followed."""

_REPEATED: Final = re.compile(r"(?:([*+?])|\{\d+(?:,\d*)?\})[?+]?")
_OPENED: Final = re.compile(r"\((?:\?:|\?<[A-Za-z][A-Za-z0-9]*>|(?!\?))")
_CLASS: Final = re.compile(r"\[\^?(?:\\[^QEpPxuc0-9]|\\[0-9]|[^\[\]\\&])+\]")
_GROUP: Final = re.compile(r"\$(?:\d+|\{[A-Za-z][A-Za-z0-9]*\})")


class _UnknownError(Exception):
    """Raised at regular expression syntax that is not supported."""


def regex_globs(pattern: str) -> list[Glob]:
    """Return patterns such that one of them matches each text that *pattern* matches as a whole."""
    reader = _RegexReader(pattern)
    try:
        globs = reader.alternatives()
        return globs if reader.at == len(pattern) else [(ANY,)]
    except _UnknownError:
        return [(ANY,)]


def replacement_glob(replacement: str) -> Glob:
    """Return a pattern for the results of a replacement, followed by any text: ``find`` may match only a prefix."""
    glob: list[str | Wildcard] = []
    at = 0
    while at < len(replacement):
        group = _GROUP.match(replacement, at)
        if group is not None:
            glob.append(ANY)
            at = group.end()
        else:
            at += replacement[at] == "\\" and at + 1 < len(replacement)
            glob.append(replacement[at])
            at += 1
    return (*glob, ANY)


class _RegexReader:
    """Reads an expression from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0

    def alternatives(self) -> list[Glob]:
        """Read alternatives up to the end or a closing bracket."""
        globs = self._sequence()
        while self._peek() == "|":
            self.at += 1
            globs += self._sequence()
        return _limited(globs)

    def _peek(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _sequence(self) -> list[Glob]:
        globs: list[Glob] = [()]
        while self._peek() not in ("", "|", ")"):
            globs = _limited([before + after for before, after in product(globs, self._repeated())])
        return globs

    def _repeated(self) -> list[Glob]:
        if self._peek() in ("^", "$"):
            # They match places, and no characters.
            self.at += 1
            atom: list[Glob] = [()]
        else:
            atom = self._atom()
        repeated = _REPEATED.match(self._pattern, self.at)
        if repeated is None:
            return atom
        self.at = repeated.end()
        if _REPEATED.match(self._pattern, self.at):
            raise _UnknownError
        return [(ONE, ANY)] if repeated[1] == "+" and atom == [(ONE,)] else [(ANY,)]

    def _atom(self) -> list[Glob]:
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            class_ = _CLASS.match(self._pattern, self.at)
            if class_ is None:
                raise _UnknownError
            self.at = class_.end()
            return [(ONE,)]
        self.at += 1
        if character == "\\":
            return [self._escaped()]
        if character in "*+?{}":
            raise _UnknownError
        return [(ONE,)] if character == "." else [(character,)]

    def _group(self) -> list[Glob]:
        opened = _OPENED.match(self._pattern, self.at)
        if opened is None:
            raise _UnknownError
        self.at = opened.end()
        globs = self.alternatives()
        if self._peek() != ")":
            raise _UnknownError
        self.at += 1
        return globs

    def _escaped(self) -> Glob:
        character = self._peek()
        self.at += 1
        if character and character in "dDwWsS":
            return (ONE,)
        if not character or character.isalnum() or not character.isascii():
            raise _UnknownError
        return (character,)


def _limited(globs: list[Glob]) -> list[Glob]:
    if len(globs) > _MAX_ALTERNATIVES:
        raise _UnknownError
    return globs


def minimal_filters(filters: Iterable[str], own: Collection[str], most: int) -> tuple[str, ...]:
    """Return at most *most* filters that cover *filters* and have no subject in common, in order.

    Args:
        filters: each within one of *own*.
        own: the source's filters, an upper bound, no two with a subject in common; more than *most* are unchanged.
        most: the number.
    """
    chosen_filters = set(filters)
    while len(chosen_filters) > most:
        chosen_filters = _without_a_token(chosen_filters)
    chosen = _disjoint(_widest(chosen_filters))
    # Two merged filters may exceed the source's own.
    uncovered = [filter_ for filter_ in chosen if not any(is_subset(filter_, of) for of in own)]
    if uncovered:
        instead = [of for of in own if any(collide(of, filter_) for filter_ in uncovered)]
        chosen = _widest({*instead, *chosen}.difference(uncovered))
    return tuple(sorted(chosen))


def _without_a_token(filters: set[str]) -> set[str]:
    """Return the filters with a wildcard at the position with the most distinct tokens."""
    split = [filter_.split(".") for filter_ in filters]
    tokens: dict[tuple[int, int], set[str]] = {}
    for parts in split:
        for position, token in enumerate(parts):
            if token not in (PARTIAL, FULL):
                tokens.setdefault((len(parts), position), set()).add(token)
    # Of several, the last: earlier tokens are more selective.
    length, at = max(tokens, key=lambda position: (len(tokens[position]), position), default=(0, 0))
    if not tokens or len(tokens[length, at]) < 2:
        return _merged(split)
    return {
        ".".join([*parts[:at], PARTIAL, *parts[at + 1 :]] if len(parts) == length and parts[at] != FULL else parts)
        for parts in split
    }


def _merged(split: list[list[str]]) -> set[str]:
    """Merge the two longest filters, which differ only in length and wildcards."""
    one, other, *rest = sorted(split, key=len, reverse=True)
    return {_union(one, other), *(".".join(tokens) for tokens in rest)}


def _disjoint(filters: Iterable[str]) -> list[str]:
    """Merge filters that have subjects in common, until no two overlap."""
    chosen = list(filters)
    while True:
        pair = next(((one, other) for one, other in combinations(chosen, 2) if collide(one, other)), None)
        if pair is None:
            return chosen
        chosen = _widest({*chosen, _union(pair[0].split("."), pair[1].split("."))})


def _union(one: list[str], other: list[str]) -> str:
    """Return the narrowest filter that covers both."""
    if len(one) == len(other) and (one[-1] == FULL) == (other[-1] == FULL):
        return ".".join(a if a == b else PARTIAL for a, b in zip(one, other, strict=True))
    shared = min(len(one), len(other)) - 1
    return ".".join([*(a if a == b else PARTIAL for a, b in zip(one[:shared], other[:shared], strict=True)), FULL])


def _widest(filters: Iterable[str]) -> list[str]:
    """Remove the filters that another filter covers."""
    widest: list[str] = []
    for filter_ in sorted(set(filters), key=lambda text: (text.count("."), text)):
        if not any(is_subset(filter_, of) for of in widest):
            widest = [other for other in widest if not is_subset(other, filter_)] + [filter_]
    return widest
