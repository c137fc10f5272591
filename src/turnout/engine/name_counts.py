"""Number of sampled records that have what a route names: fields, headers, topics, metadata, keys of deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from turnout.base.terminal import did_you_mean
from turnout.engine.trace import Watch, chosen_by
from turnout.expressions import Expression
from turnout.records import Batch, Block
from turnout.records.field_paths import EACH, PREFIX, ListedPath
from turnout.records.schema import Struct
from turnout.records.types import DynamicValue
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.transforms.base import Errors, Mask, Predicate, Side
from turnout.transforms.chain import Guard, StageRunner
from turnout.transforms.predicates import SubjectMatches, TopicNameMatches

_MAX_ALTERNATIVES: Final = 200
"""Names of a sample that are kept for suggestions, for each name that is looked up."""

_MAX_EXPRESSIONS: Final = 1_000
"""Different projections and order keys of subscriptions that are looked up."""


@dataclass(frozen=True, slots=True)
class NameCount:
    r"""Number of records that have one thing that a route names.

    Attributes:
        path: path of the option in the route.
        name: the thing: ``value.customer``, ``header Old``, ``topic orders\.eu``.
        found: how many records have it.
        records: how many records reached the point at which it is named.
        is_mask: whether it is a field to mask.
        hint: a likely correction, as the end of a sentence; "" for none.
    """

    path: str
    name: str
    found: int
    records: int
    is_mask: bool = False
    hint: str = ""

    @property
    def is_absent(self) -> bool:
        """True if records reached the point and none of them has it."""
        return not self.found and self.records > 0

    @property
    def masks_nothing(self) -> bool:
        """True if a mask was applied to records without changing any of them."""
        return self.is_mask and self.is_absent

    @property
    def detail(self) -> str:
        """The numbers as text."""
        nothing = ": nothing is masked" if self.masks_nothing else ""
        return f"in {self.found:,} of {self.records:,} records{nothing}{self.hint}"

    def __str__(self) -> str:
        return f"{self.path}: {self.name} {self.detail}"


_Alternatives: TypeAlias = dict[str, dict[str, None]]
"""The step at which a path does not continue → the names there."""


def _add_names(alternatives: _Alternatives, word: str, names: Iterable[str]) -> None:
    known = alternatives.setdefault(word, {})
    known.update(dict.fromkeys(islice(names, _MAX_ALTERNATIVES - len(known))))


@dataclass(slots=True)
class _Tally:
    """Counts of one name over all batches."""

    path: str
    name: str
    is_mask: bool = False
    found: int = 0
    records: int = 0
    alternatives: _Alternatives = field(default_factory=dict)
    nested: bool = False

    def add(self, found: int, records: int, word: str = "", names: Iterable[str] = ()) -> None:
        self.found += found
        self.records += records
        _add_names(self.alternatives, word, () if self.found else names)

    def result(self) -> NameCount:
        hint = ""
        if not self.found and self.nested:
            hint = "; a record has it as a path: set field.syntax.version to V2"
        elif not self.found:
            guesses = (did_you_mean(word, names) for word, names in self.alternatives.items())
            hint = next(filter(None, guesses), "")
        return NameCount(self.path, self.name, self.found, self.records, self.is_mask, hint)


class NameWatch(Watch):
    """Counts, for each name in a route, the records that have it.

    Args:
        route: the route.
        subscriptions: subscriptions whose projections and order keys are looked up as well.
    """

    def __init__(self, route: Route, subscriptions: Iterable[Subscription] = ()) -> None:
        self._route = route
        self._tallies: dict[tuple[str, str], _Tally] = {}
        self._metadata = dict(_metadata_paths(route))
        self._deliveries = dict(_delivery_paths(route, subscriptions))

    def counts(self) -> list[NameCount]:
        """Return the counts, in the order of a record's path through the route."""
        return [tally.result() for tally in self._tallies.values()]

    def before(self, stage: StageRunner, records: Batch) -> None:
        """Count the names of a stage's predicates, and those of its transform where it applies."""
        alive = np.zeros(len(records), np.bool_)
        alive[records.alive] = True
        holds = np.ones(len(records), np.bool_)
        for guard in stage.stage.guards:
            errors: Errors = {}
            answer = np.array(guard.predicate.test(records, errors), np.bool_)
            answer[list(errors)] = guard.negate
            self._predicate(guard, records, alive, answer)
            holds &= ~answer if guard.negate else answer
        if stage.stage.guards and stage.stage.negate:
            holds = ~holds
        own, transform = stage.stage, stage.stage.transform
        masked = set(transform.masks())
        for named in transform.named_fields():
            path = (transform.root if transform.sided else named.side.lower(), *named.path)
            self._field(own.path + named.option, named.side, named.path, records, alive & holds, masked=path in masked)
        for option, name in transform.named_headers():
            self._header(own.path + option, name, records, alive & holds)

    def transformed(self, records: Batch) -> None:
        """Count the topics of each mapping."""
        table = self._route.mappings
        topics = [records.topics[row] or "" for row in records.alive.tolist()]
        sources = [chosen_by(table, self._route.cluster, topic, 0.0) for topic in topics] if len(table) else []
        for mapping in table.mappings:
            found = sum(chosen is not None and chosen.mapping.source == mapping.source for chosen in sources)
            tally = self._tally(f'mappings "{mapping.source}"', f"topic {mapping.source}")
            tally.add(found, len(topics), mapping.source, topics)

    def mapped(self, records: Batch) -> None:
        """Count the fields that metadata, projections and order keys name."""
        alive = np.zeros(len(records), np.bool_)
        alive[records.alive] = True
        for name, (side, steps) in self._metadata.items():
            self._field(f"subscriptions.metadata.{name}", side, steps, records, alive)
        for path, where in self._deliveries.items():
            root, *names = path
            if root == "headers":
                self._header(where, names[0], records, alive)
            else:
                self._field(where, Side(root.capitalize()), tuple(names), records, alive)

    def _tally(self, path: str, name: str, *, is_mask: bool = False) -> _Tally:
        return self._tallies.setdefault((path, name), _Tally(path, name, is_mask))

    def _predicate(self, guard: Guard, records: Batch, alive: Mask, answer: Mask) -> None:
        named = _topic_of(guard.predicate)
        if named is not None:
            option, text = named
            topics = [records.topics[row] or "" for row in np.flatnonzero(alive).tolist()]
            tally = self._tally(guard.path + option, f"topic {text}")
            tally.add(int((alive & answer).sum()), len(topics), text, topics)
        for field_ in guard.predicate.named_fields():
            self._field(guard.path + field_.option, field_.side, field_.path, records, alive)
        for option, name in guard.predicate.named_headers():
            self._header(guard.path + option, name, records, alive)

    def _header(self, path: str, name: str, records: Batch, chosen: Mask) -> None:
        found = int((np.asarray(records.headers.has(name)) & chosen).sum())
        self._tally(path, f"header {name}").add(found, int(chosen.sum()), name, records.headers.names())

    def _field(
        self,
        path: str,
        side: Side,
        steps: tuple[str, ...],
        records: Batch,
        chosen: Mask,
        *,
        masked: bool = False,
    ) -> None:
        shown = ".".join([side.lower(), *(f"`{step}`" if "." in step else step for step in steps)]).replace(".[]", "[]")
        tally = self._tally(path, shown, is_mask=masked)
        found = present = 0
        for block in records.key if side is Side.KEY else records.value:
            # A tombstone has no fields, and says nothing of their names.
            if block.kind == "null":
                continue
            for row, value in zip(block.rows.tolist(), block.whole(), strict=True):
                if not chosen[row]:
                    continue
                present += 1
                if _occurs(value, steps, block, tally.alternatives):
                    found += 1
                elif len(steps) == 1 and "." in steps[0]:
                    tally.nested = tally.nested or _occurs(value, tuple(steps[0].split(".")), block, {})
        tally.add(found, present)


