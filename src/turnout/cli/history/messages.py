"""``turnout explain``, ``tap``, ``feed`` and ``lineage``: ways of records, and the messages and their origins."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.startup import paused_gc
from turnout.base.terminal import did_you_mean, json_text, printable_lines
from turnout.cli.exits import BAD, DOUBTFUL, GOOD, INTERRUPTED, echo_lines, stop_on_signals
from turnout.cli.options import PLACE, AsJson, AsOf, RouteFile, StoreTimeout, check_places, loaded_route
from turnout.errors import ConfigError, Mistake, SubscriptionNotFoundError

if TYPE_CHECKING:
    from turnout.engine.explain import (
        ChangeEvent,
        LeafReport,
        RecordExplanation,
        RequestedSubscription,
        SentMessage,
        Subscriber,
    )
    from turnout.engine.trace import Mapped, StageReport
    from turnout.history.feed import FeedMessage
    from turnout.history.lineage import Lineage
    from turnout.history.tap import Tapped
    from turnout.routes import Route


_RATE = 10.0
"""This many live records a second a person can follow."""


def tap(
    route: RouteFile,
    stage: Annotated[str, typer.Option(help="source, the name of a transform, mapped or delivered.")] = "delivered",
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Only records that match this condition.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {PLACE}; now if not given.")
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="PLACE", help="The place after the last record; without it there is no end."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help=f"Maximum records per second; {_RATE:.0f} for live ones.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many records.")] = None,
    unmasked: Annotated[bool, typer.Option("--unmasked", help="Show parts that the route masks later.")] = False,
    timeout: StoreTimeout = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each record.")] = False,
) -> None:
    """Watch records before and after a stage; nothing is delivered, and a run is not disturbed."""
    from turnout.base.startup import block_pandas_import

    block_pandas_import()
    from turnout.history.tap import taps

    check_places(start, end)
    loaded = loaded_route(route, timeout)
    pace = _RATE if rate is None and start is None else rate
    with stop_on_signals() as stop:
        records = taps(
            loaded,
            stage,
            where=where,
            start=start,
            end=end,
            rate=pace,
            limit=limit,
            unmasked=unmasked,
            stop=stop,
            warn=_warn,
        )
        if where is not None and end is None:
            _warn_of_headers(loaded, where)
        count = 0
        for tapped in records:
            count += 1
            typer.echo(json_text(tapped.as_dict()) if as_json else printable_lines(_tap_lines(tapped)))
        has_end = end is not None or limit is not None
        if stop.is_set() and has_end and count != limit:
            raise typer.Exit(INTERRUPTED)


def _warn_of_headers(route: Route, where: str) -> None:
    """Say which names of a condition no record may ever have; behind a range that is found at its end."""
    from turnout.conditions import parse
    from turnout.engine.replay import Where

    paths = route.subscriptions.metadata if route.subscriptions else {}
    for name in Where(parse(where), paths).headers:
        _warn(f"{name!r} is not listed under metadata: only records with a header of that name can match")


def _warn(problem: str) -> None:
    typer.echo(printable_lines([f"warning: {problem}"]), err=True)


def _tap_lines(tapped: Tapped) -> Iterator[str]:

    yield f"{tapped.stream}:{tapped.sequence} {tapped.before['topic']}  {tapped.stage}: {tapped.outcome}"
    if tapped.reason is not None:
        yield f"    {tapped.reason}"
    if tapped.outcome == "changed" and tapped.after is not None:
        for name, before in tapped.before.items():
            if before != tapped.after[name]:
                yield from change_lines(name, before, tapped.after[name])
    else:
        shown = {name: tapped.before[name] for name in ("key", "value", "headers") if tapped.before[name]}
        yield f"    {json_text(shown)}"
    for message in tapped.messages:
        subscription_text = f" for {message.subscription}" if message.subscription else ""
        yield f"    → {message.topic}{subscription_text}{', set aside' if message.dead_letter else ''}"


_PLACE = "earliest, latest, an ISO time, an age such as 10m or a sequence of a stream"


def feed(
    subscription: Annotated[str, typer.Argument(metavar="ID", help="The subscription.")],
    route: Annotated[Path, typer.Option(dir_okay=False, help="The YAML file of its route, which stores feeds.")],
    start: Annotated[str, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {_PLACE}.")] = "earliest",
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Begin behind this cursor, which a message has.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many messages.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for messages until the command is interrupted.")
    ] = False,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Read the messages of a subscription; nothing is delivered, and no copy of them is stored."""
    from turnout.history.feed import FeedReader
    from turnout.runtime.cursors import cursor_of

    begin = None if after is None else cursor_of(after)
    if after is not None and begin is None:
        raise typer.BadParameter(f"expected the cursor of a message, found {after!r:.80}", param_hint="--after")
    with stop_on_signals() as stop, FeedReader(loaded_route(route, timeout)) as reader:
        position = int(start) if start.isdecimal() else start
        cursor = reader.start(position) if begin is None else begin
        left = limit
        for page in reader.follow(subscription, cursor, stop):
            for message in page.messages[:left]:
                typer.echo(json_text(message.as_dict()) if as_json else printable_lines(_feed_lines(message)))
            if page.removed:
                typer.echo(f"{page.removed} matched records are no longer in the stream", err=True)
            left = None if left is None else left - len(page.messages)
            if (left is not None and left <= 0) or (page.is_last and not follow):
                return
    if limit is not None or not follow:
        raise typer.Exit(INTERRUPTED)


