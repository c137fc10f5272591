"""Explanation of a subject's mapping: the chosen mapping, its shares, and the reasons against the others."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.subjects.mapping_table import MappingTable, SubjectMapping
from turnout.subjects.pattern import covers_tokens
from turnout.subjects.tokens import FULL, PARTIAL

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