def _occurs(value: DynamicValue, steps: Sequence[str], block: Block, alternatives: _Alternatives) -> bool:
    """Return True if a value has something at a path; add the names where the path does not continue.

    A struct has all fields of its schema: there only a value that is not null counts.
    """
    for index, step in enumerate(steps):
        if step is EACH:
            items = value if isinstance(value, list | tuple) else [value]
            return any(_occurs(item, steps[index + 1 :], block, alternatives) for item in items)
        fields = value.fields if isinstance(value, Struct) else value
        if not isinstance(fields, Mapping):
            return False
        if step not in fields:
            _add_names(alternatives, step, (name for name in fields if isinstance(name, str)))
            return False
        value = fields[step]
    return block.schema is None or value is not None


def _topic_of(predicate: Predicate) -> tuple[str, str] | None:
    """Return the option and the pattern of a predicate of topics; None for others."""
    match predicate:
        case TopicNameMatches():
            return "pattern", predicate.pattern
        case SubjectMatches():
            return "subject", predicate.subject
    return None


def _metadata_paths(route: Route) -> Iterator[tuple[str, tuple[Side, tuple[str, ...]]]]:
    for name, path in (route.subscriptions.metadata if route.subscriptions else {}).items():
        root, steps, _ = ListedPath.of(path.removesuffix(PREFIX))
        if root in ("key", "value") and steps:
            yield name, (Side(root.capitalize()), steps)


def _delivery_paths(route: Route, subscriptions: Iterable[Subscription]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the paths that order keys and projections name, each with where it is named first."""
    order_keys: dict[str, str] = {}
    projections: dict[str, str] = {}
    for name, endpoint in (route.webhooks.endpoints if route.webhooks else {}).items():
        if endpoint.settings.order_by is not None:
            order_keys.setdefault(endpoint.settings.order_by, f"webhooks.endpoints.{name}.delivery.orderBy")
    for subscription in subscriptions:
        if len(order_keys) + len(projections) >= _MAX_EXPRESSIONS:
            break
        if subscription.delivery is not None and subscription.delivery.order_by is not None:
            order_keys.setdefault(subscription.delivery.order_by, f"orderBy of subscription {subscription.id}")
        if subscription.project:
            projections.setdefault(subscription.project, f"projection of subscription {subscription.id}")
    found: dict[tuple[str, ...], str] = {}
    for key, where in order_keys.items():
        root, _, rest = key.partition(".")
        found.setdefault(("headers", rest) if root == "header" else (root, *rest.split(".")), where)
    for text, where in projections.items():
        for path in sorted(Expression(text).references.paths):
            if path[0] in ("headers", "key", "value") and len(path) > 1:
                found.setdefault(path, where)
    yield from found.items()