def _feed_lines(message: FeedMessage) -> Iterator[str]:
    yield f"[{message.cursor}] {message.time_text} {message.topic}"
    for name, value in message.headers:
        yield f"  {name}: {(value or b'').decode('utf-8', 'backslashreplace')}"
    if message.value:
        yield from message.value.decode("utf-8", "backslashreplace").split("\n")


def lineage(
    message: Annotated[
        str, typer.Argument(metavar="PLACE", help="The delivered message: STREAM:SEQ or TOPIC:PARTITION:OFFSET.")
    ],
    route: Annotated[Path | None, typer.Option(help="The route that delivered it.", dir_okay=False)] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where the message is, nats:// or kafka://; or the route's sinks."),
    ] = None,
    git: Annotated[bool, typer.Option("--git", help="Find the commit with the route as it was then.")] = False,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Print the record, subscription and route from which a delivered message was made."""
    if route is None and server is None:
        raise ConfigError([Mistake("lineage", "give --route, --server or both: where to look for the message")])
    from turnout.history.lineage import walk

    walked = walk(message, None if route is None else loaded_route(route, timeout), server=server, git=git)
    typer.echo(json_text(walked.as_dict(), indent=1) if as_json else printable_lines(_lineage_lines(walked)))


def _lineage_lines(walked: Lineage) -> Iterator[str]:
    """Yield the lineage as text lines."""
    message, origin, route = walked.message, walked.made, walked.route
    yield f"message  {message.place}, {message.topic}, {message.timestamp}"
    if walked.subscription is not None:
        subscription = walked.subscription
        state = "unchanged" if subscription.still else "deleted or changed since"
        yield f"wanted   by {subscription.id} at revision {origin.revision}, {state}"
        yield f"    {subscription.condition} → {', '.join(subscription.destinations)}"
    yield f"route    {origin.route}, digest {origin.digest}"
    if route.same is not None:
        yield f"    {route.file} {'is as it was' if route.same else 'has changed since'}"
    if route.commit is not None:
        yield f"    as in the commit {route.commit}"
    if walked.record is None:
        yield f"record   {origin.source}"
    else:
        yield f"record   {origin.source}, {walked.record.topic}, {walked.record.timestamp}"
        yield f"    {walked.record.value}"
    yield from (f"unknown  {gap}" for gap in walked.gaps)


def explain(
    route: RouteFile,
    record: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="A record: STREAM:SEQ, or TOPIC:PARTITION:OFFSET of Kafka."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="A JSON file with the record's topic, value …", dir_okay=False)
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read that JSON from standard input.")] = False,
    subscription: Annotated[
        str | None, typer.Option(metavar="ID", help="Say why this one does not get the record.")
    ] = None,
    as_of: AsOf = "now",
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Show one record's way through a route: stages, mapping, subscriptions, deliveries."""
    if (record is not None) + (file is not None) + stdin != 1:
        raise ConfigError([Mistake("record", "give one of --record PLACE, --file FILE and --stdin")])
    # The collector would traverse the objects of all modules that this imports several times.
    with paused_gc():
        explanation = _explanation(loaded_route(route, timeout), record, file, subscription, as_of)
    if as_json:
        typer.echo(json_text(explanation.as_dict(), indent=1))
    else:
        echo_lines(explanation_lines(explanation), _COLOURS)


