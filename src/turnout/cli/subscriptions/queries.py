"""Queries of a store: commands such as ``turnout subscriptions read``, ``search``, ``match`` and ``analyze``."""

from __future__ import annotations

import io
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from turnout.base.files import new_file
from turnout.base.terminal import escaped_json, first_names, json_text, plural, printable_lines
from turnout.base.untrusted import JsonObject
from turnout.cli.options import AsJson, Master, StoreTimeout, StoreUrl, needs_spark, opened_store, store_url_of
from turnout.cli.run import log_beside, working
from turnout.cli.subscriptions.changes import (
    Destination,
    Enabled,
    Key,
    Kind,
    LeafText,
    MetadataPairs,
    Partial,
    Pattern,
    Text,
    json_of,
    pairs_of,
    search_of,
)
from turnout.errors import ConfigError, Mistake, SubscriptionInvalidError

if TYPE_CHECKING:
    from turnout.conditions import Explanation
    from turnout.routes import Route
    from turnout.rpc.client import MatchingClient
    from turnout.subscriptions import Match, Snapshot, Subscription
    from turnout.subscriptions.analysis import Access, Analysis, AnchorTraffic, Equal, Traffic

Pairs = Annotated[list[str] | None, typer.Argument(help="The message's metadata: key=value …")]
_SHOWN_CHARACTERS = 80
"""Number of characters of a wrong value in an error."""

Body = Annotated[str | None, typer.Option("--message", help="The metadata as a JSON object, or - for standard input.")]
Limit = Annotated[int, typer.Option(min=1, help="Results of one page.")]
Cursor = Annotated[str, typer.Option(help="The last id of the page before.")]


def read(id: str, store: StoreUrl = None, timeout: StoreTimeout = None) -> None:
    """Print one subscription as JSON."""
    with opened_store(store, timeout) as opened:
        typer.echo(description(opened.read(id), indent=2))


