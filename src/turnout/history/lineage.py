"""From a delivered message back: the record that it was made from, the subscription as it was, the route as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, decimal
from turnout.conditions import format_condition
from turnout.engine import Program
from turnout.engine.messages import REVISION, ROUTE, SOURCE, TABLES
from turnout.errors import ConfigError, Mistake, RouteError, StreamError, TurnoutError
from turnout.nats.protocol.positions import Origin
from turnout.records.batch import STREAM_ID
from turnout.records.text import readable
from turnout.records.types import ArrowBatch
from turnout.routes import Route, digest_of
from turnout.routes.endpoints import KafkaSink, NatsSink, Sink, Source
from turnout.routes.yaml_text import decoded
from turnout.runtime.endpoints import adapter_of
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import Index
from turnout.subscriptions.lines import import_lines
from turnout.subscriptions.store import snapshot_of
from turnout.subscriptions.store_url import resolved


@dataclass(frozen=True, slots=True)
class Version:
    """Named version of a route.

    Attributes:
        name: name of the version.
        route: the route.
    """

    name: str
    route: Route

    def with_subscriptions(self, store: str) -> Version:
        """Return the version with the subscriptions of another store.

        Raises:
            ConfigError: the route has no subscriptions.
        """
        part = self.route.subscriptions
        if part is None:
            raise ConfigError([Mistake(self.name, "the route has no subscriptions, so there are none to exchange")])
        return replace(self, route=replace(self.route, subscriptions=part.model_copy(update={"store": store})))


def load_versions(written: Sequence[str], revisions: str | None, resources: ExitStack) -> tuple[Version, Version]:
    """Return the old version and the new one, as the command line names them.

    Args:
        written: one or two versions, see `load_version`; one is both.
        revisions: ``REV1..REV2``, two revisions of the one file that is *written*; an empty one is HEAD.
        resources: removes the files extracted from git at its end.

    Raises:
        ConfigError: a revision, or a file in it, does not exist; or there are too many versions.
        RouteError: a version is no route.
        FileNotFoundError: a file does not exist.
    """
    if revisions is not None:
        before, dots, after = revisions.partition("..")
        if not dots or len(written) != 1:
            raise ConfigError([Mistake("--git", f"expected REV1..REV2 and one file, found {revisions!r}")])
        file = Path(written[0])
        old, new = (_of_revision(revision or "HEAD", file.name, file.parent, resources) for revision in (before, after))
        return old, new
    if not 1 <= len(written) <= 2:
        raise ConfigError([Mistake("versions", f"expected an old and a new one, found {len(written)}")])
    versions = [load_version(reference, resources) for reference in written]
    return versions[0], versions[-1]


def load_version(written: str, resources: ExitStack) -> Version:
    """A version by its name: a file, or ``REV:path`` as git writes it, from the top of the repository or with ``./``.

    Raises:
        ConfigError: the revision, or the file in it, does not exist.
        RouteError: the version is no route.
        FileNotFoundError: the file does not exist.
    """
    revision, colon, path = written.partition(":")
    if not colon or Path(written).exists():
        return _settled(written, Route.load(written))
    is_relative = path.startswith(("./", "../"))
    return _of_revision(revision, path, Path() if is_relative else _top(Path()), resources)


def snapshot_store(address: str, resources: ExitStack) -> str:
    """Return the URL of a store with the given subscriptions.

    Args:
        address: the URL of a store, or a file of lines as ``turnout subscriptions export`` writes them.
        resources: removes the files made from the lines at its end.

    Raises:
        SubscriptionInvalidError: a line cannot be read.
        FileNotFoundError: the file does not exist.
    """
    if "://" in address:
        return resolved(address)
    folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="turnout-subscriptions-")))
    url = f"sqlite:///{quote(str(folder / 'subscriptions.db'))}"
    # The file is temporary, like its folder: it need not survive a power loss.
    with closing(open_store(f"{url}?synchronous=off")) as store, Path(address).open("rb") as lines:
        import_lines(store, lines)
    return url


def _settled(name: str, route: Route) -> Version:
    """Return a version whose store path is resolved, so that equal files have equal names."""
    version = Version(name, route)
    return version if route.subscriptions is None else version.with_subscriptions(resolved(route.subscriptions.store))


def _of_revision(revision: str, path: str, folder: Path, resources: ExitStack) -> Version:
    """Return a route file as it was, among the files of its revision.

    Files that are not in the revision, as a store of subscriptions or a certificate, are the current ones.
    """
    top = _top(folder)
    whole = folder.resolve() / path
    relative = Path(os.path.relpath(whole, top))
    if relative.parts[:1] == ("..",):
        raise ConfigError([Mistake(f"{revision}:{path}", f"is outside of the repository {top}")])
    name = f"{revision}:{relative.as_posix()}"
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not commit:
        raise ConfigError([Mistake(name, f"git knows no revision {revision!r}")])
    tree = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="turnout-version-")))
    _check_out(top, commit, tree)
    file = tree / relative
    if not file.is_file():
        raise ConfigError([Mistake(name, "the revision has no such file")])
    _link_missing(top / relative.parent, file.parent)
    try:
        return _settled(name, Route.load(file))
    except RouteError as wrong:
        raise RouteError(wrong.mistakes, what=f"{name} cannot be used") from wrong


def _top(folder: Path) -> Path:
    """Return the top folder of the repository that contains a folder."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise ConfigError([Mistake(str(folder), "is in no repository of git")])
    return Path(top).resolve()