_COLOURS = {
    r"^outcome  (failed|dead).*|^dead\b|^    - .*": BAD,
    r"^outcome  delivered\b|^sent\b|^wanted\b|^    \+ .*": GOOD,
    r"^outcome  .*|^    ~ |^note\b|^asked   .* does not want it": DOUBTFUL,
}


def _explanation(
    route: Route, record: str | None, file: Path | None, subscription: str | None, as_of: str
) -> RecordExplanation:
    """Return the way of a record: a stored one, or one that is written in a file or on standard input."""
    from turnout.base.startup import block_pandas_import

    block_pandas_import()
    from turnout.cli.options import subscriptions_of
    from turnout.engine import Program
    from turnout.engine.explain import explain
    from turnout.runtime.preflight import preflight_of_reachable
    from turnout.subscriptions import index as subscription_index

    batch = _stored(route, record) if record is not None else _written_record(route, file)
    subscriptions = list(subscriptions_of(route, as_of))
    index = subscription_index.Index.of(subscriptions) if route.subscriptions is not None else None
    by_id = {subscription.id: subscription for subscription in subscriptions}
    if subscription is not None and subscription not in by_id:
        raise SubscriptionNotFoundError(subscription, did_you_mean(subscription, by_id))
    route, notes = preflight_of_reachable(route)
    return explain(Program.of(route), batch, index, by_id, asked=subscription, notes=notes)


def _written_record(route: Route, file: Path | None) -> object:
    """Return the record in a file or on standard input, as a batch."""
    from turnout.engine.sample_records import SampleRecord, record_batch

    text = sys.stdin.read() if file is None else file.read_text(encoding="utf-8")
    name = "standard input" if file is None else str(file)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([Mistake(name, f"is not JSON: {error}")], what="bad record") from None
    if not isinstance(document, dict):
        raise ConfigError([Mistake(name, "expected a JSON object with topic, value …")], what="bad record")
    return record_batch([SampleRecord.of(document, stream=route.source.only_stream, route=route)])


def _stored(route: Route, position: str) -> object:
    """Return a message of the route's source, as a run reads it."""
    from turnout.runtime.endpoints import adapter_of

    if not route.source.keeps_history:
        raise ConfigError([Mistake("--record", f"the route's source is {route.source.format}: give --file")])
    try:
        stream, sequence = route.source.message(position)
    except ValueError as wrong:
        raise ConfigError([Mistake("--record", str(wrong))]) from None
    return adapter_of(route.source).record_at(stream, sequence)


_SHOWN_LINES = 20
"""Maximum number of matching subscriptions shown, and of messages."""


def explanation_lines(explanation: RecordExplanation) -> Iterator[str]:
    """Yield the whole explanation as text lines."""
    record = explanation.record
    yield f"record  {record['topic']}, partition {record['partition']}, offset {record['offset']}"
    if explanation.change is not None:
        yield from _change(explanation.change)
    for report in explanation.stages:
        yield from _stage(report)
    if explanation.mapped is not None:
        yield from _mapping(explanation.mapped)
    yield from _shortened(
        [list(_subscriber_lines(subscriber)) for subscriber in explanation.wanted], "subscriptions want it"
    )
    if explanation.asked is not None:
        yield from _answer_lines(explanation.asked)
    yield f"outcome  {explanation.outcome.replace('_', ' ')}"
    if explanation.failure is not None:
        failure = explanation.failure
        yield f"    {failure.stage}: {failure.class_name}: {failure.message}"
    yield from _shortened([list(_message(message)) for message in explanation.messages], "messages")
    yield from (f"note    {note}" for note in explanation.notes)


