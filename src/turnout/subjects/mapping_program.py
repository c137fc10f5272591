"""Table of mappings as data: lookup tables that replace comparisons in the column of `map_subject`.

Rules are data and only their *forms* are code. A destination's form is the sequence of its functions
(``wildcard``, ``split`` …); its literals, token places and numbers are arrays. Thousands of mappings have a
handful of forms, and a handful of source shapes, so the expression stays small however many there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnout.subjects.index import SourceShape
from turnout.subjects.mapping_table import MappingTable, Share, SubjectMapping
from turnout.subjects.plan import TokenStep
from turnout.subjects.tokens import has_wildcard
from turnout.subjects.transform import SubjectTransform

_WHOLE = 100


@dataclass(frozen=True, slots=True)
class TargetForm:
    """Common form of the destinations in one branch of the expression.

    Attributes:
        functions: per placeholder its function and how many token places it reads.
        tail: whether ``>`` follows.
    """

    functions: tuple[tuple[str, int], ...]
    tail: bool


KEPT = TargetForm((("kept", 0),), tail=False)
"""The subject is unchanged."""

LOST = TargetForm((("lost", 0),), tail=False)
"""The weights mean loss."""


@dataclass(frozen=True, slots=True)
class Target:
    """Destination as data.

    Attributes:
        form: the number of its form.
        texts: the literals before, between and after the placeholders; then the delimiters of ``split``.
        numbers: for each placeholder its token places, its number and its place in the destination; then the
            number of tokens before ``>``.
    """

    form: int
    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(slots=True)
class MappingProgram:
    """Lookup tables of the mapping expression.

    Attributes:
        literals: literal source to rule.
        shapes: by shape, fixed tokens to rule.
        rules: per rule the targets among which the draw chooses, equally likely; rule 0 keeps the subject.
        targets: the destinations, each once.
        forms: the forms of all targets.
        draws: whether a draw can matter.
    """

    literals: dict[str, int] = field(default_factory=dict)
    shapes: dict[SourceShape, dict[str, int]] = field(default_factory=dict)
    rules: list[tuple[int, ...]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    forms: list[TargetForm] = field(default_factory=list)
    draws: bool = False
    _numbers: dict[Target, int] = field(default_factory=dict)

    @classmethod
    def build(cls, table: MappingTable, cluster: str | None) -> MappingProgram:
        """Return the program of *table* for messages that are published in *cluster*."""
        program = cls()
        program.rules.append((program._target(program._bare(KEPT)),))
        for mapping in table.mappings:
            program.rules.append(program._rule(mapping, mapping.group(cluster)))
        # Rule 0 is the one for no match, so the rule of source n is n + 1.
        program.literals = {source: number + 1 for source, number in table.index.literals.items()}
        program.shapes = {
            shape: {key: number + 1 for key, number in numbers.items()} for shape, numbers in table.index.shapes.items()
        }
        return program

    @property
    def is_empty(self) -> bool:
        """True if the table has no mappings."""
        return len(self.rules) == 1

    def _rule(self, mapping: SubjectMapping, shares: Sequence[Share]) -> tuple[int, ...]:
        if len(shares) == 1 and shares[0].weight == _WHOLE:
            return (self._target(self._destination(mapping, shares[0])),)
        lost_slot = self._target(self._bare(LOST))
        if not shares:
            return (lost_slot,)
        self.draws = True
        step = math.gcd(_WHOLE, *(share.until for share in shares))
        slots: list[int] = []
        for share in shares:
            number = self._target(self._destination(mapping, share))
            slots += [number] * (share.until // step - len(slots))
        return tuple(slots + [lost_slot] * (_WHOLE // step - len(slots)))

    def _destination(self, mapping: SubjectMapping, share: Share) -> Target:
        transform = share.transform
        if share.completed and has_wildcard(mapping.source):
            return self._bare(KEPT)
        if transform.is_random:
            self.draws = True
        elif not has_wildcard(mapping.source):
            # The one subject that matches is known, so is the result.
            return self._constant(transform.apply_tokens(mapping.source.split(".")))
        return self._templated(transform)

    def _bare(self, form: TargetForm) -> Target:
        return Target(self._form(form))

    def _constant(self, text: str) -> Target:
        return Target(self._form(TargetForm((), tail=False)), (text,))

    def _templated(self, transform: SubjectTransform) -> Target:
        functions: list[tuple[str, int]] = []
        texts = [""]
        delimiters: list[str] = []
        numbers: list[int] = []
        for index, step in enumerate(transform.steps):
            texts[-1] += "." if index else ""
            constant = _constant_text(step)
            if constant is not None:
                texts[-1] += constant
                continue
            assert step.call is not None
            name, number = step.call.function, step.call.number or 0
            if name == "split":
                name = "split" if step.call.delimiter else "characters"
                delimiters.append(step.call.delimiter or "")
            elif name == "partition":
                number %= 2**32
            elif name == "random":
                number = abs(number)
            elif number <= 0:
                name = "wildcard"
            functions.append((name, len(step.tokens)))
            numbers += [*step.tokens, number, index]
            texts.append("")
        if transform.tail is not None:
            texts[-1] += "." if transform.steps else ""
            numbers.append(transform.tail)
        form = TargetForm(tuple(functions), tail=transform.tail is not None)
        return Target(self._form(form), tuple(texts + delimiters), tuple(numbers))

    def _form(self, form: TargetForm) -> int:
        if form not in self.forms:
            self.forms.append(form)
        return self.forms.index(form)

    def _target(self, target: Target) -> int:
        number = self._numbers.setdefault(target, len(self.targets))
        if number == len(self.targets):
            self.targets.append(target)
        return number


def _constant_text(step: TokenStep) -> str | None:
    """Return the text of a step that does not depend on the subject."""
    if step.literal is not None:
        return step.literal
    assert step.call is not None
    return "0" if step.call.function in ("partition", "random") and step.call.number == 0 else None
