"""Text output for an analysis of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from turnout.plural import first_names, plural

if TYPE_CHECKING:
    from turnout.subscriptions.analysis import Access, Analysis, Equal, Traffic

_SHOWN_FINDINGS = 20
"""Maximum number of findings shown of one kind, and of ids shown of one finding."""


def analysis_lines(analysis: Analysis) -> Iterator[str]:
    """Yield the whole analysis as text lines."""
    counted = plural(analysis.subscriptions, "subscription")
    yield f"{counted} at revision {analysis.revision}, in {analysis.forms:,} forms"
    yield from _part("equivalent", map(_equal, analysis.equal), len(analysis.equal))
    yield from _part(
        "subsumed",
        (
            f"{pair.id} by {pair.by}{', which has its destinations' if pair.covered else ''}: "
            f"{pair.condition} is within {pair.by_condition}"
            for pair in analysis.subsumed
        ),
        len(analysis.subsumed),
    )
    impossible = analysis.impossible
    yield from _part(
        "never true",
        (f"{first_names(subscription.ids, _SHOWN_FINDINGS)}: {subscription.clash}" for subscription in impossible),
        len(impossible),
    )
    yield from _part("always true", analysis.always_true, len(analysis.always_true))
    yield from _access(analysis.access)
    if analysis.traffic is not None:
        yield from _traffic(analysis.traffic)
    if analysis.unread is not None:
        lines = (
            f"{destination.destination}, of {first_names(destination.ids, _SHOWN_FINDINGS)}"
            for destination in analysis.unread
        )
        yield from _part("no stream takes", lines, len(analysis.unread))
    yield from _bounds(analysis)


def _part(title: str, lines: Iterable[str], count: int) -> Iterator[str]:
    """Yield a title with a count, and the first lines below it; nothing if the count is 0."""
    if not count:
        return
    yield f"{title}  {count:,}"
    yield from (f"    {line}" for line in islice(lines, _SHOWN_FINDINGS))
    if count > _SHOWN_FINDINGS:
        yield f"    … {count - _SHOWN_FINDINGS:,} more; --json has all of them"


def _equal(equal: Equal) -> str:
    kind = "duplicates" if equal.duplicates else "other destinations"
    return f"{first_names(equal.ids, _SHOWN_FINDINGS)} ({kind}): {equal.condition}"


def _access(access: Access) -> Iterator[str]:
    yield f"looked up by {plural(access.anchors, 'anchor')} for {plural(access.terms, 'term')}; the hottest:"
    for anchor in access.hottest:
        traffic = (
            ""
            if anchor.messages is None
            else f"; {anchor.messages:,} records had it, {anchor.in_vain:,} verified without a match"
        )
        yield f"    {anchor.anchor}: {plural(anchor.terms, 'term')}{traffic}"
    yield from _part("verified for every record", access.always, len(access.always))
    yield from _part("verified for every record with a key", access.by_presence, len(access.by_presence))
    yield from _part("expensive: 20 ms and more for one record", access.expensive, len(access.expensive))


def _traffic(traffic: Traffic) -> Iterator[str]:
    yield f"{plural(traffic.records, 'record')} made {traffic.matches:,} matches"
    yield from _part("never matched", traffic.never, len(traffic.never))
    lines = (
        f"{loss.destination} loses {loss.only:,} of {loss.deliveries:,} without {loss.id}" for loss in traffic.losses
    )
    yield from _part("delivered by one alone", lines, len(traffic.losses))


def _bounds(analysis: Analysis) -> Iterator[str]:
    """Yield the parts that were not analysed, and those left undecided."""
    undecided = analysis.undecided
    yield from _part("unknown whether subsumed", (f"{id_} by {by}" for id_, by in undecided), len(undecided))
    if analysis.too_large:
        yield f"{plural(len(analysis.too_large), 'condition')} too large, compared by their words alone"
    for anchor, count in list(analysis.crowded.items())[:_SHOWN_FINDINGS]:
        yield f"not compared for subsumption: {count:,} under {anchor}"
    if analysis.cut:
        yield f"{plural(analysis.cut, 'subscription')} compared with some candidates only"
