"""``turnout check ROUTE…``: all mistakes of routes, with ``--connect`` of their servers too; ``turnout schema``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from turnout.base.clocks import parse_time
from turnout.base.startup import paused_gc
from turnout.base.terminal import did_you_mean, json_text, plural
from turnout.base.untrusted import JsonObject
from turnout.cli.exits import BAD, DONE, DOUBTFUL, FAILED, GOOD, WRONG_REQUEST, echo_lines
from turnout.cli.options import AsJson, RouteFiles, StoreTimeout, loaded_route, route_files
from turnout.errors import RouteError, TurnoutError
from turnout.secrets import masked_url

if TYPE_CHECKING:
    from turnout.engine import Messages
    from turnout.errors import Mistake
    from turnout.records.types import ArrowBatch
    from turnout.routes import Route
    from turnout.routes.endpoints import Sink, Source
    from turnout.runtime.endpoints import EndpointProbe
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.index import Index


_COLOURS = {r"^failed\b": BAD, r"^ok\b": GOOD, r"^warn\b": DOUBTFUL, r"^warning:": DOUBTFUL, r"\bis fine\b": GOOD}


def check(
    routes: RouteFiles,
    connect: Annotated[
        bool, typer.Option("--connect", help="Query servers and store, and try the route on the latest records.")
    ] = False,
    records: Annotated[
        int, typer.Option(min=0, help="With --connect: number of records of each stream to sample.")
    ] = 100,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Read routes and report all their mistakes, without running them."""
    files = route_files(routes)
    reports = [_check(file, records if connect else None, timeout, as_json=as_json) for file in files]
    if as_json:
        # Of one file, that is named: an object, as ever.
        alone = len(routes) == 1 and files == routes
        typer.echo(json_text(reports[0].document if alone else {"routes": [one.document for one in reports]}, indent=1))
    raise typer.Exit(max((report.code for report in reports), key=_SEVERITY.index))


_SEVERITY = (DONE, FAILED, WRONG_REQUEST)
"""Exit codes; that of several routes is the last one here that one of them has."""


class _Report(NamedTuple):
    code: int
    document: JsonObject


def _check(file: Path, records: int | None, timeout: float | None, *, as_json: bool) -> _Report:
    try:
        # The collector would traverse the objects of all modules that this imports several times.
        with paused_gc():
            route = loaded_route(file, timeout)
    except RouteError as wrong:
        if not as_json:
            echo_lines(str(wrong).split("\n"), {r"^.*cannot be used:?": BAD}, err=True)
        mistakes = [_as_json(mistake) for mistake in wrong.mistakes]
        return _Report(WRONG_REQUEST, {"route": str(file), "valid": False, "mistakes": mistakes})
    notes = [*route.notes, *route.errors.notes()]
    warnings = [*route.warnings, *_loops(route)]
    document: JsonObject = {
        "route": str(file),
        "valid": True,
        "name": route.name,
        "mistakes": [],
        "warnings": [_as_json(warning) for warning in warnings],
        "notes": notes,
    }
    if not as_json:
        lines = [*(f"warning: {warning}" for warning in warnings), *(f"note: {note}" for note in notes)]
        echo_lines([f"{file}: route {route.name} is fine: {route.summary()}", *lines], _COLOURS)
    checks = [] if records is None else _probe(route, records, as_json=as_json)
    if records is not None:
        document["checks"] = [check.as_dict() for check in checks]
    return _Report(DONE if all(check.ok for check in checks) else FAILED, document)


def _loops(route: Route) -> Iterator[Mistake]:
    """Yield a warning if all messages of a route without subscriptions go to topics that its source reads.

    Only what is known without a server: what the stream stores is not, unless the source has filters.
    """
    from turnout.errors import Mistake
    from turnout.subjects.pattern import FULL, collide, is_subset

    source, sink = route.source, next(iter(route.sinks.values()))
    if route.subscriptions is not None or not source.shares_servers_with(sink):
        return
    read = source.filters or source.named_topics
    topics: list[str | None] = [*(read or (FULL,))]
    if len(route.mappings) or not all(stage.transform.keeps_topic for stage in route.chain.stages):
        if not read:
            return
        # With it comes much else, which most routes need not wait for.
        from turnout.engine.subject_filters import topics_after

        topics = topics_after(route, read)
    allowed = [pattern for pattern in sink.allow or () if pattern[0] not in "*>"]
    if topics and all(
        topic is not None
        and any(is_subset(topic, own) for own in read or (FULL,))
        and not any(collide(topic, pattern) for pattern in allowed)
        for topic in topics
    ):
        shown = ", ".join(sorted(filter(None, topics))) if read else "their own topics"
        problem = f"all messages go to {shown}, which the source reads: a run delivers none of them"
        yield Mistake("mappings", f"{problem}; map them to a subject that it does not read")


