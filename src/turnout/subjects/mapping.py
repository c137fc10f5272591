"""Account mappings: weighted, cluster-scoped destinations for a source, a table of them, and its explanation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from turnout.errors import SubjectError
from turnout.subjects.errors import InvalidSubjectError, MappingEntryError, MappingTableError, Reason
from turnout.subjects.functions import check_draw, new_draw, percent
from turnout.subjects.pattern import FULL, PARTIAL, SourceIndex, SourceShape, check_subject, covers_tokens, has_wildcard
from turnout.subjects.transform import SubjectTransform, TokenStep, check_mapping, with_placeholders

_WEIGHT = re.compile(r"[+-]?[0-9]+")
_WHOLE_PERCENT = 100
_MAX_DIGITS = 100


@dataclass(frozen=True, slots=True)
class Destination:
    """Destination as configured.

    Attributes:
        destination: literals and mapping functions between dots.
        weight: its share in percent.
        cluster: the cluster it is for; empty for no cluster, the default group.

    >>> table = MappingTable.from_config({"orders": [{"destination": "west", "weight": "50%", "cluster": "w"}]})
    >>> table.mappings[0].destinations
    (Destination(destination='west', weight=50, cluster='w'),)
    >>> table.apply("orders", "w", draw=0.1), table.apply("orders", "w", draw=0.9), table.apply("orders", "e")
    ('west', 'orders', 'orders')
    """

    destination: str
    weight: int = _WHOLE_PERCENT
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """Destination of a group, with its share of the draws.

    Attributes:
        transform: its transform of a subject.
        weight: its share in percent.
        until: the cumulative weight: it is chosen by the percents below this and not below its neighbour's.
        completed: whether it is the source itself, added because the weights did not make 100.
    """

    transform: SubjectTransform
    weight: int
    until: int
    completed: bool = False


@dataclass(frozen=True, slots=True)
class SubjectMapping:
    """Mapping of one source subject to its destinations.

    Attributes:
        source: a filter.
        destinations: as configured.
        groups: cluster name to shares, "" for the default group. A group is completed with the source's own
            subject up to 100 unless the source itself is among the destinations: the missing share is then lost.

    >>> table = MappingTable.from_config({"orders": [{"destination": "blue", "weight": 30}]})
    >>> [(share.transform.destination, share.weight, share.completed) for share in table.mappings[0].groups[""]]
    [('blue', 30, False), ('orders', 70, True)]
    """

    source: str
    destinations: tuple[Destination, ...]
    groups: Mapping[str, tuple[Share, ...]] = field(repr=False, compare=False, hash=False)

    @classmethod
    def build(cls, source: str, destinations: Sequence[Destination]) -> Self:
        """Return the mapping of *source*, after every check that the server makes, in its order.

        Raises:
            MappingEntryError: its reason says which check failed.
        """
        try:
            check_subject(source)
        except InvalidSubjectError as failure:
            raise MappingEntryError(Reason.BAD_SOURCE, str(failure), cause=failure, source=source) from failure
        groups: dict[str, list[tuple[SubjectTransform, int]]] = {"": []}
        named: set[str] = set()
        for entry, destination in enumerate(destinations):
            groups.setdefault(destination.cluster, []).append(
                (_checked(source, entry, destination, named, groups), destination.weight)
            )
        completes = source not in named
        shares = {name: _shares(source, chosen, completes=completes) for name, chosen in groups.items()}
        return cls(source, tuple(destinations), shares)

    @classmethod
    def of_transform(cls, transform: SubjectTransform) -> Self:
        """Return the mapping that always does what *transform* does."""
        destination = transform.destination or with_placeholders(transform.source)
        return cls.build(transform.source, [Destination(destination)])

    def group(self, cluster: str | None) -> tuple[Share, ...]:
        """The shares for a server of *cluster*: the cluster's own where the mapping has some, else the default."""
        return self.groups.get(cluster or "", self.groups[""])

    def choose(self, cluster: str | None, draw: float) -> Share | None:
        """Return the share selected by *draw*; None if the message is lost."""
        point = percent(draw)
        return next((share for share in self.group(cluster) if point < share.until), None)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).build, (self.source, self.destinations)


