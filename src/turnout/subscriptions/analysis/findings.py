"""Findings about the subscriptions of a store."""

from __future__ import annotations

from dataclasses import asdict, dataclass


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
class HotAnchor:
    """Anchor with its cost.

    Attributes:
        anchor: as text: key, kind and text.
        terms: how many terms are looked up by it: each message that has the anchor has them verified.
        messages: how many messages of the range had it; None without a range.
        in_vain: number of verifications that were false; None without a range.
    """

    anchor: str
    terms: int
    messages: int | None = None
    in_vain: int | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Lookup statistics of subscriptions.

    Attributes:
        anchors: how many there are.
        terms: under all of them.
        hottest: those with the most terms, or the most verifications without a match.
        always: the subscriptions that every message has to be verified for.
        by_presence: those that every message with some key has to be verified for.
        expensive: those of which one message may need so many together that it takes more than 20 ms, by estimate.
    """

    anchors: int
    terms: int
    hottest: tuple[HotAnchor, ...]
    always: tuple[str, ...]
    by_presence: tuple[str, ...]
    expensive: tuple[str, ...]


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
