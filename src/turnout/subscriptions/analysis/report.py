"""Report on subscriptions without a message: duplicates, subsumed ones, contradictions, costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa

from turnout.base.startup import paused_gc
from turnout.conditions import evaluate, format_condition
from turnout.conditions.terms import Term
from turnout.subscriptions.analysis.candidates import Candidates, Verdict, clash, subsumed
from turnout.subscriptions.analysis.cost import Access, AnchorTraffic, access_of
from turnout.subscriptions.analysis.diagram import CanonicalForm, form_of, messages_of
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import Creation
from turnout.subscriptions.tenants import tenant_of


@dataclass(frozen=True, slots=True)
class Equal:
    """Subscriptions of one tenant that match the same messages.

    Attributes:
        ids: sorted.
        condition: condition of the first, as text.
        duplicates: whether they have the same destinations too, so that all but one do nothing new.
    """

    ids: tuple[str, ...]
    condition: str
    duplicates: bool


@dataclass(frozen=True, slots=True)
class Subsumed:
    """Subscription whose messages are all matched by another subscription, too.

    Attributes:
        covered: whether all its destinations are the other's too, so that it does nothing new.
    """

    id: str
    condition: str
    by: str
    by_condition: str
    covered: bool


@dataclass(frozen=True, slots=True)
class Impossible:
    """Subscriptions that no message can match.

    Attributes:
        clash: the leaves that exclude each other, as text.
    """

    ids: tuple[str, ...]
    clash: str


@dataclass(frozen=True, slots=True)
class Loss:
    """Deliveries that would be missing without a subscription.

    Attributes:
        destination: destination that would lose it.
        only: deliveries to it that no other subscription causes.
        deliveries: all that the subscription causes there.
    """

    id: str
    destination: str
    only: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Matches of subscriptions in a range of records.

    Attributes:
        records: how many were matched.
        matches: pairs of a record and a subscription.
        never: the subscriptions that nothing matched.
        losses: by subscription and destination, those with the most first.
    """

    records: int
    matches: int
    never: tuple[str, ...]
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class UnreadDestination:
    """A destination that no stream takes."""

    destination: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """The whole of it.

    Attributes:
        forms: how many different normal forms there are.
        equal: groups of equivalent subscriptions, the largest first.
        subsumed: by another of the same tenant; proven.
        undecided: pairs (id, by) without a proof.
        impossible: subscriptions that no message can match; proven.
        always_true: subscriptions that every message matches; proven.
        too_large: conditions that were compared by their words alone.
        compared: number of pairs of normal forms that were checked for subsumption.
        crowded: anchors with too many subscriptions to compare these with others: anchor → how many.
        cut: subscriptions with more candidates than they were compared with.
        traffic: None without a range of records.
        unread: None without a server.
    """

    subscriptions: int
    revision: int
    forms: int
    equal: tuple[Equal, ...]
    subsumed: tuple[Subsumed, ...]
    undecided: tuple[tuple[str, str], ...]
    impossible: tuple[Impossible, ...]
    always_true: tuple[str, ...]
    too_large: tuple[str, ...]
    compared: int
    crowded: dict[str, int]
    cut: int
    access: Access
    traffic: Traffic | None = None
    unread: tuple[UnreadDestination, ...] | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the same as plain values, for JSON."""
        return asdict(self)


MOST_WIDER = 5
"""At most this many that subsume one subscription are named."""

_MOST_PAIRS = 10_000_000
"""Pairs that are compared for subsumption at most."""

_MOST_PROOFS = 300_000
"""Maximum number of pairs whose subsumption is computed, which takes a hundred times as long as to see by
a message that it does not."""


@dataclass(frozen=True, slots=True)
class _EquivalentGroup:
    """Subscriptions of one tenant and one normal form."""

    form: CanonicalForm
    members: list[Subscription]

    @property
    def first(self) -> Subscription:
        return self.members[0]


class Catalogue:
    """Subscriptions by their normal forms.

    Args:
        subscriptions: all of a store; none twice.
    """

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        with paused_gc():
            groups = _grouped(subscriptions)
            self._groups = list(groups.values())
            self.count = sum(len(group.members) for group in self._groups)
            self._by_tenant: defaultdict[str, list[_EquivalentGroup]] = defaultdict(list)
            for (tenant, _), group in groups.items():
                self._by_tenant[tenant].append(group)
            self._candidates = {
                tenant: Candidates([entry.first.condition for entry in own], [entry.form for entry in own])
                for tenant, own in self._by_tenant.items()
            }

    def __len__(self) -> int:
        return len(self._groups)

    def terms(self) -> dict[str, Sequence[Term]]:
        """Return the disjoint terms of each subscription's condition, with their access anchors, by id."""
        return {
            member.id: terms
            for tenant, own in self._by_tenant.items()
            for group, terms in zip(own, self._candidates[tenant].terms, strict=True)
            for member in group.members
        }

    def forms(self) -> Iterator[tuple[Subscription, CanonicalForm]]:
        """Yield each subscription with its canonical form."""
        return ((member, group.form) for group in self._groups for member in group.members)

    def equal(self) -> tuple[Equal, ...]:
        """Groups of equivalent subscriptions, the largest first."""
        several = sorted(
            (group for group in self._groups if len(group.members) > 1), key=lambda group: -len(group.members)
        )
        return tuple(equal for group in several for equal in _equal(group))

    def impossible(self) -> tuple[Impossible, ...]:
        """Subscriptions that no message can match."""
        never = (group for group in self._groups if group.form.always is False)
        # Equivalent as they are, each has its own reason.
        return tuple(Impossible((member.id,), clash(member.condition)) for group in never for member in group.members)

    def ids_where(self, *, always: bool | None = None, exact: bool | None = None) -> tuple[str, ...]:
        """Return the sorted ids of subscriptions whose form has these `always` and `exact`; None: any."""
        chosen = (
            group
            for group in self._groups
            if (always is None or group.form.always is always) and (exact is None or group.form.exact is exact)
        )
        return tuple(sorted(member.id for group in chosen for member in group.members))

    @paused_gc()
    def subsumption(self) -> _ComparedPairs:
        """Pairs of forms with a common anchor, one of which subsumes the other."""
        comparison = _ComparedPairs()
        for tenant, own in self._by_tenant.items():
            candidates = self._candidates[tenant]
            for number, group in enumerate(own):
                if group.form.always is None and comparison.compared < _MOST_PAIRS:
                    comparison.compare(group, [own[other] for other in candidates.wider(number)])
                elif group.form.always is None:
                    comparison.cut += len(group.members)
            comparison.cut += candidates.cut
            comparison.crowded |= candidates.crowded
        return comparison