def _checked(
    source: str,
    entry: int,
    destination: Destination,
    named: set[str],
    groups: Mapping[str, Sequence[tuple[SubjectTransform, int]]],
) -> SubjectTransform:
    """Return the transform of one destination, after the server's checks in the server's order."""
    wrong = partial(MappingEntryError, source=source, entry=entry)
    if destination.destination in named:
        raise wrong(Reason.DUPLICATE_DESTINATION, f"{destination.destination!r} occurs twice")
    named.add(destination.destination)
    if not 0 <= destination.weight <= _WHOLE_PERCENT:
        raise wrong(
            Reason.INVALID_WEIGHT,
            f"a weight is from 0 to 100, found {destination.weight}",
            text=str(destination.weight),
        )
    total = destination.weight + sum(weight for _, weight in groups.get(destination.cluster, ()))
    if total > _WHOLE_PERCENT:
        where = f" for the cluster {destination.cluster!r}" if destination.cluster else ""
        raise wrong(Reason.TOTAL_OVER_100, f"the weights{where} add up to {total}, at most 100")
    if not destination.destination:
        raise wrong(Reason.MISSING_DESTINATION, "a destination is missing or empty")
    try:
        return check_mapping(source, destination.destination)
    except SubjectError as failure:
        raise wrong(Reason.BAD_DESTINATION, str(failure), cause=failure) from failure


def _shares(source: str, chosen: Sequence[tuple[SubjectTransform, int]], *, completes: bool) -> tuple[Share, ...]:
    """Return a group with its cumulative weights: completed if *completes*, the smallest share first."""
    parts = [(weight, transform, False) for transform, weight in chosen]
    missing = _WHOLE_PERCENT - sum(weight for weight, _, _ in parts)
    if missing and completes:
        same = with_placeholders(source) if has_wildcard(source) else source
        parts.append((missing, SubjectTransform.parse(source, same), True))
    parts.sort(key=lambda part: part[0])
    until = 0
    shares: list[Share] = []
    for weight, transform, completed in parts:
        until += weight
        shares.append(Share(transform, weight, until, completed))
    return tuple(shares)


