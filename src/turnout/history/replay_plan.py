"""Plan of a replay, made before Spark is started: the ranges to read and the deliveries to expect."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from turnout.conditions import Condition, all_of, format_condition, parse
from turnout.engine.replay import Replay, Where
from turnout.engine.subject_filters import subject_filters
from turnout.errors import ConfigError, Mistake
from turnout.history.ranges import StreamRange, ranges_of
from turnout.history.replay_state import ReplayState
from turnout.nats.wire.positions import StreamPosition
from turnout.plural import plural
from turnout.routes import Route
from turnout.routes.endpoints import Sink
from turnout.routes.other_sinks import with_sink
from turnout.runtime.checkpoint import checkpoint_of, local_folder
from turnout.runtime.preflight import preflight
from turnout.subscriptions import Snapshot
from turnout.subscriptions.as_of import snapshot_of
from turnout.subscriptions.past import Moment
from turnout.untrusted import JsonObject

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Plan of one replay, ready to run.

    Attributes:
        route: the route as the replay runs it: failures are counted and not dead-lettered again, and records that no
            chosen subscription matches are dropped.
        replay: its id, and the condition that its records meet.
        ranges: ranges to read, by stream.
        filters: the subjects that are read; all where there are none.
        subscriptions: subscriptions to deliver to, with their store's revision; None for a route
            without.
        asked: the request, which identifies an interrupted replay.
        folder: folder of its progress.
        stores_matches: whether the matches are stored in that folder, for feeds.
        headers: names in its condition that are not listed, and so can only be those of headers.
    """

    route: Route = field(repr=False)
    replay: Replay
    ranges: tuple[StreamRange, ...]
    filters: tuple[str, ...]
    subscriptions: Snapshot | None = field(repr=False)
    asked: JsonObject
    folder: Path
    stores_matches: bool = False
    headers: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Upper bound of the records to read: their number now."""
        return sum(range_.records for range_ in self.ranges)

    @property
    def is_exact(self) -> bool:
        """True if a sink has each split in a transaction."""
        return any(sink.has_transactions for sink in self.route.sinks.values())

    def as_dict(self) -> JsonObject:
        """Return the plan as ``--json`` prints it."""
        return {
            "id": self.replay.id,
            "ranges": [
                {"stream": range_.stream, "start": range_.start, "end": range_.end, "records": range_.records}
                for range_ in self.ranges
            ],
            "records": self.records,
            "subjects": list(self.filters),
            "subscriptions": None if self.subscriptions is None else len(self.subscriptions),
            "revision": None if self.subscriptions is None else self.subscriptions.revision,
            "where": self.asked["where"],
        }

    def lines(self) -> Iterator[str]:
        """Yield the plan as text lines."""
        yield f"replay {self.replay.id} of {self.route.name}"
        for range_ in self.ranges:
            records = plural(range_.records, "record")
            yield f"reads {range_.stream} from {range_.start:,} up to {range_.end:,}: {records}"
        if self.filters:
            yield f"reads only {', '.join(self.filters)}"
        if self.subscriptions is not None:
            shown = ", ".join(subscription.id for subscription in self.subscriptions.subscriptions[:5])
            more = ", …" if len(self.subscriptions) > 5 else ""
            yield f"delivers to {plural(len(self.subscriptions), 'subscription')}: {shown}{more}"
            yield f"as they were at revision {self.subscriptions.revision} of their store"
        if self.asked["where"] is not None:
            yield f"delivers only {self.asked['where']}"
        for name in self.headers:
            yield f"warning: {name!r} is not listed under metadata: only records with a header of that name can match"


def plan_replay(
    route: Route,
    *,
    start: StreamPosition = "earliest",
    end: StreamPosition = "latest",
    subscriptions: Sequence[str] | None = None,
    subscriptions_as_of: Moment | None = None,
    where: str | Condition | None = None,
    sink: str | Sink | None = None,
    id: str | None = None,  # noqa: A002 - its name in every interface
    folder: str | Path | None = None,
) -> ReplayPlan:
    """Plan a replay from the state of the servers and the store.

    Args:
        route: route whose history is replayed, and that processes it.
        start: the first position: a sequence, a time (a `datetime` or ISO text) or ``earliest``.
        end: the position after the last one.
        subscriptions: the ids of those to deliver to; all if not given.
        subscriptions_as_of: deliver to the subscriptions at this revision or time of their store; to the current ones
            if not given. An interrupted replay continues with its first ones.
        where: further condition on the records, over the metadata for subscriptions.
        sink: sink that replaces the route's sinks, see `turnout.routes.other_sinks.with_sink`.
        id: the replay's name; derived from the request if not given, so that a repetition has the same one.
        folder: folder of the progress; ``replays`` in the route's checkpoint if not given.

    Raises:
        ConfigError: the request is invalid; *where* has a name that is not listed, and is none of a header; one of
            this id is not finished, and had another request or begun with another version of the route.
        ConditionError: *where* cannot be read.
        SubscriptionNotFoundError: there is none of an id.
        HistoryForgottenError: the store does not remember so far back.
        StreamError: a stream does not exist.
        ConnectionLostError: a server cannot be reached.
    """
    source = route.source_with_history()
    condition = parse(where) if isinstance(where, str) else where
    paths = route.subscriptions.metadata if route.subscriptions else {}
    headers = () if condition is None else tuple(Where(condition, paths).headers)
    request = {
        "route": route.name,
        "start": str(start),
        "end": str(end),
        "subscriptions": None if subscriptions is None else sorted(set(subscriptions)),
        "where": None if condition is None else format_condition(condition),
        "sink": None if sink is None else _unread(str(sink)),
    }
    if subscriptions_as_of is not None:
        request["subscriptionsAsOf"] = str(subscriptions_as_of)
    name = _name(request, id)
    replay_folder = (Path(folder) if folder is not None else _replays_folder(route)) / name
    begun = ReplayState.unfinished(replay_folder, request, route.digest)
    chosen = _chosen(route, subscriptions, subscriptions_as_of if begun is None else begun.revision)
    conditions = [] if chosen is None else [subscription.condition for subscription in chosen]
    if condition is not None:
        conditions = [condition] if chosen is None else [all_of(condition, own) for own in conditions]
    own = source.filters
    filters = subject_filters(route, conditions, own) if conditions else own
    quiet = replace(route, dead_letter=None, unmatched="drop")
    return ReplayPlan(
        preflight(quiet if sink is None else with_sink(quiet, sink)),
        Replay(name, condition),
        ranges_of(route, start, end, filters),
        filters,
        chosen,
        request,
        replay_folder,
        headers=headers,
    )


def _unread(text: str) -> str:
    """Return a digest of a text that may hold a password, for comparison only."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _name(request: JsonObject, name: str | None) -> str:
    if name is None:
        return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:12]
    if not _ID.fullmatch(name):
        raise ConfigError([Mistake("id", f"expected up to 64 letters, digits, '_' and '-', found {name!r}")])
    return name


def _chosen(route: Route, ids: Sequence[str] | None, moment: Moment | None) -> Snapshot | None:
    if route.subscriptions is None:
        if ids is not None:
            raise ConfigError([Mistake("subscriptions", f"the route {route.name} has none to choose from")])
        return None
    return snapshot_of(route.subscriptions.store, moment, ids)


def _replays_folder(route: Route) -> Path:
    """Return the folder of a route's replays: in its checkpoint, or next to its file for a remote checkpoint."""
    checkpoint = local_folder(str(checkpoint_of(route)))
    return (checkpoint or local_folder(str(checkpoint_of(replace(route, checkpoint=None)))) or Path()) / "replays"