class _ComparedPairs:
    """Compared pairs of groups, and the results."""

    def __init__(self) -> None:
        self.pairs: list[Subsumed] = []
        self.undecided: list[tuple[str, str]] = []
        self.crowded: dict[str, int] = {}
        self.compared = self.cut = self._proofs = 0

    def compare(self, group: _EquivalentGroup, wider: Sequence[_EquivalentGroup]) -> None:
        """Find the conditions that subsume a group, and pair each with each of its members, up to `MOST_WIDER`."""
        proven = 0
        messages = messages_of(group.first.condition, group.form) if wider else ()
        for other in wider:
            if other.form.always is not None or proven == MOST_WIDER:
                continue
            self.compared += 1
            if not all(evaluate(other.first.condition, message) for message in messages):
                continue
            if self._proofs == _MOST_PROOFS:
                self.cut += len(group.members)
                return
            self._proofs += 1
            verdict = subsumed(group.first.condition, group.form, other.first.condition, other.form)
            if verdict is Verdict.YES:
                proven += 1
                self.pairs += (_pair(member, other) for member in group.members)
            elif verdict is Verdict.UNKNOWN:
                self.undecided.append((group.first.id, other.first.id))


def _grouped(subscriptions: Iterable[Subscription]) -> dict[tuple[str, str], _EquivalentGroup]:
    """Return the subscriptions by tenant and digest."""
    groups: dict[tuple[str, str], _EquivalentGroup] = {}
    for subscription in subscriptions:
        form = form_of(subscription.condition)
        group = groups.setdefault((tenant_of(subscription.id), form.digest), _EquivalentGroup(form, []))
        group.members.append(subscription)
    return groups