@dataclass(frozen=True, slots=True)
class MappingTable:
    """An account's mappings, in order: the first source that matches a subject decides.

    nats-server reads a configuration file's mappings into a map and so tries overlapping sources in an order
    that changes from start to start. Here the order is the one they were written in.

    >>> halves = [{"destination": "blue.$1", "weight": "90%"}, {"destination": "green.$1", "weight": "10%"}]
    >>> table = MappingTable.from_config({"orders.*": halves, "stock.>": "eu.stock.>"})
    >>> table.apply("orders.17", draw=0.05), table.apply("orders.17", draw=0.95)
    ('green.17', 'blue.17')
    >>> table.apply("stock.oulu.3"), table.apply("unknown")
    ('eu.stock.oulu.3', 'unknown')
    """

    mappings: tuple[SubjectMapping, ...]
    index: SourceIndex = field(repr=False, compare=False, hash=False)

    @classmethod
    def of(cls, mappings: Iterable[SubjectMapping]) -> Self:
        """Return the table of *mappings*."""
        ordered = tuple(mappings)
        return cls(ordered, SourceIndex.build(mapping.source for mapping in ordered))

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Return the table of a ``mappings`` block, as YAML, JSON or a nats-server configuration gives it.

        Args:
            config: source subject to a destination, an entry, or a list of entries; an entry has
                ``destination`` (or ``dest``), ``weight`` and, if it is for one cluster only, ``cluster``.

        Raises:
            MappingTableError: with one error for each source that is wrong.
        """
        mappings: list[SubjectMapping] = []
        errors: list[MappingEntryError] = []
        for source, value in config.items():
            try:
                mappings.append(_mapping(source, value))
            except MappingEntryError as failure:
                errors.append(failure)
        if errors:
            raise MappingTableError(errors)
        return cls.of(mappings)

    @classmethod
    def from_transforms(cls, transforms: Iterable[SubjectTransform]) -> Self:
        """Build the table that tries *transforms* in order, like a stream with the transforms of a source.

        Raises:
            MappingEntryError: when one of them cannot be a mapping.
        """
        return cls.of(SubjectMapping.of_transform(transform) for transform in transforms)

    def find(self, subject: str) -> SubjectMapping | None:
        """Return the mapping that a subject takes; None where no source matches."""
        number = self.index.first(subject, subject.split("."))
        return None if number is None else self.mappings[number]

    def matching(self, subject: str) -> list[SubjectMapping]:
        """Return every mapping with a matching source, in order; only the first is used."""
        tokens = subject.split(".")
        return [m for m in self.mappings if m.source == subject or covers_tokens(tokens, m.source.split("."))]

    def apply(self, subject: str, cluster: str | None = None, draw: float | None = None) -> str | None:
        """Map a published subject.

        Args:
            subject: as published.
            cluster: the name of the cluster that the message is published in, if any; case matters.
            draw: decides weights and ``random(n)``; a number in [0, 1), a new one each time if not given.

        Returns:
            The mapped subject; the subject itself where nothing maps it; None where the weights mean loss.
            Not promised: that a mapped subject is valid, since ``split`` can leave an empty token. The server
            delivers such a message to no subscriber.
        """
        tokens = subject.split(".")
        number = self.index.first(subject, tokens)
        if number is None:
            return subject
        shares = self.mappings[number].group(cluster)
        if len(shares) == 1 and shares[0].weight == _WHOLE_PERCENT:
            return shares[0].transform.render(subject, tokens, draw)
        fixed_draw = new_draw() if draw is None else check_draw(draw)
        point = percent(fixed_draw)
        for share in shares:
            if point < share.until:
                return share.transform.render(subject, tokens, fixed_draw)
        return None

    def __len__(self) -> int:
        return len(self.mappings)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).of, (self.mappings,)


def _mapping(source: object, value: object) -> SubjectMapping:
    """Parse one source of a ``mappings`` block."""
    if not isinstance(source, str):
        kind = type(source).__name__
        raise MappingEntryError(
            Reason.BAD_SOURCE, f"a source is text, found {source!r} ({kind}); quote it", source=str(source)
        )
    try:
        check_subject(source)
    except InvalidSubjectError as failure:
        raise MappingEntryError(Reason.BAD_SOURCE, str(failure), cause=failure, source=source) from failure
    if isinstance(value, str):
        return SubjectMapping.build(source, [Destination(value)])
    if isinstance(value, list | tuple):
        return SubjectMapping.build(source, [_entry(source, number, item) for number, item in enumerate(value)])
    return SubjectMapping.build(source, [_entry(source, None, value)])


def _entry(source: str, entry: int | None, value: object) -> Destination:
    """Parse one entry; field names in any case, the last of two spellings wins."""
    wrong = partial(MappingEntryError, source=source, entry=entry)
    if not isinstance(value, Mapping):
        raise wrong(Reason.NOT_AN_ENTRY, f"expected an entry with destination and weight, found {value!r}")
    destination: object = ""
    cluster: object = ""
    weight: int | None = None
    for name, setting in value.items():
        field_name = str(name).lower()
        if field_name in ("dest", "destination"):
            destination = setting
        elif field_name == "cluster":
            cluster = setting
        elif field_name == "weight":
            weight = _weight(source, entry, setting)
        else:
            fields = "destination (dest), weight, cluster"
            raise wrong(Reason.UNKNOWN_FIELD, f"unknown field {name!r}; there are {fields}", text=str(name))
    if weight is None:
        raise wrong(Reason.MISSING_WEIGHT, f"the destination {destination!r} has no weight")
    if not isinstance(destination, str):
        raise wrong(Reason.NOT_AN_ENTRY, f"a destination is text, found {destination!r}")
    if not isinstance(cluster, str):
        raise wrong(Reason.NOT_AN_ENTRY, f"a cluster is text, found {cluster!r}")
    return Destination(destination, weight, cluster)


def _weight(source: str, entry: int | None, value: object) -> int:
    """Return a weight: an integer, or the text of one with at most one ``%``."""
    wrong = partial(MappingEntryError, source=source, entry=entry, text=str(value))
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong(Reason.WEIGHT_TYPE, f"a weight is an integer such as 40 or 40%, found {value!r}")
    text = str(value).removesuffix("%")
    if not _WEIGHT.fullmatch(text) or len(text) > _MAX_DIGITS or not 0 <= int(text) <= _WHOLE_PERCENT:
        raise wrong(Reason.INVALID_WEIGHT, f"a weight is an integer from 0 to 100, found {value!r}")
    return int(text)


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


_ONLY_DEFAULT = "it is for clusters that have no destinations of their own"


@dataclass(frozen=True, slots=True)
class MappingOutcome:
    """Possible outcome of mapping the subject.

    Attributes:
        destination: as configured; the source's own subject where a group was completed with it.
        subject: the mapped subject; an example if it has ``random(n)``. None if it is lost.
        share: how often, in percent.
        completed: whether the destination was added to make 100 percent.
    """

    destination: str
    subject: str | None
    share: int
    completed: bool = False


@dataclass(frozen=True, slots=True)
class MappingExplanation:
    """Explanation of a table's result for one subject.

    Attributes:
        subject: the subject.
        mapping: the mapping that it takes, None where nothing maps it.
        group: the cluster whose destinations apply, "" for the default ones, None where nothing maps it.
        outcomes: possible outcomes.
        skipped: the mapping's destinations for other clusters, and whose they are.
        others: the other sources and why they are not taken.
    """

    subject: str
    mapping: SubjectMapping | None
    group: str | None
    outcomes: tuple[MappingOutcome, ...]
    skipped: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...]


def explain(table: MappingTable, subject: str, cluster: str | None = None) -> MappingExplanation:
    """Map *subject* with *table* in *cluster* and explain the result."""
    chosen = table.find(subject)
    others = tuple(
        (mapping.source, why_not(mapping.source, subject) or "it matches too, but is later in the list")
        for mapping in table.mappings
        if mapping is not chosen
    )
    if chosen is None:
        return MappingExplanation(subject, None, None, (MappingOutcome(subject, subject, 100),), (), others)
    tokens = subject.split(".")
    shares = chosen.group(cluster)
    outcomes = [
        MappingOutcome(share.transform.destination, share.transform.apply_tokens(tokens), share.weight, share.completed)
        for share in shares
    ]
    lost_percent = 100 - sum(share.weight for share in shares)
    if lost_percent:
        outcomes.append(MappingOutcome("", None, lost_percent))
    group = cluster if cluster and cluster in chosen.groups else ""
    skipped = tuple(
        (
            destination.destination,
            f"it is for the cluster {destination.cluster!r}" if destination.cluster else _ONLY_DEFAULT,
        )
        for destination in chosen.destinations
        if destination.cluster != group
    )
    return MappingExplanation(subject, chosen, group, tuple(outcomes), skipped, others)


def why_not(source: str, subject: str) -> str:
    """Return the reason why a mapping's source does not match a subject; empty if it matches."""
    tokens, pattern = subject.split("."), source.split(".")
    if source == subject or covers_tokens(tokens, pattern):
        return ""
    for index, pattern_token in enumerate(pattern):
        if index >= len(tokens):
            least = f"at least {len(pattern)}" if pattern[-1] == FULL else str(len(pattern))
            return f"it needs {least} tokens, the subject has {len(tokens)}"
        token = tokens[index]
        if pattern_token == FULL:
            break
        if not pattern_token.startswith(PARTIAL) and token != pattern_token:
            return f"token {index + 1} is {token!r}, not {pattern_token!r}"
        if not token or token in (FULL, PARTIAL):
            return f"token {index + 1} is {token!r}, which no published subject has"
    return f"it needs {len(pattern)} tokens, the subject has {len(tokens)}"
