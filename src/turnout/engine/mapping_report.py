"""Report on the mapping of a topic and the chosen share, for explanations."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.routes import Route
from turnout.subjects.mapping import MappingTable, Share, SubjectMapping


@dataclass(frozen=True, slots=True)
class ChosenMapping:
    """The mapping that a topic takes.

    Attributes:
        mapping: the first whose source matches.
        group: the cluster whose destinations apply, "" for the default ones.
        share: the one that the draw falls into; None if it falls into the lost share.
    """

    mapping: SubjectMapping
    group: str
    share: Share | None


def chosen_by(table: MappingTable, cluster: str | None, topic: str, draw: float) -> ChosenMapping | None:
    """Return the mapping that *topic* takes with this draw; None where nothing maps it."""
    mapping = table.find(topic)
    if mapping is None:
        return None
    group = cluster if cluster and cluster in mapping.groups else ""
    return ChosenMapping(mapping, group, mapping.choose(cluster, draw))


@dataclass(frozen=True, slots=True)
class Mapped:
    """Result of the mappings for a record's topic.

    Attributes:
        topic: before.
        source: source of the mapping that was taken; None where none matches.
        group: the cluster whose destinations apply, "" for the default ones.
        destination: the one that was chosen; None where the record is lost.
        share: how often it is chosen, in percent; of a lost record, how often that happens.
        draw: the record's number in [0, 1), from its topic, partition and offset.
        drawn: whether the draw made a difference.
        mapped: the topic afterwards; None where the record is lost.
    """

    topic: str
    source: str | None
    group: str
    destination: str | None
    share: int
    draw: float
    drawn: bool
    mapped: str | None


def mapped_by(route: Route, topic: str, draw: float, mapped: str | None) -> Mapped:
    """Return the report of the route's mappings, which turned *topic* into *mapped*."""
    chosen = chosen_by(route.mappings, route.cluster, topic, draw)
    if chosen is None:
        return Mapped(topic, None, "", topic, 100, draw, drawn=False, mapped=mapped)
    shares = chosen.mapping.group(route.cluster)
    share = chosen.share
    weight = 100 - sum(each.weight for each in shares) if share is None else share.weight
    is_random = weight < 100 or any(each.transform.is_random for each in shares)
    destination = None if share is None else share.transform.destination
    return Mapped(topic, chosen.mapping.source, chosen.group, destination, weight, draw, is_random, mapped)
