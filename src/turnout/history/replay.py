"""Replay of a route's history: its range of each stream, its plan, and its state between interruptions.

Records that subscriptions have missed are a replay, too. Subscriptions that miss the same range are served together. A
range whose end is not known yet, since no record has come since, is delivered up to the position that the run of the
route has reached: what follows it is known later.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import yaml
from pydantic import ValidationError

from turnout.base.files import FileLock, private_folder, replace_file
from turnout.base.terminal import plural
from turnout.base.untrusted import JsonObject, decimal
from turnout.base.yaml_values import load
from turnout.conditions import Condition, all_of, format_condition, parse
from turnout.engine.counts import Counts
from turnout.engine.replay import Replay, Where
from turnout.engine.subject_filters import subject_filters
from turnout.errors import ConfigError, Mistake, SubscriptionNotFoundError
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire.streams import StreamPosition, position_of
from turnout.records.types import Fields
from turnout.routes import Route
from turnout.routes.document import from_validation
from turnout.routes.endpoints import AnySink, Part, Sink
from turnout.routes.endpoints.tables import MATCHES
from turnout.routes.files import FileNames
from turnout.routes.written_formats import WrittenFormats, written_format
from turnout.runtime.backfill import BackfillLedger, MissedRange, Positions, matched_before, seam_of
from turnout.runtime.checkpoint import checkpoint_of, local_folder
from turnout.runtime.endpoints import SourceHistory, StreamEnd, adapter_of
from turnout.runtime.matches import MatchFolder
from turnout.runtime.offsets import committed
from turnout.runtime.preflight import preflight
from turnout.subscriptions import Snapshot, Subscription, open_store
from turnout.subscriptions.past import Moment
from turnout.subscriptions.store import snapshot_of
from turnout.subscriptions.store_url import existing


@dataclass(frozen=True, slots=True)
class StreamRange:
    """A part of one stream, or of one partition of Kafka.

    Attributes:
        start: its first sequence.
        end: the sequence behind its last.
        records: how many messages the stream holds there on the subjects that are read; of a work queue or an interest
            stream, on some subjects, how many it holds at most; of Kafka the number of offsets.
        identity: identity of the stream, which others of its name do not have; None if it is unknown, or has none.
    """

    stream: str
    start: int
    end: int
    records: int
    identity: StreamIdentity | None = None


def ranges_of(
    route: Route, start: StreamPosition, end: StreamPosition, filters: Sequence[str] = ()
) -> tuple[StreamRange, ...]:
    """Return the ranges of the route's streams from one position up to, not including, another.

    Raises:
        ConfigError: a position is none, or the source keeps no history.
        StreamError: a stream does not exist.
        ConnectionLostError: the server cannot be reached.
    """
    source = route.source_with_history()
    bounds = position_of("start", start), position_of("end", end)
    with adapter_of(source).history() as history:
        return tuple(_ranges(history, *bounds, filters))


def _ranges(
    history: SourceHistory, start: StreamPosition, end: StreamPosition, filters: Sequence[str]
) -> Iterable[StreamRange]:
    for stream in history.streams:
        bounds = history.bounds(stream)
        first = min(max(bounds.first, history.resolve(stream, start)), bounds.next)
        last = max(first, min(bounds.next, history.resolve(stream, end)))
        identity = StreamIdentity.of(bounds.created) if bounds.created else None
        yield StreamRange(stream, first, last, history.count(stream, first, last, filters), identity)


_FILE = "state.json"


@dataclass(frozen=True, slots=True)
class Splitting:
    """Division of a replay whose splits are transactions, fixed when it is begun.

    Attributes:
        at_once: sequences of a part.
        tasks: splits of a part, at most.
    """

    at_once: int
    tasks: int

    @classmethod
    def of(cls, route: Route, at_once: int) -> Self:
        """Return the splitting for a route's source, or for the processors here."""
        return cls(at_once, getattr(route.source, "partitions", None) or os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class ReplayState:
    """Finished and remaining parts of a replay.

    Attributes:
        asked: the request.
        ranges: ranges to read, as first planned.
        next: stream → next sequence.
        revision: revision of the subscriptions that it delivers to; None for a route without.
        counts: counts of exactly the records below *next*.
        digest: digest of the route's file; "" for a route that was made in Python, which is not known again.
        parts: number of finished parts, continues to count if a finished exact replay is repeated.
        exact: how parts are split, which a repeated part must keep; None for a replay without transactions.
    """

    asked: JsonObject
    ranges: tuple[StreamRange, ...]
    next: dict[str, int]
    revision: int | None = None
    counts: Counts = field(default_factory=Counts)
    digest: str = ""
    parts: int = 0
    exact: Splitting | None = None

    @property
    def done(self) -> bool:
        """True if nothing remains."""
        return all(self.next[range_.stream] >= range_.end for range_ in self.ranges)

    @property
    def begun(self) -> bool:
        """True if some part is finished."""
        return any(self.next[range_.stream] > range_.start for range_ in self.ranges)

    def left(self, at_once: int) -> StreamRange | None:
        """Return the next part, without the number of its records; None at the end.

        Args:
            at_once: sequences of a part, where the replay's splitting is not fixed.
        """
        at_once = at_once if self.exact is None else self.exact.at_once
        for range_ in self.ranges:
            start = self.next[range_.stream]
            if start < range_.end:
                return replace(range_, start=start, end=min(range_.end, start + at_once), records=0)
        return None

    def with_splitting(self, exact: Splitting) -> Self:
        """Return the state with a splitting, unless it has one already."""
        return self if self.exact is not None else replace(self, exact=exact)

    def after(self, stream: str, end: int, counts: Counts) -> ReplayState:
        """Return the state when a part is delivered."""
        return replace(self, next={**self.next, stream: end}, counts=self.counts + counts, parts=self.parts + 1)

    @classmethod
    def of(cls, plan: ReplayPlan) -> Self:
        """Return the state to continue from: the beginning, unless a replay of this id was interrupted.

        A finished replay into transactions continues behind its end: delivered messages stay delivered once.

        Raises:
            ConfigError: an interrupted one of this id had another request, or the route has changed;
                or an exact one of this id is finished that was, or whose topics have fewer records now.
        """
        state = cls._written(plan.folder)
        if state is not None and not state.done:
            return state.checked(plan.folder, plan.asked, plan.route.digest).of_streams(plan)
        revision = None if plan.subscriptions is None else plan.subscriptions.revision
        starts = {range_.stream: range_.start for range_ in plan.ranges}
        new = cls(plan.asked, plan.ranges, starts, revision, digest=plan.route.digest)
        if state is None or state.exact is None or not plan.is_exact:
            return new
        return state.checked(plan.folder, plan.asked).of_streams(plan).extended(plan, new)

    def of_streams(self, plan: ReplayPlan) -> Self:
        """Return the state if its ranges are of the streams of a plan.

        Raises:
            ConfigError: one was made anew since.
        """
        identities = {range_.stream: range_.identity for range_ in plan.ranges}
        for range_ in self.ranges:
            former, present = range_.identity, identities.get(range_.stream)
            if former is not None and present is not None and former.created != present.created:
                problem = (
                    f"the replay {plan.folder.name} has read {range_.stream} up to {self.next[range_.stream]:,}, of the"
                    f" stream that was created at {former.created}; the present one was created at {present.created}"
                )
                raise ConfigError([Mistake("id", f"{problem}: give this one another id")])
        return self

    def extended(self, plan: ReplayPlan, new: Self) -> Self:
        """Return the state of a new request that continues after this finished one.

        Raises:
            ConfigError: a stream ends before that now, so that it is another one.
        """
        starts = {}
        for range_ in plan.ranges:
            reached = self.next.get(range_.stream, range_.start)
            if reached > range_.end:
                problem = f"the replay {plan.folder.name} has read {range_.stream} up to {reached}"
                remedy = f"which ends at {range_.end} now: give this one another id"
                raise ConfigError([Mistake("id", f"{problem}, {remedy}")])
            starts[range_.stream] = max(reached, range_.start)
        return replace(new, next=starts, counts=self.counts, parts=self.parts, exact=self.exact)

    @classmethod
    def unfinished(cls, folder: Path, request: Fields, digest: str) -> Self | None:
        """Return the state of a replay that was interrupted; None if the folder has none, or one that is done.

        Args:
            folder: folder of the replay.
            request: the current request.
            digest: digest of the route's file as it is now; "" where there is none.

        Raises:
            ConfigError: it was begun with another request, or with another version of the route.
        """
        state = cls._written(folder)
        return None if state is None or state.done else state.checked(folder, request, digest)

    @classmethod
    def _written(cls, folder: Path) -> Self | None:
        """Read the state in a folder; None without one."""
        try:
            written = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        # A replay that an older turnout began has no identities, revision, digest, parts or splitting in its state.
        identities = [range_.pop("identity", None) for range_ in written["ranges"]]
        ranges = tuple(
            StreamRange(**range_, identity=None if identity is None else StreamIdentity(**identity))
            for range_, identity in zip(written["ranges"], identities, strict=True)
        )
        exact = written.get("exact")
        return cls(
            written["asked"],
            ranges,
            written["next"],
            written.get("revision"),
            Counts.of(written["counts"]),
            written.get("digest", ""),
            written.get("parts", 0),
            None if exact is None else Splitting(**exact),
        )

    def checked(self, folder: Path, request: Fields, digest: str = "") -> Self:
        """Return the state if it belongs to this request and to the route with this digest ("" for any).

        Raises:
            ConfigError: it is not.
        """
        status = "finished" if self.done else "not finished"
        if self.asked != request:
            names = sorted(name for name in {*self.asked, *request} if self.asked.get(name) != request.get(name))
            problem = f"the replay {folder.name} is {status} and was requested with another {', '.join(names)}"
            remedy = (
                "give this one another id" if self.done else "finish it as it was begun, or give this one another id"
            )
            raise ConfigError([Mistake("id", f"{problem}: {remedy}")])
        if self.digest and digest and self.digest != digest:
            # The remaining records would be delivered differently, but under the same message ids.
            problem = (
                f"the replay {folder.name} is {status}, and the route {request['route']} has changed since it was"
                f" begun (digest {self.digest[:12]} then, {digest[:12]} now)"
            )
            remedy = "finish it with the route as it was, or give this one another id"
            raise ConfigError([Mistake("id", f"{problem}: {remedy}")])
        return self

    def write(self, folder: Path) -> None:
        """Write the state atomically."""
        text = json.dumps(
            {
                "asked": self.asked,
                "ranges": [asdict(range_) for range_ in self.ranges],
                "next": self.next,
                "revision": self.revision,
                "digest": self.digest,
                "parts": self.parts,
                "exact": None if self.exact is None else asdict(self.exact),
                "counts": self.counts.as_dict(),
            }
        )
        replace_file(folder / _FILE, text)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Have the folder of a replay for this process alone.

    Raises:
        ConfigError: another process carries out this replay.
    """
    # A checkpoint that a run has not made yet is for its owner only as well.
    for directory in (folder.parent.parent, folder.parent, folder):
        private_folder(directory)
    with FileLock(folder / "lock") as lock:
        try:
            lock.acquire()
        except OSError:
            raise ConfigError([Mistake("id", f"another process carries out the replay {folder.name}")]) from None
        yield


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
    id: str | None = None,
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
        sink: sink that replaces the route's sinks, see `turnout.history.replay.with_sink`.
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


class _Document(Part):
    sink: AnySink


def with_sink(route: Route, sink_or_name: str | Sink) -> Route:
    """Return the route with all messages directed to one sink, regardless of the sink a destination names.

    Args:
        route: the route.
        sink_or_name: a sink, the name of one of the route's, or the text of a block as in a route file:
            ``{format: json, path: replayed}``.

    Raises:
        ConfigError: lists every mistake in the block.
    """
    if isinstance(sink_or_name, str) and sink_or_name in route.sinks:
        sink, formats = route.sinks[sink_or_name], route.formats_of(sink_or_name)
    else:
        sink = _parsed(sink_or_name, route) if isinstance(sink_or_name, str) else sink_or_name
        formats = _formats(sink, route)
    names = dict.fromkeys(name for name in route.sinks if name != MATCHES)
    # It is not the sink in which messages of the route wait.
    sinks, written = dict.fromkeys(names, sink), dict.fromkeys(names, formats)
    return replace(route, sinks=sinks, written=written, at_once=True)


def _formats(sink: Sink, route: Route) -> WrittenFormats:
    """Return the formats of a sink that is none of the route's; names of files start at the route's folder."""
    files = FileNames((route.file or Path()).parent)
    read = WrittenFormats(route.key, route.value)
    own = {
        side: written_format(block, getattr(read, side), side, files)[0]
        for side in read._fields
        if (block := getattr(sink, side)) is not None
    }
    return read._replace(**own)


def _parsed(text: str, route: Route) -> Sink:
    try:
        block = load(text)
    except yaml.YAMLError as failure:
        # The whole message quotes the text, which may hold a password.
        raise ConfigError([Mistake("sink", f"is no YAML: {getattr(failure, 'problem', '')}")]) from None
    if not isinstance(block, dict):
        names = ", ".join(name for name in route.sinks if name) or "none with a name"
        expected = f"a sink of the route (there are {names}) or a block like {{format: json, path: FOLDER}}"
        raise ConfigError([Mistake("sink", f"expected {expected}, found {text!r}")])
    document = {"sink": block}
    try:
        return _Document.model_validate(document).sink
    except ValidationError as failure:
        raise ConfigError(list(from_validation(failure, document, {}, _Document)), what="bad sink") from None


BACKFILL: Final = "backfill"
"""Value of the header ``Turnout-Replay`` of a message that is delivered late."""

_PART_SEQUENCES: Final = 200_000
"""Sequences of one part; a stop of the run waits for it."""

_MOST_TOGETHER: Final = 10_000
"""Subscriptions that are served together."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackfillPart:
    """Range to deliver to some subscriptions.

    Attributes:
        rows: ranges of the ledger.
        plan: plan of the replay that delivers it.
        stream: stream of the records.
        end: position behind it.
    """

    rows: Sequence[MissedRange]
    plan: ReplayPlan
    stream: str
    end: int

    def keep_matches(self, checkpoint: Path) -> None:
        """Move the matches of the replay, also of one that a kill has ended, to those of the route's feeds.

        Raises:
            TurnoutError: a file is damaged.
            OSError: a file cannot be written.
        """
        if self.plan.stores_matches:
            MatchFolder.beside(checkpoint).take_backfilled(MatchFolder.beside(self.plan.folder))

    def note(self, ledger: BackfillLedger) -> None:
        """Note that the part is delivered."""
        for row in self.rows:
            ledger.advance(row.number, self.stream, self.end)


def next_part(route: Route, checkpoint: Path, ledger: BackfillLedger) -> BackfillPart | None:
    """Return the part to deliver next; None if nothing is missing before the position of the route's run.

    Raises:
        TurnoutError: a server or the store is away.
    """
    if not ledger.rows:
        return None
    assert route.subscriptions is not None
    resolve_seams(checkpoint, ledger)
    reached = matched_before(checkpoint)
    groups: dict[tuple[str, int, int, StreamIdentity | None], list[MissedRange]] = {}
    identities = committed(checkpoint).identities
    for row in ledger.follow({stream: identity.created for stream, identity in identities.items()}):
        text = "route %s: %s does not get the earlier records that it has missed: their stream was made anew"
        _log.warning(text, route.name, row.id)
    if any(row.next is None or _streams_left(row, reached) for row in ledger.rows if row.live is not None):
        with adapter_of(route.source_with_history("from")).history() as history:
            _resolve_positions(route, history, ledger)
            for row in ledger.rows:
                for stream, until in _streams_left(row, reached):
                    groups.setdefault(_range(row, stream, until, history, identities.get(stream)), []).append(row)
                    break
    for row in ledger.rows:
        if row.next is not None and row.until is not None and not _streams_left(row, reached):
            ledger.remove(row.number)
    for range_, rows in groups.items():
        chosen = _enabled(route.subscriptions.store, rows[:_MOST_TOGETHER], ledger)
        if chosen.subscriptions:
            ids = {one.id for one in chosen.subscriptions}
            part = StreamRange(*range_[:3], 0, range_[3])
            return _part(route, checkpoint, [row for row in rows if row.id in ids], part, chosen)
    return None


def resolve_seams(checkpoint: Path, ledger: BackfillLedger) -> None:
    """Note the bounds of ranges that depend on revisions which are in use by now."""
    for row in ledger.rows:
        if row.paused is not None and row.next is None:
            ledger.set_bounds(row.number, following=seam_of(checkpoint, row.paused, ledger.turns))
        if row.live is not None and row.until is None:
            ledger.set_bounds(row.number, until=seam_of(checkpoint, row.live, ledger.turns))


def _resolve_positions(route: Route, history: SourceHistory, ledger: BackfillLedger) -> None:
    for row in ledger.rows:
        if row.position is None or row.next is not None:
            continue
        number = decimal(row.position)
        position: StreamPosition = position_of("from", row.position) if number is None else number
        try:
            ledger.set_bounds(row.number, {stream: history.resolve(stream, position) for stream in history.streams})
        except ConfigError as problem:
            _log.warning("route %s: %s gets no earlier records: %s", route.name, row.id, problem)
            ledger.remove(row.number)


def _streams_left(row: MissedRange, reached: Positions) -> list[tuple[str, int]]:
    """Return the streams with deliverable records, and the position behind them."""
    if row.live is None or row.next is None:
        return []
    untils = reached if row.until is None else row.until
    return [(stream, until) for stream, until in sorted(untils.items()) if row.next.get(stream, 0) < until]


def _range(
    row: MissedRange, stream: str, until: int, history: SourceHistory, known: StreamIdentity | None
) -> tuple[str, int, int, StreamIdentity | None]:
    """Return the next range of a row, with the run's identity of its stream; deleted positions are skipped."""
    assert row.next is not None
    bounds = history.bounds(stream) if stream in history.streams else StreamEnd(until, until)
    first = min(max(row.next.get(stream, 0), bounds.first), until)
    identity = known or (StreamIdentity.adopted(bounds.created) if bounds.created else None)
    return stream, first, min(until, first + _PART_SEQUENCES), identity


def _enabled(url: str, rows: Sequence[MissedRange], ledger: BackfillLedger) -> Snapshot:
    """Return the subscriptions that can be served; deleted ones are forgotten, and disabled ones wait."""
    found: dict[str, Subscription] = {}
    with closing(open_store(existing(url))) as store:
        for row in rows:
            try:
                found[row.id] = store.read(row.id)
            except SubscriptionNotFoundError:
                ledger.forget(row.id)
        return Snapshot(tuple(one for one in found.values() if one.enabled), store.revision())


def _part(
    route: Route, checkpoint: Path, rows: Sequence[MissedRange], range_: StreamRange, chosen: Snapshot
) -> BackfillPart:
    own = route.source.filters
    filters = subject_filters(route, [one.condition for one in chosen.subscriptions], own)
    quiet = preflight(replace(route, dead_letter=None, unmatched="drop"))
    plan = ReplayPlan(
        quiet,
        Replay(BACKFILL, as_first=True),
        (range_,),
        filters,
        chosen,
        {"where": None},
        checkpoint / "replays" / BACKFILL,
        stores_matches=route.subscriptions is not None and bool(route.subscriptions.feeds),
    )
    return BackfillPart(rows, plan, range_.stream, range_.end)