def _check_out(top: Path, commit: str, tree: Path) -> None:
    """Write the files of a commit into a folder; the repository, its index included, is unchanged."""
    index = {"GIT_INDEX_FILE": str(tree / ".index")}
    for arguments in (("read-tree", commit), ("checkout-index", "--all", f"--prefix={tree}/")):
        if _git(top, *arguments, **index) is None:
            raise ConfigError([Mistake("git", f"cannot check {commit} out of {top}")])


def _link_missing(now: Path, former: Path) -> None:
    if not now.is_dir():
        return
    for entry in now.iterdir():
        if entry.name != ".git" and not os.path.lexists(former / entry.name):
            (former / entry.name).symlink_to(entry)


def _git(folder: Path, *arguments: str, **environment: str) -> str | None:
    """Run git and return its output; None if it fails."""
    git = shutil.which("git")
    if git is None:
        raise ConfigError([Mistake("git", "is not installed, or not on PATH")])
    done = subprocess.run(
        [git, *arguments], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


_SECONDS = 30
"""Seconds that one call of git may take."""


def versions_of(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the commits that changed a file, the latest first, and what each has in it.

    Raises:
        ConfigError: there is no git, or the file is in no repository.
    """
    git = shutil.which("git")
    if git is None:
        raise ConfigError([Mistake("git", "there is no program git")])
    name = f"./{file.name}"
    log = _git_output(git, file.parent, "log", "--format=%H", "--", name)
    if log is None:
        raise ConfigError([Mistake("git", f"{str(file)!r} is in no git repository")])
    for commit in log.decode().split():
        content = _git_output(git, file.parent, "show", f"{commit}:{name}")
        if content is not None:
            yield commit, content


def _git_output(git: str, folder: Path, *arguments: str) -> bytes | None:
    process = subprocess.run([git, *arguments], cwd=folder, capture_output=True, timeout=_SECONDS, check=False)
    return process.stdout if process.returncode == 0 else None


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
        tables: name of a table that expressions looked up → its revision.
    """

    route: str
    digest: str
    revision: int | None
    source: str
    tables: Mapping[str, str] = field(default_factory=dict)

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
        tables = dict(one.split("=", 1) for one in headers.get(TABLES, "").split(",") if "=" in one)
        return cls(name, digest, decimal(revision, LARGEST_SEQUENCE), headers[SOURCE], tables)


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


_KAFKA: Final = "kafka://"


def walk(message: str, route: Route | None = None, *, server: str | None = None, git: bool = False) -> Lineage:
    """Go back from a delivered message: to its record, the subscription as it was, and the route as it was.

    What cannot be found out is a gap of the lineage, and no error.

    Args:
        message: ``STREAM:SEQUENCE``, or ``TOPIC:PARTITION:OFFSET``.
        route: that delivered it, as it is now.
        server: server of the message; if not given, the servers of the route's sinks. One of Kafka begins with
            ``kafka://``.
        git: look for the commit that had the route's file as it was.

    Raises:
        ConfigError: neither route nor server is given, or the route has no sink of NATS or Kafka; the text is no
            position, or the message says nothing of how it was made; git is requested and does not know the file.
        StreamError: the message is not there.
        ConnectionLostError: a server cannot be reached.
    """
    sinks = _sinks(route, server)
    delivered = _delivered(sinks, message)
    walked = Lineage(delivered, ParsedLineage.of(delivered))
    former = route
    if route is not None:
        former, description = _route_then(route, walked.made, git)
        walked = replace(walked, route=description)
        if former is None:
            walked = walked.but("the route's file has changed since: its messages of then are unknown")
    try:
        record, batch = _record(walked.made, route, server)
    except TurnoutError as failure:
        return walked.but(f"the record {walked.made.source}: {failure}")
    walked = replace(walked, record=record)
    return walked if former is None else _with_subscription(walked, former, batch)


def _route_then(present: Route, origin: ParsedLineage, git: bool) -> tuple[Route | None, FormerRoute]:
    """Return the former route, if known, with its description."""
    same = present.digest == origin.digest
    former = present if same else None
    name = None if present.file is None else str(present.file)
    if not git:
        return former, FormerRoute(name, same)
    if present.file is None:
        raise ConfigError([Mistake("git", "the route was not read from a file")])
    for commit, content in versions_of(present.file.absolute()):
        text = decoded(content, what=f"{name} of the commit {commit}")
        if digest_of(text) == origin.digest:
            return Route.parse(text, file=present.file), FormerRoute(name, same, commit)
    return former, FormerRoute(name, same)


def _sinks(route: Route | None, server: str | None) -> list[Sink]:
    """Return sinks of the servers that may have the message."""
    if server is not None:
        return [_sink_at(server)]
    if route is None:
        raise ConfigError([Mistake("lineage", "give a route, a server or both: where to look for the message")])
    sinks = [sink for sink in route.sinks.values() if sink.position_form is not None]
    if not sinks:
        raise ConfigError([Mistake("route", f"{route.name} has no sink of the format nats or kafka: give the server")])
    return sinks


def _sink_at(server: str) -> Sink:
    if server.startswith(_KAFKA):
        return KafkaSink.model_validate({"format": "kafka", "servers": server.removeprefix(_KAFKA)})
    return NatsSink.model_validate({"format": "nats", "servers": server})


def _delivered(sinks: Sequence[Sink], message: str) -> SourceRecord:
    """Return the message from the first of some sinks that has it.

    Raises:
        ConfigError: the text is no position in any of them.
    """
    candidates = [(sink, position) for sink in sinks if (position := sink.parse_position(message)) is not None]
    if not candidates:
        forms = " or ".join(dict.fromkeys(str(sink.position_form) for sink in sinks))
        raise ConfigError([Mistake("message", f"expected {forms}, found {message!r}")])
    for number, (sink, position) in enumerate(candidates, start=1):
        try:
            return SourceRecord.of(position[0], adapter_of(sink).record_at(*position))
        except StreamError:
            if number == len(candidates):
                raise
    raise AssertionError("there is a server")


def _record(origin: ParsedLineage, route: Route | None, server: str | None) -> tuple[SourceRecord, ArrowBatch]:
    """Return the source record that the message's lineage headers name.

    Raises:
        TurnoutError: it is not in a stream or topic, was deleted, or cannot be read.
    """
    if route is not None and route.source.keeps_history:
        source: Source | Sink = route.source
        try:
            position = route.source.message(origin.source)
        except ValueError:
            # The header may be of another publisher, and name any stream that the route's user may read.
            problem = "the route does not read this stream or topic"
            raise ConfigError([Mistake("source", problem)], what="is not read") from None
    else:
        sink = _sink_at(server or "")
        source, found = sink, sink.parse_position(origin.source)
        if found is None:
            raise ConfigError([Mistake("source", "it is not from a stream or topic there")], what="cannot be read")
        position = found
    batch = adapter_of(source).record_at(*position)
    if STREAM_ID in batch.schema.names and not Origin.of(*position).token:
        # The message is of a checkpoint whose message ids have no identity.
        batch = batch.drop_columns([STREAM_ID])
    return SourceRecord.of(position[0], batch), batch


def _with_subscription(walked: Lineage, route: Route, batch: ArrowBatch) -> Lineage:
    """Return the lineage with the subscription that the message was made for."""
    stored: tuple[Subscription, ...] = ()
    if walked.made.revision is not None:
        try:
            stored = _subscriptions(route, walked.made.revision)
        except TurnoutError as failure:
            return walked.but(f"the subscriptions at revision {walked.made.revision}: {failure}")
    try:
        program = Program.of(route.with_tables(walked.made.tables))
    except StreamError as failure:
        return walked.but(f"the tables of its expressions: {failure}")
    makes, subscription = cause_of(program, batch, stored, walked.message)
    if not makes:
        return walked.but("the route no longer makes this message from the record")
    if subscription is None:
        return walked
    now = {subscription.id: subscription for subscription in _subscriptions(route)}
    return replace(walked, subscription=MatchedSubscription.of(subscription, now.get(subscription.id)))


def _subscriptions(route: Route, revision: int | None = None) -> tuple[Subscription, ...]:
    """Return the subscriptions of the route's store, now or at a revision."""
    return () if route.subscriptions is None else snapshot_of(route.subscriptions.store, revision).subscriptions
