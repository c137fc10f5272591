"""From a delivered message back: the record that it was made from, the subscription as it was, the route as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self

from turnout.conditions import format_condition
from turnout.engine import Program
from turnout.engine.lineage import REVISION, ROUTE, SOURCE
from turnout.errors import ConfigError, Mistake
from turnout.records.text import readable
from turnout.records.types import ArrowBatch
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.untrusted import LARGEST_SEQUENCE, JsonObject, decimal

_ID = "Nats-Msg-Id"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Stored message of a stream or topic.

    Attributes:
        place: ``stream:sequence``, or ``topic:partition:offset``.
        value: as text; other bytes are replaced by a mark.
    """

    place: str
    topic: str
    timestamp: str
    headers: tuple[tuple[str, str | None], ...]
    value: str | None

    @classmethod
    def of(cls, stream: str, batch: ArrowBatch) -> Self:
        """Return the only record of a batch."""
        (row,) = batch.to_pylist()
        headers = tuple((header["key"], readable(header["value"])) for header in row["headers"] or ())
        # A record of Kafka may have no time, or none that a date can be.
        written = "" if row["timestamp"] is None else row["timestamp"].isoformat()
        return cls(f"{stream}:{row['offset']}", row["topic"], written, headers, readable(row["value"]))


@dataclass(frozen=True, slots=True)
class ParsedLineage:
    """Parsed lineage headers of a delivered message.

    Attributes:
        route: the route's name.
        digest: digest of the route's file.
        revision: revision of the subscriptions; None for a route without any.
        source: the place of the record.
    """

    route: str
    digest: str
    revision: int | None
    source: str

    @classmethod
    def of(cls, message: SourceRecord) -> Self:
        """Read them.

        Raises:
            ConfigError: the message has none.
        """
        headers = {name: value or "" for name, value in message.headers}
        if ROUTE not in headers or SOURCE not in headers:
            problem = f"has no header {ROUTE} and {SOURCE}: it was not delivered by a sink with lineage: true"
            raise ConfigError([Mistake(message.place, problem)], what="no lineage")
        name, _, digest = headers[ROUTE].rpartition("@")
        revision = headers.get(REVISION, "")
        return cls(name, digest, decimal(revision, LARGEST_SEQUENCE), headers[SOURCE])


@dataclass(frozen=True, slots=True)
class MatchedSubscription:
    """The subscription that a message was made for, as it was.

    Attributes:
        still: whether it is there now, the same as it was.
    """

    id: str
    condition: str
    destinations: tuple[str, ...]
    metadata: Mapping[str, str]
    still: bool

    @classmethod
    def of(cls, subscription: Subscription, now: Subscription | None) -> Self:
        """Return the report on a subscription.

        Args:
            subscription: as it was.
            now: the one of the same id; None if there is none.
        """
        return cls(
            subscription.id,
            format_condition(subscription.condition),
            tuple(subscription.destinations),
            dict(subscription.metadata),
            still=now == subscription,
        )


@dataclass(frozen=True, slots=True)
class FormerRoute:
    """The route as it was.

    Attributes:
        file: its current path; None without a file.
        same: whether the file is unchanged; None without a file.
        commit: commit with the former file, if git is requested and knows one.
    """

    file: str | None = None
    same: bool | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """Lineage of a message, back to its record.

    Attributes:
        message: as it was delivered.
        made: origin in its headers.
        route: the route as it was.
        record: its source record; None if it was deleted or cannot be read.
        subscription: the subscription that caused it; None if there is none, or it is unknown.
        gaps: missing parts, with the reasons.
    """

    message: SourceRecord
    made: ParsedLineage
    route: FormerRoute = FormerRoute()
    record: SourceRecord | None = None
    subscription: MatchedSubscription | None = None
    gaps: tuple[str, ...] = ()

    def but(self, gap: str) -> Self:
        """Return the lineage with one more gap."""
        return replace(self, gaps=(*self.gaps, gap))

    def as_dict(self) -> JsonObject:
        """Return the lineage as plain values, for JSON."""
        return asdict(self)


def cause_of(
    program: Program, record: ArrowBatch, subscriptions: Sequence[Subscription], message: SourceRecord
) -> tuple[bool, Subscription | None]:
    """Check if the route makes the message of the record, and for which subscription.

    The message is known by its id, which is made of route, subscription and destination; one without, as in Kafka, by
    its topic: of several subscriptions with that destination it is the first.

    Args:
        program: program of the route as it was.
        record: a record batch of one record.
        subscriptions: as they were.
        message: that was delivered.
    """
    trace = program.trace(record, Index.of(subscriptions) if program.route.subscriptions is not None else None)
    id_ = dict(message.headers).get(_ID)
    columns = (trace.messages.ids, trace.messages.topics, trace.subscriptions)
    for own_id, topic, subscription in zip(*(column.to_pylist() for column in columns), strict=True):
        if own_id == id_ if id_ is not None else topic == message.topic:
            return True, next((candidate for candidate in subscriptions if candidate.id == subscription), None)
    return False, None
