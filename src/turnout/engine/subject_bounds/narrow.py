"""Intersection of a form with a pattern, run as an automaton over the topic; tokens that it fixes are bound.

A pattern's state is the position that is compared next; several are possible at once behind a wildcard. Nothing that
can match is left out; some that cannot may stay in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from turnout.conditions.pattern import ANY, ONE, Piece, Wildcard
from turnout.engine.subject_bounds.normal_form import REST, Element, SubjectForm, Token, is_plain

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
        # Any run of characters, whatever the pattern.
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