def _as_json(mistake: Mistake) -> dict[str, object]:
    return {"path": mistake.path, "problem": mistake.problem, "line": mistake.line}


def _probe(route: Route, records: int, *, as_json: bool) -> list[Probed]:
    """Return the results of all checks of the servers; each is printed immediately."""
    from turnout.base.startup import block_pandas_import

    block_pandas_import()
    checks = []
    for check in probe(route, records):
        checks.append(check)
        if not as_json:
            echo_lines(str(check).split("\n"), _COLOURS)
    return checks


_SECONDS = 5.0
_CURE = "correct the route, and see a record's way with turnout explain"
_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class Probed:
    """Result of one check.

    Attributes:
        name: name of the check.
        ok: whether the check passed.
        detail: the result, or the failure.
        warning: whether it passed, and probably not as intended.
    """

    name: str
    ok: bool
    detail: str
    warning: bool = False

    def as_dict(self) -> JsonObject:
        """Return the check as ``--json`` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        verdict = "warn  " if self.warning else "ok    " if self.ok else "failed"
        return f"{verdict}  {self.name}: {self.detail}"


def _is_future(start: str) -> bool:
    """Return True for a time to come; False for one that is over, a sequence, and a word as ``latest``."""
    with suppress(ValueError):
        return not start.isdecimal() and parse_time(start) > datetime.now(UTC)
    return False


class _FailedError(TurnoutError):
    """Raised when a check finds something that is no error of a server."""


class _DoubtError(TurnoutError):
    """Raised when a check passes, and probably not as intended."""


def probe(route: Route, records: int) -> Iterator[Probed]:
    """Yield the result of every check, in the order of a record's path through the route; nothing is published.

    Args:
        route: route to check.
        records: how many of the latest records of each stream go through the route; nothing is delivered.
    """
    yield from _Probing(route, records).checks()


class _Probing:
    """Checks of one route, with the results of earlier parts."""

    def __init__(self, route: Route, records: int) -> None:
        self.route = route
        self.records = records
        self.batches: list[ArrowBatch] = []
        self.index: Index | None = None
        self.subscriptions: list[Subscription] = []
        self.doubts: list[str] = []
        self.topics: dict[int, set[str]] = {}
        self.messages: list[Messages] = []

    def checks(self) -> Iterator[Probed]:
        route = self.route
        yield from self._of_source(route.source)
        readable = True
        if route.tables:
            tables = self._attempt("tables", self._tables)
            readable = tables.ok
            yield tables
        if route.subscriptions is not None:
            store = self._attempt("subscriptions", self._store)
            readable = store.ok
            yield store
            for problem in self.doubts:
                yield Probed("subscriptions", True, problem, warning=True)
            if readable and route.source.pushes_down:
                yield self._attempt("push-down", self._pushed_down)
        if self.batches and readable:
            yield self._attempt("sample", self._sample)
            yield from self._names()
            if self.index is not None:
                yield self._attempt("conditions", self._conditions)
        for number, (name, sink) in enumerate(route.sinks.items()):
            yield from self._of_sink(f"sink {name}".strip(), sink, number)
        if route.webhooks is not None:
            yield self._attempt("webhooks", self._webhooks)
        if route.scheduled is not None and route.scheduled.stream is not None:
            yield self._attempt("scheduled", self._delay_stream)

    def _attempt(self, name: str, work: Callable[[], str]) -> Probed:
        try:
            return Probed(name, True, masked_url(work()))
        except _DoubtError as doubt:
            return Probed(name, True, masked_url(str(doubt)), warning=True)
        except (TurnoutError, OSError) as failure:
            return Probed(name, False, masked_url(str(failure)).replace("\n", "; "))

    # Endpoints

    def _of_source(self, source: Source) -> Iterator[Probed]:
        from turnout.runtime.endpoints import adapter_of

        with closing(adapter_of(source).probe(_SECONDS)) as probe:
            reached = self._attempt("source", probe.reach)
            yield reached
            for name in probe.streams() if reached.ok else ():
                yield self._attempt(f"{probe.noun} {name}", partial(self._read, probe, name))

    def _read(self, probe: EndpointProbe, stream: str) -> str:
        import pyarrow as pa

        batches, detail = probe.latest(stream, self.records)
        if batches:
            # As one: a batch shows its first failures in full, and records come in any number of them.
            self.batches.append(pa.concat_batches(batches))
        start = getattr(self.route.source, "start", None)
        if isinstance(start, str) and _is_future(start.strip()):
            raise _DoubtError(f"{detail}; the start, {start}, is in the future: a run begins with the next record")
        return detail

    def _of_sink(self, name: str, sink: Sink, number: int) -> Iterator[Probed]:
        from turnout.runtime.endpoints import adapter_of

        with closing(adapter_of(sink).probe(_SECONDS)) as probe:
            reached = self._attempt(name, probe.reach)
            yield reached
            messages = [messages.of_sink(number) for messages in self.messages]
            for label, check in probe.sink_checks(sorted(self._topics(number)), messages) if reached.ok else ():
                yield self._attempt(f"{name}, {label}", check)

    def _topics(self, number: int) -> set[str]:
        """Return the topics of the sink at index *number*: those of the sample's messages, and the dead letter's."""
        topics = set(self.topics.get(number, ()))
        if self.route.dead_letter is not None:
            sink, colon, topic = self.route.dead_letter.topic.partition(":")
            named = list(self.route.sinks)
            at = named.index(sink) if colon and sink in named else 0
            topics |= {topic if colon and sink in named else self.route.dead_letter.topic} if at == number else set()
        return {topic for topic in topics if not self._is_delivery(topic, number) and not self._waits(topic)}

    def _is_delivery(self, topic: str, number: int) -> bool:
        """Return True for a delivery to a webhook, whose stream or topic a run makes unless it exists."""
        webhooks = self.route.webhooks
        if webhooks is None or number != webhooks.sink_index(list(self.route.sinks)):
            return False
        return topic.startswith(f"{webhooks.subject}.")

    def _waits(self, topic: str) -> bool:
        """Return True for a message in the delay stream, which a run makes unless it exists."""
        part = self.route.scheduled
        return part is not None and part.stream is not None and topic.startswith(f"{part.subject}.")

    def _delay_stream(self) -> str:
        """Ask what a run asks before its first delivery, and create nothing."""
        from turnout.runtime.preflight import make_delay_stream

        assert self.route.scheduled is not None
        missing = make_delay_stream(self.route, create=False)
        name = self.route.scheduled.stream
        return f"a run makes the delay stream {name}" if missing else f"the stream {name} keeps messages that wait"

    def _webhooks(self) -> str:
        """Ask what a run asks before its first delivery, and create nothing."""
        from turnout.runtime.preflight import make_webhook_streams

        assert self.route.webhooks is not None
        names = ", ".join(self.route.webhooks.streams)
        missing = make_webhook_streams(self.route, create=False)
        return f"{names} store deliveries" if not missing else f"a run makes {', '.join(missing)}"

    # Records

    def _tables(self) -> str:
        from turnout.runtime.lake.lookups import with_rows

        self.route = with_rows(self.route, renew=True)
        for stage in self.route.chain.stages:
            for name, field in stage.transform.named_tables():
                found = self.route.tables[name].rows
                fields = dict.fromkeys(field for row in (found.rows.values() if found else ()) for field in row)
                if field and fields and field not in fields:
                    raise _FailedError(f"{name} has no field {field!r} for {stage.name}, only {', '.join(fields)}")
        return "; ".join(self.route.tables_notes)

    def _store(self) -> str:
        from turnout.engine.metadata import doubtful_leaves
        from turnout.subscriptions import open_store
        from turnout.subscriptions.index import Index
        from turnout.subscriptions.store_url import existing

        assert self.route.subscriptions is not None
        url = self.route.subscriptions.store
        with closing(open_store(existing(url))) as store:
            self.index = Index.of(store)
            snapshot = store.snapshot()
            self.subscriptions = [one for one in snapshot if one.project or one.delivery is not None]
            self.doubts = doubtful_leaves(snapshot, self.route.subscriptions.metadata)
            return f"{url}: {plural(len(self.index), 'subscription')} at revision {store.revision()}"

    def _pushed_down(self) -> str:
        """Describe the subjects that a run would read now."""
        from turnout.engine.subject_filters import SubjectFilters
        from turnout.subscriptions import open_store
        from turnout.subscriptions.store_url import existing

        assert self.route.subscriptions is not None
        filters = SubjectFilters(self.route, self.route.source.filters)
        with closing(open_store(existing(self.route.subscriptions.store))) as store:
            chosen = filters.of(filters.asked(subscription.condition) for subscription in store.snapshot())
        if chosen is None:
            return "all is read: a subscription can match any subject, or the filters are too many"
        return f"read are {', '.join(chosen)}" if chosen else "nothing is read: no subscription can match any subject"

    def _sample(self) -> str:
        """Describe the outcomes of the latest records."""
        from turnout.engine import Program
        from turnout.engine.counts import MATCH
        from turnout.engine.dead_letters import reasons_of
        from turnout.runtime.preflight import looped

        # What fails is to be seen here, not to stop at the first of it.
        errors = replace(self.route.errors, tolerance="all", log=True, log_messages=False)
        program = Program(looped(replace(self.route, chain=replace(self.route.chain, errors=errors)))[0])
        results = [program.run(batch, self.index) for batch in self.batches]
        self.messages = [result.messages for result in results]
        for result in results:
            for topic, number in zip(result.messages.topics.to_pylist(), result.messages.sinks.tolist(), strict=True):
                self.topics.setdefault(number, set()).add(topic)
        counts, failed = Counter[str](), 0
        for result in results:
            counts.update(result.counts.as_dict())
            failed += result.counts.dead_lettered + result.counts.discarded
            # Set aside as the route says.
            failed -= result.counts.flow.failed.get(MATCH, 0) if self.route.unmatched == "deadLetter" else 0
        summary = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count)
        lines = [line for result in results for line in result.failures]
        failures = reasons_of(lines, len(lines))
        summary += f"; {failures}" if failures else ""
        if failures and self.route.errors.tolerance == "none":
            raise _FailedError(f"{summary}: the first of them would stop the run (errors: tolerance: none)")
        if failed and failed == counts["read"]:
            raise _FailedError(f"{summary}: nothing would be delivered; {_CURE}")
        if failed or counts["undeliverable"]:
            raise _DoubtError(summary)
        return summary

    def _names(self) -> Iterator[Probed]:
        """Yield for each name in the route the number of sampled records that have it."""
        from turnout.engine import Program
        from turnout.engine.name_counts import NameWatch

        watch = NameWatch(self.route, self.subscriptions)
        program = Program(self.route)
        for batch in self.batches:
            program.trace(batch, self.index, watch)
        for count in watch.counts():
            label = f"{count.path}, {count.name}"
            yield Probed(label, not count.masks_nothing, count.detail, count.is_absent and not count.is_mask)

    def _conditions(self) -> str:
        """Check that the keys of conditions exist: listed, or a header of the sample."""
        from turnout.engine.replay import split_names

        assert self.index is not None
        assert self.route.subscriptions is not None
        listed = self.route.subscriptions.metadata
        seen = self._headers()
        wrong, unseen = ([name for name in names if name not in seen] for names in split_names(self.index.keys, listed))
        if wrong:
            suspects = [f"{key!r}{did_you_mean(key.rpartition('.')[2], listed)}" for key in wrong[:_MAX_NAMES]]
            names = ", ".join(listed) or "none"
            raise _FailedError(f"subscriptions test {', '.join(suspects)}; under metadata are listed: {names}")
        if unseen:
            return f"no record of the sample has the headers {', '.join(unseen[:_MAX_NAMES])}, which subscriptions test"
        return f"all {len(self.index.keys)} names that subscriptions test are listed or in the sample"

    def _headers(self) -> set[str]:
        names: set[str] = set()
        for batch in self.batches:
            names.update(batch.column("headers").flatten().field("key").unique().to_pylist())
        return names


class SchemaKind(StrEnum):
    """Kinds of files that have a JSON Schema."""

    ROUTE = "route"
    TEST = "test"
    SERVER = "server"


def schema(kind: Annotated[SchemaKind, typer.Argument(help="The kind of file.")] = SchemaKind.ROUTE) -> None:
    """Print the JSON Schema of route files, of their tests or of a server's settings, with installed plug-ins.

    An editor with a YAML language server checks and completes a file that begins with

    # yaml-language-server: $schema=route.schema.json
    """
    typer.echo(json.dumps(_schema_of(kind), indent=2, ensure_ascii=False))


def _schema_of(kind: SchemaKind) -> dict[str, object]:
    from turnout.routes.json_schema import DIALECT, model_schema, route_schema

    if kind is SchemaKind.SERVER:
        from turnout.server.config import ServerConfig

        return {"$schema": DIALECT, "title": "Settings of turnout serve", **model_schema(ServerConfig)}
    from turnout.history.suite.suite import suite_schema, test_file_schema

    return test_file_schema() if kind is SchemaKind.TEST else route_schema(suite_schema())