def _shortened(blocks: list[list[str]], heading: str) -> Iterator[str]:
    for block in blocks[:_SHOWN_LINES]:
        yield from block
    if len(blocks) > _SHOWN_LINES:
        yield f"…       {len(blocks):,} {heading}; --json has all of them"


def _change(change: ChangeEvent) -> Iterator[str]:
    yield f"change  {change.action} of {change.table or 'a table without a name'}"
    yield f"    {change.origin}"
    if change.remark:
        yield f"    {change.remark}"
    if change.before is not None or change.after is not None:
        yield from change_lines("row", change.before or {}, change.after or {})


def _stage(report: StageReport) -> Iterator[str]:
    yield f"stage   {report.name} ({report.transform}): {report.outcome}"
    for answer in report.answers:
        saw = ", ".join(f"{key} = {value!r}" for key, value in answer.saw.items())
        turned = ", negated" if answer.negate else ""
        yield f"    {answer.predicate} is {str(answer.holds).lower()}{turned}; it saw {saw or 'nothing'}"
    if report.error:
        yield f"    {report.error}"
    for name, value in report.after.items():
        before = report.before.get(name)
        if before != value:
            yield from change_lines(name, before, value)


def change_lines(name: str, before: object, after: object) -> Iterator[str]:
    """Yield the differences of one part of a record, a line for each field."""
    if isinstance(before, dict) and isinstance(after, dict):
        for field in dict.fromkeys((*before, *after)):
            if field not in after:
                yield f"    - {name}.{field}: {_readable(before[field])}"
            elif field not in before:
                yield f"    + {name}.{field}: {_readable(after[field])}"
            elif before[field] != after[field]:
                yield f"    ~ {name}.{field}: {_readable(before[field])} → {_readable(after[field])}"
        return
    yield f"    ~ {name}: {_readable(before)} → {_readable(after)}"


def _mapping(mapped: Mapped) -> Iterator[str]:
    if mapped.source is None:
        yield f"mapping none matches {mapped.topic}"
        return
    where = f" for the cluster {mapped.group}" if mapped.group else ""
    yield f"mapping {mapped.source}{where}: {mapped.topic} → {mapped.mapped or 'lost by weight'}"
    chosen = "lost" if mapped.destination is None else mapped.destination
    if mapped.drawn:
        yield f"    {chosen}, {mapped.share} % of the records; this one's draw is {mapped.draw:.4f}"


def _subscriber_lines(subscriber: Subscriber) -> Iterator[str]:
    yield f"wanted  {subscriber.subscription} → {', '.join(subscriber.destinations)}"
    yield from map(_leaf, subscriber.leaves)


def _leaf(leaf: LeafReport) -> str:
    return f"    {leaf.test}; {leaf.key} is {'missing' if leaf.value is None else repr(leaf.value)}"


def _answer_lines(answer: RequestedSubscription) -> Iterator[str]:
    name = answer.subscription
    if answer.wants is None:
        yield f"asked   {name}: the record did not reach the matching"
        return
    if answer.wants:
        yield f"asked   {name} wants it"
        return
    yield f"asked   {name} does not want it: {answer.inactive or answer.condition}"
    if answer.blame == ():
        return
    if answer.blame is None:
        yield "    no change of its leaves makes the condition true"
        return
    label = "the leaves to blame" if len(answer.blame) > 1 else "the leaf to blame"
    yield f"    {label}{'' if answer.exact else ', though there may be a smaller set'}:"
    yield from (f"    {_leaf(leaf)}" for leaf in answer.blame)


def _message(message: SentMessage) -> Iterator[str]:
    kind = "dead    " if message.dead_letter else "sent    "
    sink = f" in {message.sink}" if message.sink else ""
    subscription_text = f" for {message.subscription}" if message.subscription else ""
    yield f"{kind}{message.topic}{sink}{subscription_text}, id {message.id or 'none'}"
    if message.url is not None:
        yield f"    posted to {message.url}"
    if message.projected:
        yield f"    projected: {'null' if message.value is None else message.value}"
    if message.dead_letter:
        yield from (f"    {name}: {value}" for name, value in message.headers)


def _readable(value: object) -> str:
    return json_text(value)