def search(
    metadata: MetadataPairs = None,
    key: Key = None,
    pattern: Pattern = None,
    partial: Partial = False,
    leaf: LeafText = None,
    kind: Kind = None,
    destination: Destination = None,
    text: Text = None,
    enabled: Enabled = None,
    limit: Limit = 100,
    cursor: Cursor = "",
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Find subscriptions that have all the parts given, of their conditions, destinations or metadata; page by page."""
    from turnout.subscriptions.search import find

    wanted = search_of(metadata, key, pattern, partial, leaf, kind, destination, text, enabled)
    with opened_store(store, timeout) as opened:
        page = find(opened, wanted, limit=limit, cursor=cursor)
        subscriptions, after = list(page.items), page.cursor
    if as_json:
        from turnout.subscriptions.lines import subscription_to_json

        typer.echo(
            json.dumps(
                {"page": [subscription_to_json(one.hidden()) for one in subscriptions], "cursor": after},
                indent=1,
            )
        )
        return
    for subscription in subscriptions:
        typer.echo(description(subscription))
    if after:
        typer.echo(printable_lines([f"there are more: --cursor {after}"]), err=True)


def match(
    pairs: Pairs = None,
    message: Body = None,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Print the subscriptions that match a message, with their destinations."""
    metadata = _message(pairs, message)
    matches = sorted(_matches(store_url_of(store, timeout), metadata), key=lambda match: match.subscription_id)
    if as_json:
        rows = [
            {
                "subscriptionId": match.subscription_id,
                "destinations": match.destinations,
                "conditionIds": match.leaf_ids,
            }
            for match in matches
        ]
        typer.echo(json.dumps({"matches": rows}, indent=1))
        return
    for match in matches:
        typer.echo(printable_lines([f"{match.subscription_id}  {' '.join(match.destinations)}"]))
    typer.echo(f"{len(matches)} matched", err=True)


def explain(
    id: str,
    pairs: Pairs = None,
    message: Body = None,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Explain the result of matching a subscription with a message, down to each leaf."""
    url = store_url_of(store, timeout)
    explanation, inactive = _explained(url, id, _message(pairs, message)), _inactive(url, id)
    matched = explanation.holds and not inactive
    if as_json:
        answer = {"matched": matched, "inactive": inactive, "explanation": _plain(explanation)}
        typer.echo(json.dumps(answer, indent=1))
        return
    if inactive:
        typer.echo(
            f"not matched because the subscription {inactive}; its condition is {str(explanation.holds).lower()}:"
        )
    else:
        typer.echo(f"{'matched' if matched else 'not matched'} because")
    typer.echo(printable_lines(explanation.lines(1)))


def stats(
    hottest: Annotated[int, typer.Option(min=0, help="How many of the anchors with the most terms.")] = 10,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Print statistics of the subscription index: anchors, the hottest of them, and terms without one."""
    from turnout.subscriptions import Matcher

    with opened_store(store, timeout) as opened:
        matcher = Matcher.from_store(opened)
    index = matcher.stats(hottest)
    if as_json:
        rows = [{"key": a.key, "kind": str(a.kind), "text": a.text, "terms": count} for a, count in index.hottest]
        typer.echo(
            json.dumps(
                {
                    "revision": matcher.revision,
                    "subscriptions": index.subscriptions,
                    "terms": index.terms,
                    "anchors": index.anchors,
                    "always": index.always,
                    "hottest": rows,
                },
                indent=1,
            )
        )
        return
    typer.echo(f"{index.subscriptions:,} subscriptions at revision {matcher.revision}")
    typer.echo(f"{index.terms:,} terms under {index.anchors:,} anchors")
    typer.echo(f"{index.always:,} terms without an anchor: each is verified on every message")
    for anchor, count in index.hottest:
        typer.echo(printable_lines([f"{count:>9,}  {anchor}"]))


def description(subscription: Subscription, indent: int | None = None) -> str:
    """Return a subscription as JSON, with its revision."""
    from turnout.subscriptions.lines import subscription_to_json

    return json_text({**subscription_to_json(subscription.hidden()), "revision": subscription.revision}, indent=indent)


def export(
    file: Annotated[str, typer.Argument(help="The file to write; - for standard output.")] = "-",
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
) -> None:
    """Write every subscription as a line of JSON."""
    from turnout.subscriptions.lines import export_lines

    count = 0
    with opened_store(store, timeout) as opened, _writing(file) as out:
        for line in export_lines(opened):
            out.write(f"{escaped_json(line)}\n")
            count += 1
    typer.echo(f"{count:,} written", err=True)


@contextmanager
def _writing(file: str) -> Iterator[IO[str]]:
    path = Path(file)
    if file == "-":
        yield sys.stdout
    elif path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as opened:
            yield opened
    else:
        # An export that fails leaves the file of before.
        with new_file(path.resolve()) as raw:
            text = io.TextIOWrapper(raw, encoding="utf-8")
            yield text
            text.detach()


@contextmanager
def _service(address: str | None) -> Iterator[MatchingClient | None]:
    """Yield a client of the service if the store's address is one (``grpc://``), else None."""
    url = store_url_of(address)
    if not url.startswith("grpc://"):
        yield None
        return
    from turnout.rpc.client import Channel, MatchingClient

    client = MatchingClient(Channel.parse(url))
    try:
        yield client
    finally:
        client.close()


def _matches(store: str, metadata: Mapping[str, object]) -> list[Match]:
    from turnout.subscriptions import Matcher

    with _service(store) as service:
        if service is not None:
            return service.match(metadata)
    with opened_store(store) as opened:
        return list(Matcher.from_store(opened).match(metadata))


def _explained(store: str, id_: str, metadata: Mapping[str, object]) -> Explanation:
    from turnout.conditions import explain as explanation_of
    from turnout.records.text import texts_of_values

    with _service(store) as service:
        if service is not None:
            return service.explain(id_, metadata)
    with opened_store(store) as opened:
        return explanation_of(opened.read(id_).condition, texts_of_values(metadata))


def _inactive(store: str, id_: str) -> str:
    """Return the reason that a subscription matches nothing now; "" if there is none."""
    from turnout.base.clocks import milliseconds_now

    now = milliseconds_now()
    with opened_store(store) as opened:
        return opened.read(id_).inactive(now, now)


def _plain(explanation: Explanation) -> JsonObject:
    from turnout.conditions.text import format_condition

    return {
        "conditionId": explanation.condition.id,
        "text": format_condition(explanation.condition),
        "holds": explanation.holds,
        "reason": explanation.reason,
        "children": [_plain(child) for child in explanation.children],
    }


def _is_plain(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return not any(isinstance(one, dict | list) for one in values)


def _shortened(value: object) -> str:
    """Return the beginning of the JSON of a value."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _message(pairs: list[str] | None, body: str | None) -> Mapping[str, object]:
    message: dict[str, object] = {}
    if body is not None:
        data = json_of(body, "--message")
        if not isinstance(data, dict):
            raise SubscriptionInvalidError(f"--message: expected a JSON object, found {_shortened(data)}")
        for key, value in data.items():
            if not _is_plain(value):
                expected = "expected a text, a number, true, false, null or a list of them"
                raise SubscriptionInvalidError(f"--message: {key}: {expected}, found {_shortened(value)}")
        message = data
    return message | pairs_of(pairs or [], "metadata")


def analyze(
    against: Annotated[
        Path | None, typer.Option(help="A route whose source's records are matched: NATS or Kafka.", dir_okay=False)
    ] = None,
    begin: Annotated[str, typer.Option("--from", help="Where to begin: a sequence or a time.")] = "earliest",
    end: Annotated[str | None, typer.Option("--to", help="Where to end, not included; default: the end.")] = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="A nats-server, to list destinations that no stream accepts.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Match the records in Spark's tasks, not in this process.")
    ] = False,
    master: Master = "local[*]",
    hottest: Annotated[int, typer.Option(min=0, help="How many anchors to name.")] = 10,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Find duplicate, subsumed and impossible subscriptions, and with --against ineffective ones."""
    from turnout.routes import Route

    route = None if against is None else Route.load(against)
    snapshot = _snapshot(store, route, timeout)
    if spark and route is None:
        raise ConfigError([Mistake("--spark", "expected --against: without records there is nothing to match")])
    count = _local_traffic if not spark else partial(_in_tasks, master)
    with working("analysing", quiet=as_json):
        analysis = _analysis(snapshot, route, partial(count, begin=begin, end=end), server, hottest)
    if route is not None:
        from turnout.engine.metadata import doubtful_leaves

        paths = route.subscriptions.metadata if route.subscriptions else {}
        lines = [f"warning: {problem}" for problem in doubtful_leaves(snapshot, paths)]
        typer.echo(printable_lines(lines), err=True, nl=bool(lines))
    if as_json:
        typer.echo(json_text(analysis.as_dict(), indent=1))
    else:
        typer.echo(printable_lines(analysis_lines(analysis)))


def _snapshot(store: str | None, route: Route | None, timeout: float | None) -> Snapshot:
    """Return the content of the named store, or of the route's."""
    if store is None and route is not None:
        if route.subscriptions is None:
            raise ConfigError([Mistake("--against", "the route has no subscriptions")])
        store = route.subscriptions.store
    with opened_store(store, timeout) as opened:
        return opened.snapshot()


def _analysis(
    snapshot: Snapshot,
    route: Route | None,
    count: Callable[[Snapshot, Route, AnchorTraffic], Traffic],
    server: str | None,
    hottest: int,
) -> Analysis:
    from turnout.subscriptions.analysis import AnchorTraffic, Catalogue, analysis_of

    catalogue = Catalogue(snapshot)
    if route is None:
        unread = _unread(snapshot, None, server)
        return analysis_of(catalogue, revision=snapshot.revision, hottest=hottest, unread=unread)
    anchors = AnchorTraffic(catalogue.terms())
    traffic = count(snapshot, route, anchors)
    unread = _unread(snapshot, route, server)
    return analysis_of(
        catalogue, revision=snapshot.revision, hottest=hottest, anchors=anchors, traffic=traffic, unread=unread
    )


def _local_traffic(snapshot: Snapshot, route: Route, anchors: AnchorTraffic, *, begin: str, end: str | None) -> Traffic:
    """Count the subscriptions' traffic in this process."""
    from turnout.engine import Program
    from turnout.history.traffic import traffic_of
    from turnout.subscriptions.index import Index

    batches = records_between(route, begin, end)
    return traffic_of(
        Program.of(route), batches, Index.of(snapshot), [subscription.id for subscription in snapshot], anchors
    )


def _in_tasks(
    master: str, snapshot: Snapshot, route: Route, anchors: AnchorTraffic, *, begin: str, end: str | None
) -> Traffic:
    """Count the subscriptions' traffic in Spark's tasks."""
    with needs_spark():
        from turnout.base.startup import block_pandas_import
        from turnout.spark.history.traffic import traffic_in_tasks
        from turnout.spark.session.build import route_session

    block_pandas_import()
    with route_session(route, master=master, log=log_beside(route, None)) as session:
        return traffic_in_tasks(route, session, snapshot, anchors, start=begin, end=end)


def _unread(snapshot: Snapshot, route: Route | None, server: str | None) -> Mapping[str, Sequence[str]] | None:
    """Return the destinations that no stream captures; None without a server and a route to check."""
    if server is not None:
        return unread_at(server, snapshot)
    return None if route is None else unread_of(route, snapshot)


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


Subscribers = dict[str, list[str]]
"""Destination → the subscriptions that have it."""


def unread_at(server: str, subscriptions: Iterable[Subscription]) -> Subscribers:
    """Return the destinations that no stream of this server captures; a sink's name before a subject is ignored.

    Raises:
        TurnoutError: the server cannot be queried.
    """
    from turnout.nats.wire import Connection
    from turnout.runtime.nats.adapter import stored_subjects
    from turnout.subjects.pattern import matches

    with Connection.open(server) as connection:
        stored = stored_subjects(connection)
    wild = [subject for subject in stored if "*" in subject or ">" in subject]
    exact = stored.difference(wild)

    def is_read(subject: str) -> bool:
        return subject in exact or any(matches(pattern, subject) for pattern in wild)

    subscribers = sorted(_subscribers(subscriptions).items())
    return {name: ids for name, ids in subscribers if not is_read(name.rpartition(":")[2])}


def unread_of(route: Route, subscriptions: Iterable[Subscription]) -> Subscribers:
    """Return the destinations that no stream captures at the route's NATS sinks; other sinks are not checked.

    Raises:
        TurnoutError: a server cannot be queried.
    """
    from turnout.engine.deliveries import Addresses
    from turnout.runtime.endpoints import adapter_of

    stored = {name: adapter_of(sink).stored_topics() for name, sink in route.sinks.items()}
    known = {name: tuple(sorted(names)) for name, names in stored.items() if names is not None}
    addresses = Addresses(replace(route, stored=known))
    subscribers = sorted(_subscribers(subscriptions).items())
    return {name: ids for name, ids in subscribers if addresses.of(name).problem is not None}


def _subscribers(subscriptions: Iterable[Subscription]) -> Subscribers:
    subscribers: defaultdict[str, list[str]] = defaultdict(list)
    for subscription in subscriptions:
        for destination in dict.fromkeys(subscription.destinations):
            subscribers[destination].append(subscription.id)
    return subscribers


def records_between(route: Route, begin: str, end: str | None, option: str = "--against") -> Iterator[object]:
    """The record batches from one place up to, not including, another, of each of the source's streams or partitions.

    Args:
        route: route with the source.
        begin: a sequence, an ISO time, or ``earliest``.
        end: likewise; None for the current end of the stream.
        option: option to name in the error if the route has no such source.

    Raises:
        ConfigError: for a place that is none, and for a source that keeps no history.
        StreamError: a stream is not there, or may not be read.
    """
    from turnout.nats.wire.streams import position_of
    from turnout.runtime.endpoints import adapter_of

    source = route.source_with_history(option)
    first, last = position_of("--from", begin), position_of("--to", "latest" if end is None else end)
    with adapter_of(source).history() as history:
        for stream in history.streams:
            bounds = history.bounds(stream)
            start, stop = (min(history.resolve(stream, bound), bounds.next) for bound in (first, last))
            start = max(start, bounds.first)
            if stop > start:
                yield from history.read(stream, start, stop)