def _pair(subscription: Subscription, other: _EquivalentGroup) -> Subsumed:
    """A subscription and, of the equivalent ones that subsume it, the one that covers its destinations if any does."""
    own = set(subscription.destinations)
    by = next((wide for wide in other.members if own <= set(wide.destinations)), other.first)
    covered = own <= set(by.destinations)
    return Subsumed(
        subscription.id, format_condition(subscription.condition), by.id, format_condition(by.condition), covered
    )


def _equal(group: _EquivalentGroup) -> Iterator[Equal]:
    """Yield the group if its destinations differ, then each set of its members with equal destinations."""
    by_destinations: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for member in group.members:
        by_destinations[frozenset(member.destinations)].append(member.id)
    text = format_condition(group.first.condition)
    if len(by_destinations) > 1:
        yield Equal(tuple(sorted(member.id for member in group.members)), text, duplicates=False)
    yield from (Equal(tuple(sorted(ids)), text, duplicates=True) for ids in by_destinations.values() if len(ids) > 1)


def analysis_of(
    catalogue: Catalogue,
    *,
    revision: int = 0,
    hottest: int = 10,
    anchors: AnchorTraffic | None = None,
    traffic: Traffic | None = None,
    unread: Mapping[str, Sequence[str]] | None = None,
) -> Analysis:
    """Return the complete analysis of a catalogue.

    Args:
        catalogue: catalogue of the subscriptions.
        revision: revision of the store, for the report.
        hottest: how many anchors are named.
        anchors: counts over a range of records.
        traffic: likewise.
        unread: destination that no stream takes → the subscriptions that have it.
    """
    comparison = catalogue.subsumption()
    return Analysis(
        subscriptions=catalogue.count,
        revision=revision,
        forms=len(catalogue),
        equal=catalogue.equal(),
        subsumed=tuple(comparison.pairs),
        undecided=tuple(comparison.undecided),
        impossible=catalogue.impossible(),
        always_true=catalogue.ids_where(always=True),
        too_large=catalogue.ids_where(exact=False),
        compared=comparison.compared,
        crowded=comparison.crowded,
        cut=comparison.cut,
        access=access_of(catalogue.terms(), hottest, anchors),
        traffic=traffic,
        unread=None if unread is None else tuple(UnreadDestination(name, tuple(ids)) for name, ids in unread.items()),
    )


TABLE: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tenant", pa.string()),
        pa.field("destinations", pa.list_(pa.string())),
        pa.field("metadata", pa.map_(pa.string(), pa.string())),
        pa.field("condition", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("anchors", pa.list_(pa.string())),
        pa.field("created_revision", pa.int64()),
        pa.field("created_at", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns. ``digest`` is that of the normal form: equal ones match the same messages; ``anchors`` is what a
subscription is looked up by; ``tenant`` and the last two are null where there is none, or where it is not known."""


def table_of(subscriptions: Iterable[Subscription], births: Mapping[str, Creation]) -> object:
    """Return the `pyarrow.Table` of some subscriptions, in no order.

    Args:
        subscriptions: none twice.
        births: creation time of each, if known.
    """
    catalogue = Catalogue(subscriptions)
    terms = catalogue.terms()
    rows = list(catalogue.forms())
    born = [births.get(subscription.id) for subscription, _ in rows]
    columns = [
        [subscription.id for subscription, _ in rows],
        [tenant_of(subscription.id) or None for subscription, _ in rows],
        [list(subscription.destinations) for subscription, _ in rows],
        [list(subscription.metadata.items()) for subscription, _ in rows],
        [format_condition(subscription.condition) for subscription, _ in rows],
        [form.digest for _, form in rows],
        [list(dict.fromkeys(str(term.access) for term in terms[subscription.id])) for subscription, _ in rows],
        [None if birth is None else birth.revision for birth in born],
        [None if birth is None else birth.at for birth in born],
    ]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, TABLE, strict=True)], schema=TABLE
    )
